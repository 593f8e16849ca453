"""What a server that fails for now gets asked again, after how long, and what becomes of what it had said."""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import stream
from agentloop.compaction import Compaction
from agentloop.errors import ModelRefusedError, ModelUnavailableError
from agentloop.events import Compacted, MessageRecord
from agentloop.messages import Message
from agentloop.models import ModelRequest, RetryPolicy, come_back
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stream import CompactionResult, Retrying, StreamEvent, TextDelta
from agentloop.testing import ScriptedModel
from tests.cli_kit import Finished, agentloop
from tests.kit import watched
from tests.server_kit import chat, error_of, parts_of
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Drop, Fault, Hang, Raw, Reply, asks_for_summary, calling, events

NOW = 1_800_000_000.25
"""The time of day, in seconds since the epoch."""
BUSY = {"error": {"message": "busy"}}
AT = re.compile(r" at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d)$")


class Clock:
    """Time that passes when it is waited for, and when a test says so; it remembers the waits."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def policy(self, *chances: float, **numbers: Any) -> RetryPolicy:
        """A policy by this clock; the chances are drawn in order, over and over."""
        drawn = itertools.cycle(chances or (0.0,))
        return RetryPolicy(
            sleep=self.sleep, clock=self, now=lambda: NOW, chance=lambda: next(drawn), **numbers
        )


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_waits_double_and_chance_comes_on_top(clock: Clock) -> None:
    retry = clock.policy(0.0, 0.5, 0.25, 1.0, attempts=7, longest_wait_seconds=4, jitter_seconds=0.4)
    with StrictProvider(lambda _: Fault(status=503, body=BUSY)) as server:
        await error_of(chat(server, retry=retry))
    assert clock.waits == pytest.approx([0.5, 1.2, 2.1, 4.4, 4.0, 4.2])
    assert len(server.requests) == 7


async def test_a_fleet_comes_back_one_by_one_and_nobody_too_early(clock: Clock) -> None:
    with StrictProvider(lambda _: Fault(status=429, headers={"retry-after": "20"})) as server:
        await error_of(chat(server, retry=clock.policy(0.0, 0.5, 0.9, 0.1)))
    assert clock.waits == pytest.approx([20.0, 20.25, 20.45, 20.05])


async def test_all_tries_together_have_a_time_limit(clock: Clock) -> None:
    def slow(_: Body) -> Fault:
        clock.now += 250
        return Fault(status=503, body=BUSY)

    with StrictProvider(slow) as server:
        error = await error_of(chat(server, retry=clock.policy()))
    assert isinstance(error, ModelUnavailableError)
    assert clock.waits == [0.5, 1.0], "the third try ended 751.5 seconds after the first began"
    assert len(server.requests) == 3


@pytest.mark.parametrize(("asked", "tries"), [(29, 2), (30, 1)])
async def test_a_wait_counts_before_it_is_begun(clock: Clock, asked: int, tries: int) -> None:
    with StrictProvider([Fault(status=503, headers={"retry-after": str(asked)}), "ok"]) as server:
        model = chat(server, retry=clock.policy(longest_total_seconds=30))
        await (parts_of(model) if tries == 2 else error_of(model))
    assert len(server.requests) == tries
    assert len(clock.waits) == tries - 1


async def test_without_a_time_limit_only_the_tries_count(clock: Clock) -> None:
    def slow(_: Body) -> Fault:
        clock.now += 10_000
        return Fault(status=503, body=BUSY)

    with StrictProvider(slow) as server:
        await error_of(chat(server, retry=clock.policy(longest_total_seconds=float("inf"))))
    assert len(server.requests) == 5


def in_two_hours() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=7_499), usegmt=True)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    "headers",
    [
        lambda: {"retry-after": "7499.5"},
        lambda: {"retry-after-ms": "7499500", "retry-after": "1"},
        lambda: {"retry-after": in_two_hours()},
    ],
    ids=["seconds", "milliseconds", "date"],
)
async def test_l17_a_wait_too_long_fails_at_once_and_says_when_to_come_back(
    clock: Clock, status: int, headers: Callable[[], dict[str, str]]
) -> None:
    with StrictProvider([Fault(status=status, body=BUSY, headers=headers())]) as server:
        error = await error_of(chat(server, retry=clock.policy()))
    assert isinstance(error, ModelUnavailableError)
    assert error.retry_after_seconds == pytest.approx(7_499, abs=20)
    assert (clock.waits, len(server.requests)) == ([], 1)
    assert "busy" in str(error)
    assert re.search(r"come back in 2 h [45] min at ", str(error)), str(error)
    (at,) = AT.findall(str(error))
    assert datetime.fromisoformat(at).timestamp() == ceil(NOW + error.retry_after_seconds)


async def test_the_last_of_all_tries_says_so_too(clock: Clock) -> None:
    with StrictProvider(lambda _: Fault(status=429, body=BUSY, headers={"retry-after": "2"})) as server:
        error = await error_of(chat(server, retry=clock.policy(attempts=2)))
    assert "come back in 2 s at 20" in str(error)
    assert str(error).count("come back") == 1


@pytest.mark.parametrize("seconds", ["9" * 400, str(400 * 86_400)])
async def test_a_wait_beyond_all_calendars_is_told(clock: Clock, seconds: str) -> None:
    with StrictProvider([Fault(status=429, headers={"retry-after": seconds})]) as server:
        error = await error_of(chat(server, retry=clock.policy()))
    assert str(error).endswith("come back in more than a year")


async def test_a_bare_500_that_says_when_to_come_back_is_no_overflow(clock: Clock) -> None:
    with StrictProvider([Fault(status=500, body="", headers={"retry-after": "90"})]) as server:
        long = ModelRequest(messages=({"role": "user", "content": "word " * 9_000},))
        with pytest.raises(ModelUnavailableError, match="come back in 1 min 30 s at "):
            await anext(chat(server, retry=clock.policy()).stream(long))


@given(st.floats(0.001, 366 * 86_400), st.floats(0, 4e9))
def test_what_is_told_is_never_too_early(seconds: float, now: float) -> None:
    told = come_back(seconds, now)
    (at,) = AT.findall(told)
    units = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
    amounts = re.findall(r"(\d+) (d|h|min|s)\b", told.partition(" at ")[0])
    in_words = sum(int(amount) * units[unit] for amount, unit in amounts)
    assert seconds <= in_words <= seconds * 1.05 + 1
    assert 0 <= datetime.fromisoformat(at).timestamp() - (now + seconds) < 1.001


UNPAID = {
    "message": "You exceeded your current quota",
    "type": "insufficient_quota",
    "code": "insufficient_quota",
}


@pytest.mark.parametrize(
    "reply",
    [
        Fault(status=429, body={"error": UNPAID}, headers={"retry-after": "1"}),
        Fault(status=429, body={"error": {"message": "Account inactive", "code": "billing_not_active"}}),
        events({"choices": [{"delta": {"content": "We"}}]}, {"error": UNPAID}),
    ],
    ids=["quota", "inactive", "in a stream"],
)
async def test_a_bill_that_is_not_paid_is_no_reason_to_wait(clock: Clock, reply: Answered) -> None:
    with StrictProvider([reply]) as server:
        error = await error_of(chat(server, retry=clock.policy()))
    assert isinstance(error, ModelRefusedError)
    assert error.status == 429
    assert "check the plan, its credit" in str(error)
    assert (clock.waits, len(server.requests)) == ([], 1)


SAID = Reply(text="the first words that are lost", calls=(calling("look", "call_lost", at="a lost place"),))
AGAIN = Reply(text="said again", calls=(calling("look", "call_kept", at="here"),))
BEGUN = [json.loads(piece) for piece in ('{"content": "the first"}', '{"content": " words"}')]
HALF_A_CALL = {"index": 0, "id": "call_lost", "function": {"name": "look", "arguments": '{"at": "a lost'}}


def chunk(**delta: Any) -> Body:
    return {"choices": [{"index": 0, "delta": delta}]}


def then_an_error(*deltas: Body, **error: Any) -> Raw:
    return events(*(chunk(**delta) for delta in deltas), {"error": {"message": "gone"} | error}, done=False)


BREAKS: dict[str, Answered] = {
    "dropped in the text": Drop(reply=SAID, events=2),
    "dropped in a call": Drop(reply=SAID, events=6),
    "reset in the text": Drop(reply=SAID, events=2, reset=True),
    "reset in a call": Drop(reply=SAID, events=6, reset=True),
    "reset before all": Drop(reset=True),
    "an error event": then_an_error(*BEGUN, code=500),
    "overloaded in a call": then_an_error(*BEGUN, {"tool_calls": [HALF_A_CALL]}, type="overloaded_error"),
    "rate limited": then_an_error(*BEGUN, code="rate_limit_exceeded"),
    "ended in order, too soon": events(*(chunk(**delta) for delta in BEGUN), done=False),
    "500": Fault(status=500, body=BUSY),
}


@pytest.mark.parametrize("broken", BREAKS)
async def test_a_retry_doubles_neither_text_nor_calls(clock: Clock, tmp_path: Path, broken: str) -> None:
    looked = []

    def look(at: str) -> str:
        """Look."""
        looked.append(at)
        return f"seen {at}"

    half = BREAKS[broken]
    with StrictProvider([half, AGAIN, half, half, "all done"]) as server:
        agent = Agent(chat(server, retry=clock.policy(), window="32k"), tools=[look])
        runner = Runner(agent, transcripts=tmp_path, store=store_in(tmp_path))
        seen = await watched(runner, "Look around.")
        await runner.close()
        assert server.refusals == []
    said = await stored(tmp_path)
    assert looked == ["here"]
    assert [message.text for message in said] == ["Look around.", "said again", "seen here", "all done"]
    assert [call.id for message in said for call in message.tool_calls] == ["call_kept"]
    assert shown(seen) == [("said again", 1), ("all done", 2)]
    assert "lost" not in json.dumps(server.bodies)
    assert len(server.requests) == 5


def store_in(folder: Path) -> str:
    return f"sqlite:///{folder}/s.db"


async def stored(folder: Path) -> list[Message]:
    """What is on disc, read by somebody else."""
    runner = Runner(Agent(ScriptedModel([])), store=store_in(folder))
    records = await runner.store.read("s")
    await runner.close()
    return [record.event.message for record in records if isinstance(record.event, MessageRecord)]


def shown(seen: Sequence[StreamEvent]) -> list[tuple[str, int]]:
    """The text of each answer as a reader has it who drops what `Retrying` makes void, and the retries."""
    answers, text, retries = [], "", 0
    for event in seen:
        match event:
            case TextDelta():
                text += event.text
            case Retrying():
                text, retries = "", retries + 1
            case stream.MessageAdded() if event.message.role == "assistant":
                answers.append((text, retries))
                text, retries = "", 0
    return answers


def second_try(tmp_path: Path, shape: str) -> Finished:
    """A call in which the first answer breaks off and the second is whole."""
    broken = Drop(reply=Reply(text="words that are lost " * 99), events=99)
    with StrictProvider([broken, "whole"]) as server:
        where = ("--base-url", server.url, "--window", "32k")
        done = agentloop("-p", "hello", *where, "--output-format", shape, cwd=tmp_path)
    assert done.status == 0
    assert "again in" in done.err
    return done


@pytest.mark.deep
def test_the_command_line_prints_the_second_try_alone(tmp_path: Path) -> None:
    assert second_try(tmp_path, "text").out == "whole\n"


@pytest.mark.deep
def test_the_last_line_of_json_holds_the_second_try_alone(tmp_path: Path) -> None:
    assert second_try(tmp_path, "json").events[-1]["output"] == "whole"


@pytest.mark.deep
def test_a_stream_of_json_says_that_the_first_try_is_void(tmp_path: Path) -> None:
    done = second_try(tmp_path, "stream-json")
    assert done.events[-1]["output"] == "whole"
    told = [event for event in done.events if event["type"] in ("text_delta", "retrying")]
    assert [kind for kind, _ in itertools.groupby(event["type"] for event in told)] == [
        "text_delta",
        "retrying",
        "text_delta",
    ]
    at = [event["type"] for event in told].index("retrying")
    assert "".join(event["text"] for event in told[at + 1 :]) == "whole"


def test_the_command_line_says_when_to_come_back(tmp_path: Path) -> None:
    limit = Fault(status=429, body={"error": {"message": "daily limit"}}, headers={"retry-after": "7500"})
    with StrictProvider([limit]) as server:
        done = agentloop("-p", "hello", "--base-url", server.url, "--window", "32k", cwd=tmp_path)
    assert done.status == 75
    assert re.search(r"daily limit; come back in 2 h 5 min at \d{4}-", done.complaint())
    assert done.out == ""
    assert len(server.requests) == 1


SUMMARY_BREAKS: dict[str, tuple[Answered, int]] = {
    "500": (Fault(status=500, body={"error": {"message": "KAPUTT"}}), 3),
    "429": (Fault(status=429, body={"error": {"message": "KAPUTT"}}, headers={"retry-after": "3600"}), 1),
    "401": (Fault(status=401, body={"error": {"message": "KAPUTT"}}), 1),
    "dropped": (Drop(reply=Reply(text="KAPUTT " * 50), events=9), 3),
    "reset": (Drop(reply=Reply(text="KAPUTT " * 50), events=9, reset=True), 3),
    "silent": (Hang(), 1),
}
SUMMARY_SECONDS = 60


def let_pass(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Put the clock of this event loop forward, and with it all time limits."""
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]


