"""Strategies of several steps through the runner: what the model was sent, and what the log keeps."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Callbacks, Compaction, Runner
from agentloop.context import count_request
from agentloop.errors import BadAnswerError
from agentloop.events import Compacted, MessageRecord
from agentloop.models import ModelRequest
from agentloop.strategies import (
    Blocks,
    ClearResults,
    Digest,
    RecursiveSummary,
    Reduce,
    Scope,
    Strategy,
    Tiered,
)
from agentloop.stream import CompactionResult
from agentloop.testing import ScriptedModel, calls
from tests.kit import COUNTER, FACT, assert_valid, every_fact, read, reading


def runner_for(model: Any, folder: Path, strategy: Strategy) -> Runner:
    policy = Compaction(micro=None, strategy=strategy)
    return Runner(Agent(model, tools=[read, log], compaction=policy), transcripts=folder)


def log(name: str) -> str:
    """Read a long log."""
    return "".join(f"{name}: entry {number}\n" for number in range(400))


def asked(model: ScriptedModel, purpose: str = "agent") -> list[ModelRequest]:
    return [request for request in model.requests if request.purpose == purpose]


def texts(request: ModelRequest) -> list[str]:
    return [str(message["content"]) for message in request.messages]


async def compacted(runner: Runner) -> CompactionResult:
    """What a compaction by hand came to."""
    result = await runner.compact("s")
    assert result is not None
    return result


async def compactions(runner: Runner) -> list[Compacted]:
    return [record.event for record in await runner.store.read("s") if isinstance(record.event, Compacted)]


@pytest.mark.parametrize(
    "strategy",
    [
        RecursiveSummary(4, 1),
        Blocks(1, 3),
        Blocks(scope=Scope.token_budget()),
        Tiered(),
        Reduce(),
        ClearResults(2_000, 500),
    ],
    ids=["RecursiveSummary", "Blocks", "BlocksByBudget", "Tiered", "Reduce", "ClearResults"],
)
@pytest.mark.deep
async def test_a_long_run_ends_well_and_every_request_is_valid_and_fits(
    strategy: Strategy, tmp_path: Path
) -> None:
    model = ScriptedModel(reading(24, 2), window=8_000, summary=every_fact)
    runner = runner_for(model, tmp_path, strategy)
    result = await runner.run("Read it all. FACT-abc123", session_id="s")
    assert result.output == "all read"
    assert_valid(model.requests)
    assert max(count_request(request, COUNTER) for request in model.requests) <= 8_000
    assert "Read it all. FACT-abc123" in json.dumps(asked(model)[-1].messages)
    said = [record for record in await runner.store.read("s") if isinstance(record.event, MessageRecord)]
    assert len(said) == 1 + 24 * 3 + 1
    assert any(done.strategy for done in await compactions(runner))


async def test_the_rolling_summary_is_a_pair_and_is_updated(tmp_path: Path) -> None:
    model = ScriptedModel([f"answer {number}" for number in range(20)], window=16_000, summary=every_fact)
    runner = runner_for(model, tmp_path, RecursiveSummary(keep=4, overlap=1, shadow="So far?"))
    for number in range(8):
        await runner.run(f"FACT-{number:06x} " + "please " * 300, session_id="s")
    assert (await compacted(runner)).status == "done"
    await runner.run("FACT-000008 " + "please " * 300, session_id="s")
    sent = texts(asked(model)[-1])
    assert sent[2].startswith("[Conversation compressed. Transcript: ")
    assert sent[2].endswith("So far?")
    assert [message["role"] for message in asked(model)[-1].messages][2:4] == ["user", "assistant"]
    assert {f"FACT-{number:06x}" for number in range(1, 6)} <= set(FACT.findall(sent[3]))
    read_first = asked(model, "summary")[0]
    assert "FACT-000006" in texts(read_first)[-1]
    assert "FACT-000007" not in texts(read_first)[-1]
    await runner.run("FACT-000009 " + "please " * 300, session_id="s")
    assert (await compacted(runner)).status == "done"
    again = texts(asked(model, "summary")[-1])[-1]
    assert again.count("Earlier record") == 1
    assert set(FACT.findall(again)) >= {f"FACT-{number:06x}" for number in range(1, 8)}
    assert "please" in again.split("Earlier record")[1]


async def test_earlier_runs_are_summarised_as_far_as_the_scope_goes(tmp_path: Path) -> None:
    model = ScriptedModel([f"answer {number}" for number in range(9)], window=16_000, summary=every_fact)
    runner = runner_for(model, tmp_path, Blocks(scope=Scope.fixed(2)))
    for number in range(6):
        await runner.run(f"FACT-{number:06x} " + "please " * 300, session_id="s")
    result = await compacted(runner)
    assert (result.status, result.strategy) == ("done", "Blocks: EarlierRuns")
    input_read = texts(asked(model, "summary")[0])[-1]
    assert set(FACT.findall(input_read)) == {"FACT-000003", "FACT-000004"}
    assert "one section for each request of the user" in input_read
    assert len(result.unread) == 5
    await runner.run("next", session_id="s")
    facts = FACT.findall(json.dumps(asked(model)[-1].messages))
    assert {"FACT-000000", "FACT-000003", "FACT-000004", "FACT-000005"} <= set(facts)


async def test_without_a_model_that_answers_blocks_have_one_line_a_turn(tmp_path: Path) -> None:
    model = ScriptedModel(
        [f"answer {number}" for number in range(9)], window=16_000, summary=BadAnswerError("down")
    )
    runner = runner_for(model, tmp_path, Blocks())
    for number in range(5):
        await runner.run(f"request {number} " + "please " * 300, session_id="s")
    assert (await compacted(runner)).status == "done"
    (done,) = await compactions(runner)
    assert done.made == "digest"
    lines = [line for line in done.replacement.splitlines() if line.startswith("- request")]
    assert [line[:11] for line in lines] == ["- request 1", "- request 2", "- request 3"]
    assert all(line.endswith(f"→ answer {number}") for number, line in enumerate(lines, 1))


async def test_stubs_are_enough_where_old_results_are_most_of_it(tmp_path: Path) -> None:
    model = ScriptedModel([*reading(3), "done", "more"], window=16_000)
    runner = runner_for(model, tmp_path, Tiered(target=0.2))
    await runner.run("Read", session_id="s")
    result = await compacted(runner)
    assert (result.status, result.strategy) == ("done", "Tiered: StubResults")
    assert asked(model, "summary") == []
    await runner.run("next", session_id="s")
    shown = [str(m["content"]) for m in asked(model)[-1].messages if m["role"] == "tool"]
    assert ["... [truncated" in text for text in shown] == [True, False, False]


async def test_what_stubs_leave_is_summarised_in_chunks(tmp_path: Path) -> None:
    model = ScriptedModel([f"answer {number}" for number in range(9)], window=16_000, summary=every_fact)
    runner = runner_for(model, tmp_path, Tiered(chunk_tokens=400, target=0.15))
    for number in range(7):
        await runner.run(f"FACT-{number:06x} " + "please " * 300, session_id="s")
    result = await compacted(runner)
    assert (result.status, result.strategy) == ("done", "Tiered: InChunks")
    assert len(asked(model, "summary")) >= 3
    assert max(count_request(request, COUNTER) for request in asked(model, "summary")) < 1_500
    await runner.run("next", session_id="s")
    facts = set(FACT.findall(json.dumps(asked(model)[-1].messages)))
    assert facts == {f"FACT-{number:06x}" for number in range(7)}


async def test_the_last_tier_needs_no_model(tmp_path: Path) -> None:
    model = ScriptedModel(
        [f"answer {number}" for number in range(9)], window=16_000, summary=BadAnswerError("down")
    )
    runner = runner_for(model, tmp_path, Tiered(target=0.01))
    for number in range(7):
        await runner.run(f"FACT-{number:06x} " + "please " * 300, session_id="s")
    result = await compacted(runner)
    assert (result.status, result.strategy) == ("done", "Tiered: AllBut")
    assert {"FACT-000003", "FACT-000004"} <= set(FACT.findall(result.summary))


def by_turns(*summaries: Any) -> Any:
    """Answers each request for a summary by the next of these: a text, a function, or an error."""
    left = list(summaries)

    def summary(request: ModelRequest) -> Any:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    return summary


LONG = "FACT-000001 was said, and all is well with please so. " * 134


@pytest.mark.parametrize(
    ("summaries", "target", "tier", "statuses"),
    [
        ([every_fact], 0.18, 2, ["done"]),
        ([BadAnswerError("down"), every_fact], 0.18, 3, ["failed", "done"]),
        ([BadAnswerError("down"), BadAnswerError("down")], 0.18, 4, ["failed", "failed", "done"]),
        ([BadAnswerError("down"), every_fact], 0.17, 4, ["failed", "ineffective", "done"]),
        ([LONG], 0.15, 4, ["ineffective", "done"]),
    ],
    ids=["all", "half", "plain", "plain-since-half-is-too-much", "plain-since-all-is-too-long"],
)
async def test_tiers_have_the_numbers_of_what_was_done(
    summaries: list[Any], target: float, tier: int, statuses: list[str], tmp_path: Path
) -> None:
    model = ScriptedModel(
        [f"answer {number}" for number in range(12)], window=16_000, summary=by_turns(*summaries)
    )
    told: list[CompactionResult] = []

    class Told(Callbacks):
        def after_compaction(self, result: CompactionResult) -> None:
            told.append(result)

    policy = Compaction(micro=None, trigger=None, strategy=Tiered(target=target))
    runner = Runner(Agent(model, compaction=policy), transcripts=tmp_path, callbacks=[Told()])
    for number in range(12):
        await runner.run(f"FACT-{number:06x} " + "please " * 300, session_id="s")
    result = await compacted(runner)
    assert (result.status, result.tier) == ("done", tier)
    assert [each.status for each in told] == statuses
    assert [each.tier for each in told if each.status != "done"] == [0] * (len(told) - 1)
    assert [(done.tier, done.made) for done in await compactions(runner)] == [
        (tier, "digest" if tier == 4 else "summary")
    ]


async def test_each_tier_begins_with_the_context_as_it_was(tmp_path: Path) -> None:
    model = ScriptedModel([*reading(3), "done", *["more"] * 9], window=16_000, summary=every_fact)
    runner = runner_for(model, tmp_path, Tiered(target=0.1))
    await runner.run("Read", session_id="s")
    for _ in range(4):
        await runner.run("And? " + "please " * 300, session_id="s")
    result = await compacted(runner)
    assert (result.status, result.strategy, result.tier) == ("done", "Tiered: InChunks", 2)
    assert result.shortened == ()
    assert "... [truncated" not in texts(asked(model, "summary")[0])[-1]


async def test_reduce_drops_the_middle_where_no_summary_can_be_had(tmp_path: Path) -> None:
    model = ScriptedModel(
        [f"answer {number}" for number in range(9)], window=16_000, summary=BadAnswerError("down")
    )
    runner = runner_for(model, tmp_path, Reduce(target=0.01))
    for number in range(6):
        await runner.run(f"FACT-{number:06x} " + "please " * 300, session_id="s")
    result = await compacted(runner)
    assert (result.status, result.strategy) == ("done", "Reduce: DropMiddle")
    assert "6 earlier messages" in result.summary
    await runner.run("next", session_id="s")
    facts = set(FACT.findall(json.dumps(asked(model)[-1].messages)))
    assert facts == {"FACT-000000", "FACT-000004", "FACT-000005"}


async def test_results_show_their_last_lines(tmp_path: Path) -> None:
    script: list[Any] = [calls(log={"name": "build"}), "done", "more"]
    model = ScriptedModel(script, window=16_000)
    runner = runner_for(model, tmp_path, Reduce(tool_output_max_lines=3, target=0.9))
    await runner.run("Build", session_id="s")
    result = await compacted(runner)
    assert (result.status, result.strategy) == ("done", "Reduce: ResultTails")
    await runner.run("next", session_id="s")
    (shown,) = [str(m["content"]) for m in asked(model)[-1].messages if m["role"] == "tool"]
    assert shown == (
        "[397 earlier lines left out; call the tool again for the whole]\n"
        "build: entry 397\nbuild: entry 398\nbuild: entry 399"
    )


async def test_cleared_results_stay_readable_in_the_store(tmp_path: Path) -> None:
    model = ScriptedModel([*reading(3), "more", "again"], window=16_000)
    runner = runner_for(model, tmp_path, ClearResults(keep_tokens=500, least_tokens=100))
    await runner.run("Read", session_id="s")
    assert (await compacted(runner)).status == "done"
    await runner.run("next", session_id="s")
    shown = [str(m["content"]) for m in asked(model)[-1].messages if m["role"] == "tool"]
    assert [text == "[Old tool result content cleared]" for text in shown] == [True, True, False]
    events = [record.event for record in await runner.store.read("s")]
    whole = [event.message.text for event in events if isinstance(event, MessageRecord)]
    assert sum(len(text) > 1_000 for text in whole) == 3
    assert (await compactions(runner))[0].time > 0
    await runner.undo("s")
    await runner.run("and now", session_id="s")
    assert "content cleared" not in json.dumps(asked(model)[-1].messages)


async def test_what_recursive_summary_falls_back_on(tmp_path: Path) -> None:
    model = ScriptedModel(["a", "b", "c", "d"], window=16_000, summary=BadAnswerError("down"))
    runner = runner_for(model, tmp_path, RecursiveSummary(2, 0, on_failure=Digest()))
    for number in range(4):
        await runner.run(f"FACT-{number:06x} " + "please " * 300, session_id="s")
    result = await compacted(runner)
    assert result.status == "done"
    assert {"FACT-000001", "FACT-000002"} <= set(FACT.findall(result.summary))
