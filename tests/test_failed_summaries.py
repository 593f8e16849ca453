"""What a summary that fails leads to: what stands instead, who is told, and how."""

import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Callbacks, Compaction, Runner
from agentloop.context.guard import FAILURES, RETRY_STEPS
from agentloop.errors import BadAnswerError, ModelError, ModelRefusedError, SummaryRefusedError
from agentloop.events import Compacted
from agentloop.messages import Usage
from agentloop.models import ModelRequest
from agentloop.strategies import (
    Chain,
    Computed,
    Digest,
    KeepRecentTurns,
    Note,
    RecursiveSummary,
    Strategy,
    Summary,
    replaced_by,
)
from agentloop.stream import CompactionResult
from agentloop.testing import ScriptedModel
from agentloop.triggers import TurnCount


class Told(Callbacks):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.results: list[CompactionResult] = []

    def after_compaction(self, result: CompactionResult) -> None:
        self.results.append(result)


class Falls:
    """An `on_failure` that keeps the errors, and answers what it was made with."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.errors: list[ModelError] = []

    def __call__(self, error: ModelError) -> Any:
        self.errors.append(error)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def recursive(on_failure: Callable[[ModelError], Computed | None]) -> Strategy:
    return RecursiveSummary(2, 0, on_failure=on_failure)


def plain(on_failure: Callable[[ModelError], Computed | None]) -> Strategy:
    return replaced_by(KeepRecentTurns(1), Summary(on_failure=on_failure))


async def runner_with(folder: Path, strategy: Strategy, summary: Any, *callbacks: Callbacks) -> Runner:
    """A runner on a session of four turns, for which no summary is to be had."""
    model = ScriptedModel(["a", "b", "c", "d"], window=16_000, summary=summary)
    policy = Compaction(micro=None, trigger=None, strategy=strategy)
    runner = Runner(Agent(model, compaction=policy), transcripts=folder, callbacks=callbacks)
    for number in range(4):
        await runner.run(f"FACT-{number:06x} " + "please " * 300, session_id="s")
    return runner


@pytest.mark.parametrize("strategy", [recursive, plain])
async def test_a_function_says_what_stands_where_a_summary_fails(
    strategy: Callable[..., Strategy], tmp_path: Path
) -> None:
    falls = Falls(Note("It is all in notes.md."))
    runner = await runner_with(tmp_path, strategy(falls), BadAnswerError("down"))
    result = await runner.compact("s")
    assert (result.status, result.error) == ("done", "down")
    assert "It is all in notes.md." in result.summary
    assert [str(error) for error in falls.errors] == ["down"]


async def test_a_function_is_called_with_the_fault_of_a_text_too(tmp_path: Path) -> None:
    falls = Falls(Digest())
    runner = await runner_with(tmp_path, recursive(falls), "")
    assert (await runner.compact("s")).status == "done"
    assert [type(error) for error in falls.errors] == [SummaryRefusedError]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "down"),
        (
            "text",
            "down; on_failure, Falls, answered 'text': it must answer with a Digest, Lines, a Note, or None",
        ),
        (ValueError("no"), "down; on_failure, Falls, failed: ValueError: no"),
    ],
)
async def test_where_a_function_names_nothing_to_stand_all_is_left_as_it_was(
    answer: Any, says: str, tmp_path: Path
) -> None:
    told = Told()
    runner = await runner_with(tmp_path, recursive(Falls(answer)), BadAnswerError("down"), told)
    before = await runner.store.read("s")
    result = await runner.compact("s")
    assert (result.status, result.error) == ("failed", says)
    assert not any(isinstance(each.event, Compacted) for each in await runner.store.read("s"))
    assert (await runner.store.read("s"))[: len(before)] == before
    assert [(each.status, each.error) for each in told.results] == [("failed", says)]


@pytest.mark.parametrize(
    ("fallback", "status", "outcome"),
    [(None, "failed", "failed"), (Note(), "done", "is done by other means")],
)
async def test_a_failure_is_one_line_and_one_warning(
    fallback: Note | None, status: str, outcome: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = RecursiveSummary(2, 0, on_failure=fallback)
    runner = await runner_with(tmp_path, strategy, BadAnswerError("down"))
    with pytest.warns(RuntimeWarning) as warned:
        assert (await runner.compact("s")).status == status
    assert [str(each.message) for each in warned] == [f"the compaction by RecursiveSummary {outcome}: down"]
    lines = [record for record in caplog.records if record.levelname == "WARNING"]
    assert ["compaction_ended" in line.getMessage() for line in lines] == [True]


async def test_a_failure_ends_nothing_where_warnings_are_errors(tmp_path: Path) -> None:
    runner = await runner_with(tmp_path, RecursiveSummary(2, 0), BadAnswerError("down"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (await runner.compact("s")).status == "failed"


async def test_a_server_that_refuses_to_write_is_not_asked_again_where_a_function_names_nothing(
    tmp_path: Path,
) -> None:
    falls = Falls(None)
    chain = Chain((recursive(falls), plain(falls)), target=0.01)
    runner = await runner_with(tmp_path, chain, ModelRefusedError("no", status=400))
    assert (await runner.compact("s")).status == "failed"
    assert len(falls.errors) == 1


@pytest.mark.deep
async def test_l10_a_model_that_is_down_is_seldom_asked_and_a_digest_stands_at_the_threshold(
    tmp_path: Path,
) -> None:
    asked: list[int] = []

    def summary(request: ModelRequest) -> str | BadAnswerError:
        asked.append(len(model.requests))
        return BadAnswerError("down") if len(asked) <= 3 else f"All {len(asked)} of them said please."

    model = ScriptedModel([f"so {at}" for at in range(120)], window=4_000, summary=summary)
    runner = Runner(Agent(model, compaction=Compaction(micro=None)), transcripts=tmp_path)
    made = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for number in range(120):
            result = await runner.run(f"{number} " + "please " * 150, session_id="s")
            made += [(each.status, each.tier, each.reason) for each in result.compactions]
    first = made.index(("done", 2, "threshold"))
    digests = [each for each in made[:first] if each[:2] == ("done", 4)]
    assert {reason for *_, reason in digests} == {"threshold"}
    assert len(digests) > 3
    waits = [later - before for before, later in pairwise(asked[1:4])]
    assert all(wait > RETRY_STEPS for wait in waits)
    assert all(each == ("done", 2, "threshold") for each in made[first:])


async def test_a_disc_that_fails_is_no_fault_of_the_model(tmp_path: Path) -> None:
    place = tmp_path / "transcripts"
    runner = await runner_with(place, plain(Falls(None)), "They all said please.")
    place.write_text("no folder")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        failed = [await runner.compact("s") for _ in range(FAILURES)]
    assert [(each.status, each.usage) for each in failed] == [("failed", Usage())] * FAILURES
    place.unlink()
    result = await runner.compact("s", trigger=TurnCount(1))
    assert (result.status, result.tier, result.reason) == ("done", 2, "threshold")
    assert "They all said please." in result.summary