@pytest.mark.deep
@pytest.mark.parametrize("broken", SUMMARY_BREAKS)
async def test_while_the_summariser_breaks_nothing_changes_and_later_it_is_asked_again(
    clock: Clock, tmp_path: Path, broken: str
) -> None:
    fault, tries = SUMMARY_BREAKS[broken]
    asked: list[str] = []
    ill = True
    loop = asyncio.get_running_loop()

    def brain(body: Body) -> Answered:
        if not asks_for_summary(body):
            return Reply(text="answered")
        asked.append("ill" if ill else "well")
        if ill and isinstance(fault, Hang):
            loop.call_soon_threadsafe(let_pass, loop, SUMMARY_SECONDS)
        return fault if ill else Reply(text="They said FACT-abcdef and went on from word to word.")

    with StrictProvider(brain, window=8_000) as server:
        model = chat(server, retry=clock.policy(attempts=3), window=8_000, max_output_tokens=500)
        policy = Compaction(micro=None, summary_seconds=SUMMARY_SECONDS)
        runner = Runner(Agent(model, compaction=policy), transcripts=tmp_path, store=store_in(tmp_path))
        turns = [f"request {number} " + "word " * 700 for number in range(40)]
        failed, taken = await until_compacted(runner, turns)
        assert (failed.status, len(asked)) == ("failed", tries)
        records = await runner.store.read("s")
        assert not any(isinstance(record.event, Compacted) for record in records)
        said = [text for turn in turns[:taken] for text in (turn, "answered")]
        assert [message.text for message in await stored(tmp_path)] == said
        ill = False
        done, _ = await until_compacted(runner, turns[taken:])
        await runner.close()
        assert done.status == "done"
        assert set(asked[tries:]) == {"well"}
        assert server.refusals == []
    assert "FACT-abcdef" in json.dumps(server.bodies[-1])
    assert "KAPUTT" not in json.dumps(server.bodies)


async def until_compacted(runner: Runner, turns: list[str]) -> tuple[CompactionResult, int]:
    """The first compaction in these turns, and how many turns that took; each turn is answered."""
    for taken, turn in enumerate(turns, 1):
        result = await runner.run(turn, session_id="s")
        assert result.output == "answered"
        if result.compactions:
            return result.compactions[0], taken
    raise AssertionError("nothing was compacted")
