"""The three layers, through the runner: what the model was sent, what is in the log, what is on disc."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.compaction import Compaction
from agentloop.compaction.plan import Occasion, longest_record, longest_summary, strategy_plan
from agentloop.context import Budget, Context, count_request, counter_for
from agentloop.errors import (
    ContextOverflowError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    StoreError,
)
from agentloop.events import (
    Cleared,
    Compacted,
    EventFilter,
    MessageRecord,
    ModelCalled,
    NotCompacted,
    Record,
)
from agentloop.messages import Message, ToolCall
from agentloop.models import Answer, ModelRequest
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.sessions import Session
from agentloop.stores import InMemoryStore
from agentloop.strategies import Digest, KeepRecentFraction, MicroCompact, replaced_by
from agentloop.stream import (
    CompactionEnded,
    CompactionStarted,
    ContextWarning,
    ResultsCleared,
    RunEnded,
    event_type,
    level_of,
)
from agentloop.testing import FailingModel, ScriptedModel, calls, context_of
from agentloop.triggers import Fired, WindowFraction
from tests.benchmarks.conversation import run_on
from tests.kit import FACT, assert_valid, every_fact, lines, read, reading, watched

WINDOW = 8_000


def runner_for(model: Any, tmp_path: Path, **options: Any) -> Runner:
    policy = options.pop("compaction", Compaction())
    agent = Agent(model, tools=[read], instructions="Be brief.", compaction=policy)
    return Runner(agent, transcripts=tmp_path / "transcripts", **options)


def sizes(model: ScriptedModel) -> list[int]:
    counter = counter_for(model.name)
    return [count_request(request, counter) for request in model.requests]


def seen(model: ScriptedModel) -> str:
    """Everything of the newest request of the agent, as text."""
    return json.dumps([r.messages for r in model.requests if r.purpose == "agent"][-1])


async def test_one_long_run_crosses_the_line_many_times(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40, 2), window=WINDOW, summary=every_fact)
    runner = runner_for(model, tmp_path)
    events = await watched(runner, "Read it all. FACT-abc123")
    assert_valid(model.requests)
    assert max(sizes(model)) <= WINDOW
    assert isinstance(events[-1], RunEnded)
    assert events[-1].output == "all read"
    ended = [event for event in events if isinstance(event, CompactionEnded)]
    assert len(ended) >= 3
    assert {event.status for event in ended} == {"done"}
    names = [
        call.arguments
        for record in await runner.store.read("s")
        if isinstance(record.event, MessageRecord)
        for call in record.event.message.tool_calls
    ]
    assert len(names) == len(set(names)) == 80


async def test_l4_nothing_that_a_summary_kept_is_lost_over_many_compactions(tmp_path: Path) -> None:
    model = ScriptedModel(reading(30), window=WINDOW, summary=every_fact)
    policy = Compaction(micro=None)
    runner = runner_for(model, tmp_path, compaction=policy)
    await runner.run("Read it all. FACT-abc123", session_id="s")
    said = {fact for message in await history(runner) for fact in FACT.findall(message.text)}
    assert said == set(FACT.findall(seen(model)))


async def talk(runner: Runner, *prompts: str) -> None:
    """Say these one after the other."""
    for prompt in prompts:
        await runner.run(prompt, session_id="s")


async def history(runner: Runner) -> list[Message]:
    records = await runner.store.read("s")
    return [record.event.message for record in records if isinstance(record.event, MessageRecord)]


async def test_l5_the_transcript_is_the_whole_history_before_each_compaction(tmp_path: Path) -> None:
    model = ScriptedModel(reading(30), window=WINDOW)
    runner = runner_for(model, tmp_path, compaction=Compaction(micro=None))
    result = await runner.run("Read it all.", session_id="s")
    records = await runner.store.read("s")
    done = [record for record in records if isinstance(record.event, Compacted)]
    assert len(done) == len(result.compactions) > 0
    for record in done:
        assert isinstance(record.event, Compacted)
        before = [
            other.event.message.to_openai()
            for other in records[: record.seq - 1]
            if isinstance(other.event, MessageRecord)
        ]
        path = tmp_path / "transcripts" / str(record.event.transcript)
        saved = [json.loads(line) for line in path.read_text().splitlines()]
        assert saved[: len(before)] == before
        assert path.stat().st_mode & 0o777 == 0o600
        first, last = done[0].event.covers[0][0], record.event.covers[-1][1]
        header = f"[Conversation compressed. Transcript: {path.name}] positions {first}–"
        assert record.event.replacement.partition("\n")[0].endswith(f"–{last}")
        assert record.event.replacement.startswith(header)


async def test_clearing_shows_old_results_shortened_and_leaves_the_log_whole(tmp_path: Path) -> None:
    model = ScriptedModel(reading(8), window=WINDOW)
    policy = Compaction(micro=MicroCompact(keep_messages=4, min_gain_tokens=0), trigger=None)
    runner = runner_for(model, tmp_path, compaction=policy)
    events = await watched(runner, "Read")
    results = [m for m in model.requests[-1].messages if m["role"] == "tool"]
    cleared = [m for m in results if "... [truncated" in str(m["content"])]
    assert len(cleared) == len(results) - 2
    whole = lines("file_0_0")
    shown, _, told = str(cleared[0]["content"]).partition("... [truncated")
    assert whole.startswith(shown)
    assert set(FACT.findall(shown + told)) == set(FACT.findall(whole))
    assert (await history(runner))[2].text == whole
    assert sum(isinstance(event, ResultsCleared) for event in events) >= 5


async def test_l12_requests_grow_at_their_end_between_two_rewrites(tmp_path: Path) -> None:
    model = ScriptedModel(reading(80, words=120), window=16_000)
    runner = runner_for(model, tmp_path)
    await runner.run("Read", session_id="s")
    records = await runner.store.read("s")
    rewrites = sum(isinstance(record.event, Cleared | Compacted) for record in records)
    asked = [request.messages for request in model.requests if request.purpose == "agent"]
    broken = sum(after[: len(before)] != before for before, after in pairwise(asked))
    assert broken <= rewrites
    added = sum(record.event.tokens for record in records if isinstance(record.event, MessageRecord))
    assert rewrites <= added / (16_000 / 4) + 1


async def test_what_was_cleared_never_changes_again(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40, words=200), window=16_000)
    await runner_for(model, tmp_path, compaction=Compaction(trigger=None)).run("Read", session_id="s")
    shown: dict[str, list[str]] = {}
    for request in model.requests:
        for message in request.messages:
            if message["role"] == "tool":
                versions = shown.setdefault(str(message["tool_call_id"]), [])
                if message["content"] not in versions:
                    versions.append(str(message["content"]))
    assert max(len(versions) for versions in shown.values()) == 2


@pytest.mark.parametrize("place", range(3))
async def test_a_batch_on_the_border_is_wholly_kept_or_wholly_folded(tmp_path: Path, place: int) -> None:
    inputs: list[str] = []

    def summary(request: ModelRequest) -> str:
        inputs.append(str(request.messages[-1]["content"]))
        return every_fact(request)

    script = [*reading(place + 1)[:-1], *reading(9, 3, 150)]
    model = ScriptedModel(script, window=WINDOW, summary=summary)
    await runner_for(model, tmp_path, compaction=Compaction(micro=None)).run("Read", session_id="s")
    assert_valid(model.requests)
    for text in inputs:
        for batch in set(re.findall(r"file_(\d)_\d 150", text)):
            asked = len(
                re.findall(rf'Assistant calls read: {{"name": "file_{batch}_\d", "words": 150}}', text)
            )
            answered = len(re.findall(rf"Tool result of read: FACT-\w+ file_{batch}_\d word", text))
            assert asked == answered == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "x" * 300_000,
        "Error: something went wrong",
        [ToolCall(id="1", name="read", arguments="{}")],
        Answer(message=Message.assistant("Half a"), finish="length"),
    ],
    ids=["empty", "blank", "larger", "error", "call", "cut"],
)
async def test_l6_what_is_no_summary_is_refused_and_changes_nothing(tmp_path: Path, text: Any) -> None:
    model = ScriptedModel(["one", "two", "three"], window=100_000, summary=text)
    runner = runner_for(model, tmp_path)
    await talk(runner, "a", "b " * 600, "c")
    before = await runner.store.read("s")
    result = await runner.compact("s")
    assert result is not None
    assert result.status == "failed"
    *records, noted = await runner.store.read("s")
    assert tuple(records[: len(before)]) == tuple(before)
    assert {type(record.event) for record in records[len(before) :]} <= {ModelCalled}
    assert isinstance(noted.event, NotCompacted)
    assert (noted.event.status, noted.event.id) == ("failed", result.compaction_id)
    assert Context.of([*records, noted]).visible == Context.of(before).visible
    asked = sum(request.purpose == "summary" for request in model.requests)
    assert asked == 2


async def test_an_earlier_summary_said_again_is_refused(tmp_path: Path) -> None:
    model = ScriptedModel(
        ["one", "two", "three", "four", "five"], window=100_000, summary="What was done so far."
    )
    runner = runner_for(model, tmp_path)
    await talk(runner, "a", "b " * 600, "c")
    first = await runner.compact("s")
    await talk(runner, "d " * 600, "e")
    second = await runner.compact("s")
    assert first is not None
    assert second is not None
    assert (first.status, second.status) == ("done", "failed")
    assert "repeats" in str(second.error)


@pytest.mark.deep
async def test_a_summariser_that_repeats_its_input_is_capped_and_never_nests(tmp_path: Path) -> None:
    def echo(request: ModelRequest) -> str:
        return str(request.messages[-1]["content"])[:9_000] + "\nOne more line."

    model = ScriptedModel(reading(60), window=WINDOW, summary=echo)
    runner = runner_for(model, tmp_path, compaction=Compaction(micro=None))
    await runner.run("Read", session_id="s")
    assert_valid(model.requests)
    assert max(sizes(model)) <= WINDOW
    done = [r.event for r in await runner.store.read("s") if isinstance(r.event, Compacted)]
    assert done
    for event in done:
        assert event.tokens <= 0.25 * WINDOW + 200
        assert event.replacement.count("[Conversation compressed") == 1


@pytest.mark.deep
async def test_while_the_summary_fails_the_run_goes_on_and_tries_again_later(tmp_path: Path) -> None:
    refused = ModelRefusedError("401: the key is wrong", status=401)
    replies: list[Any] = [refused, refused, refused]

    def summary(request: ModelRequest) -> Any:
        return replies.pop(0) if replies else every_fact(request)

    model = ScriptedModel([*reading(40), *reading(20)], window=WINDOW, summary=summary)
    runner = runner_for(model, tmp_path)
    events = await watched(runner, "Read")
    events += await watched(runner, "Again")
    ended = [event for event in events if isinstance(event, CompactionEnded)]
    assert [event.status for event in ended].count("failed") == 3
    assert ended[-1].status == "done"
    assert_valid(model.requests)
    assert max(sizes(model)) <= WINDOW
    assert "the key is wrong" not in "".join(str(request.messages) for request in model.requests)


@pytest.mark.deep
async def test_l10_a_summariser_that_never_works_is_not_asked_every_step(tmp_path: Path) -> None:
    model = ScriptedModel(reading(100), window=WINDOW, summary="")
    runner = runner_for(model, tmp_path)
    result = await runner.run("Read", session_id="s")
    assert result.status == "answered"
    asked = [request.purpose for request in model.requests]
    assert asked.count("summary") <= 10 + asked.count("agent") // 5
    assert max(sizes(model)) <= WINDOW
    assert_valid(model.requests)


async def test_l10_a_fixed_part_above_the_trigger_causes_no_compaction_per_turn(tmp_path: Path) -> None:
    model = ScriptedModel([f"answer {turn}" for turn in range(30)], window=WINDOW)
    agent = Agent(model, instructions="rule " * 6_000)
    runner = Runner(agent, transcripts=tmp_path)
    for turn in range(30):
        await runner.run(f"question {turn}", session_id="s")
    asked = [request.purpose for request in model.requests]
    assert asked.count("summary") <= 4


async def test_a_fixed_part_larger_than_the_window_is_named_and_nothing_is_sent(tmp_path: Path) -> None:
    model = ScriptedModel([], window=WINDOW)
    runner = Runner(Agent(model, instructions="rule " * 9_000), transcripts=tmp_path)
    with pytest.raises(ContextOverflowError, match="instructions and tool schemas take"):
        await runner.run("hello", session_id="s")
    assert model.requests == []
    assert await runner.store.read("s") == ()


async def test_a_prompt_larger_than_the_window_is_refused_and_the_session_stays_usable(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["one", "two"], window=WINDOW)
    runner = runner_for(model, tmp_path)
    await runner.run("first", session_id="s")
    before = await runner.store.read("s")
    with pytest.raises(ContextOverflowError, match="the prompt has"):
        await runner.run("word " * 20_000, session_id="s")
    assert await runner.store.read("s") == before
    assert (await runner.run("second", session_id="s")).output == "two"


class Smaller(ScriptedModel):
    """A server whose window is smaller than it says, and that may name it when it refuses."""

    def __init__(self, answers: list[Any], *, real: int, names: bool) -> None:
        super().__init__(answers, summary=every_fact)
        self.real, self.names, self.refused = real, names, 0

    async def stream(self, request: ModelRequest, /) -> Any:
        tokens = int(count_request(request, counter_for(self.name)) * 1.2)
        if tokens > self.real:
            self.refused += 1
            numbers = {"window": self.real, "tokens": tokens} if self.names else {}
            raise ContextTooLongError("too long", **numbers)
        async for part in super().stream(request):
            yield part


@pytest.mark.deep
@pytest.mark.parametrize("names", [True, False], ids=["named", "unnamed"])
async def test_an_overflow_is_learnt_from_and_the_request_tried_again(tmp_path: Path, names: bool) -> None:
    model = Smaller(reading(60, 2), real=20_000, names=names)
    runner = runner_for(model, tmp_path, compaction=Compaction(micro=None))
    events = await watched(runner, "Read")
    assert isinstance(events[-1], RunEnded)
    assert events[-1].status == "answered"
    reasons = [event.reason for event in events if isinstance(event, CompactionStarted)]
    assert "overflow" in reasons
    assert model.refused <= (2 if names else 8)
    assert_valid(model.requests)


async def test_l17_an_overflow_leads_to_at_most_two_smaller_tries(tmp_path: Path) -> None:
    model = FailingModel(ContextTooLongError("too long"))
    runner = Runner(Agent(model), transcripts=tmp_path)
    with pytest.raises(ContextOverflowError):
        await runner.run("hello", session_id="s")
    assert len([request for request in model.requests if request.purpose == "agent"]) <= 3


async def test_without_compaction_an_overflow_ends_the_run(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40), window=WINDOW)
    with pytest.raises(ContextOverflowError):
        await runner_for(model, tmp_path, compaction=None).run("Read", session_id="s")
    assert not any(request.purpose == "summary" for request in model.requests)


@pytest.mark.parametrize("place", range(3))
async def test_the_compact_tool_runs_after_its_batch(tmp_path: Path, place: int) -> None:
    batch = calls(("read", {"name": "x"}), ("read", {"name": "y"}))
    batch.insert(place, calls(("compact", {"focus": "the numbers"}))[0])
    inputs: list[str] = []

    def summary(request: ModelRequest) -> str:
        inputs.append(str(request.messages[-1]["content"]))
        return every_fact(request)

    model = ScriptedModel([*reading(4)[:-1], batch, "done"], window=WINDOW, summary=summary)
    runner = runner_for(model, tmp_path, compaction=Compaction(micro=None))
    events = await watched(runner, "Read")
    assert_valid(model.requests)
    last = model.requests[-1].messages
    results = {str(m["tool_call_id"]): str(m["content"]) for m in last if m["role"] == "tool"}
    assert all(call.id in results for call in batch)
    assert results[batch[place].id].startswith("Compacted: ")
    assert len(inputs) == 1
    assert "the numbers" in inputs[0]
    started = [event for event in events if isinstance(event, CompactionStarted)]
    assert [event.reason for event in started] == ["tool"]


async def test_two_wishes_in_one_batch_make_one_summary(tmp_path: Path) -> None:
    batch = calls(("compact", {}), ("compact", {"focus": "a"}))
    model = ScriptedModel([*reading(4)[:-1], batch, "done"], window=WINDOW)
    await runner_for(model, tmp_path).run("Read", session_id="s")
    assert [request.purpose for request in model.requests].count("summary") == 1
    assert_valid(model.requests)


async def test_a_wish_with_nothing_to_gain_or_at_each_turn_is_answered(tmp_path: Path) -> None:
    wishes = [calls(("compact", {})) for _ in range(12)]
    model = ScriptedModel([*wishes, "done"], window=4 * WINDOW)
    runner = runner_for(model, tmp_path)
    result = await runner.run("Read", session_id="s")
    assert result.output == "done"
    told = [message.text for message in result.messages if message.role == "tool"]
    assert all("it would save about" in text and "ask again later" in text for text in told)
    noted = await runner.events("s", only=EventFilter(kinds=[NotCompacted]))
    assert [getattr(record.event, "reason", "") for record in noted] == ["tool"] * len(told)
    assert [request.purpose for request in model.requests].count("summary") == 0
    model = ScriptedModel(
        [answer for batch in reading(12)[:-1] for answer in (batch, calls(("compact", {})))] + ["done"],
        window=WINDOW,
    )
    await runner_for(model, tmp_path).run("Read", session_id="t")
    asked = [request.purpose for request in model.requests]
    assert asked.count("summary") <= asked.count("agent") / 3


async def test_undo_gives_the_context_back_byte_for_byte(tmp_path: Path) -> None:
    model = ScriptedModel(["one", "two", "three", "four"], window=WINDOW)
    runner = runner_for(model, tmp_path)
    await talk(runner, "a", "b " * 600, "c")
    preview = await runner.preview("s")
    result = await runner.compact("s", focus="numbers")
    assert preview is not None
    assert result is not None
    assert (result.archived[0], result.archived[-1]) == (preview.first, preview.last)
    assert await runner.undo("s") == result.seq
    assert await runner.undo("s") is None
    await runner.run("d", session_id="s")
    agent = [request.messages for request in model.requests if request.purpose == "agent"]
    assert agent[-1][: len(agent[-2])] == agent[-2]


async def test_old_long_arguments_are_shortened_too_and_still_decode(tmp_path: Path) -> None:
    def write(path: str, content: str) -> str:
        """Write a file."""
        return "ok"

    script = [calls(("write", {"path": f"p{at}", "content": "text " * 1_500})) for at in range(20)]
    model = ScriptedModel([*script, "done"], window=16_000, usage=False)
    agent = Agent(model, tools=[write])
    await Runner(agent, transcripts=tmp_path).run("Write", session_id="s")
    assert_valid(model.requests)
    assert max(sizes(model)) <= 16_000
    shortened = [
        json.loads(call["function"]["arguments"])
        for message in model.requests[-1].messages
        for call in message.get("tool_calls", ())
        if "... [truncated" in call["function"]["arguments"]
    ]
    assert all(sorted(arguments) == ["content", "path"] for arguments in shortened)
    assert any("... [truncated" in str(request.messages) for request in model.requests)


async def test_a_batch_larger_than_the_window_is_shortened_until_it_fits(tmp_path: Path) -> None:
    model = ScriptedModel([*reading(3, 7, 9_000)], window=WINDOW)
    await runner_for(model, tmp_path).run("Read", session_id="s")
    assert max(sizes(model)) <= WINDOW
    assert_valid(model.requests)
    spilled = sorted((tmp_path / "transcripts").glob("result_*.txt"))
    assert len(spilled) == 21
    assert spilled[0].read_text().startswith("FACT-")
    assert str(spilled[0]) in str([request.messages for request in model.requests])


async def test_the_level_of_the_window_is_told_when_it_changes(tmp_path: Path) -> None:
    policy = Compaction(micro=None, trigger=WindowFraction(0.99))
    model = ScriptedModel(reading(40), window=WINDOW)
    events = await watched(runner_for(model, tmp_path, compaction=policy), "Read")
    warnings = [event for event in events if isinstance(event, ContextWarning)]
    for of in ("threshold", "window"):
        levels = [event.level for event in warnings if event.of == of]
        assert levels[0] == "warning"
        assert all(before != after for before, after in pairwise(levels))


async def test_with_the_default_policy_one_is_told_that_compaction_is_near(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40), window=WINDOW, summary=every_fact)
    runner = runner_for(model, tmp_path)
    events = await watched(runner, "Read", session_id="s")
    told = [event for event in events if isinstance(event, ContextWarning | CompactionStarted)]
    near = [event for event in told if isinstance(event, ContextWarning) and event.level != "none"]
    assert {event.of for event in near} == {"threshold"}
    for event in near:
        assert event.threshold is not None
        share = event.tokens / event.threshold
        assert (0.8 <= share <= 0.9) if event.level == "warning" else share > 0.9
    assert [event for event in told if isinstance(event, CompactionStarted)]
    status = await runner.status("s")
    assert status.threshold_level == level_of(status.tokens, status.threshold or 0)
    assert status.window_level == level_of(status.tokens, status.window) == "none"


async def test_a_compaction_survives_messages_that_others_add_meanwhile(tmp_path: Path) -> None:
    store = InMemoryStore()

    async def summary(request: ModelRequest) -> str:
        length = len(await store.read("s"))
        late = MessageRecord(message=Message.user("meanwhile"), tokens=5)
        await store.append("s", [late], expect=length)
        return every_fact(request)

    model = ScriptedModel(["one", "two", "three"], window=WINDOW, summary=summary)
    runner = runner_for(model, tmp_path, store=store)
    await talk(runner, "a", "b " * 600, "c")
    result = await runner.compact("s")
    assert result is not None
    assert result.status == "done"
    assert [request.purpose for request in model.requests].count("summary") == 1
    assert (await history(runner))[-1].text == "meanwhile"


async def test_a_compaction_that_lost_the_race_is_dropped_as_a_conflict(tmp_path: Path) -> None:
    store = InMemoryStore()

    async def summary(request: ModelRequest) -> str:
        other = ScriptedModel([], summary="shorter and other")
        await runner_for(other, tmp_path, store=store).compact("s")
        return "my own summary"

    model = ScriptedModel(["one", "two", "three"], window=WINDOW, summary=summary)
    runner = runner_for(model, tmp_path, store=store)
    await talk(runner, "a", "b " * 600, "c")
    result = await runner.compact("s")
    assert result is not None
    assert result.status == "conflict"
    records = [record.event for record in await store.read("s")]
    assert sum(isinstance(event, Compacted) for event in records) == 1
    assert sum(isinstance(event, ModelCalled) and event.purpose == "summary" for event in records) == 2


@pytest.mark.many(40)
@given(data=st.data())
async def test_l9_whatever_is_read_every_request_fits_and_is_valid(
    tmp_path: Path, data: st.DataObject
) -> None:
    batches = data.draw(st.lists(st.lists(st.integers(1, 4_000), min_size=1, max_size=5), max_size=15))
    script: list[Any] = [
        calls(*(("read", {"name": f"n{at}", "words": words}) for at, words in enumerate(batch)))
        for batch in batches
    ]
    window = data.draw(st.sampled_from([3_000, 8_000, 20_000]))
    micro = data.draw(st.sampled_from([None, MicroCompact(), MicroCompact(min_gain_tokens=0)]))
    model = ScriptedModel(
        [*script, "done"], window=window, summary=every_fact, usage=data.draw(st.booleans())
    )
    runner = runner_for(model, tmp_path, compaction=Compaction(micro=micro))
    events = await watched(runner, "Read it all. FACT-abc123")
    assert_valid(model.requests)
    assert max(sizes(model)) <= window
    kinds = [event_type(event) for event in events if isinstance(event, CompactionStarted | CompactionEnded)]
    assert kinds == ["compaction_started", "compaction_ended"] * (len(kinds) // 2)
    assert "FACT-abc123" in seen(model)


async def test_a_record_over_an_earlier_record_is_computed_from_the_log(tmp_path: Path) -> None:
    model = ScriptedModel([f"Part {turn} is done. " + "All of it reads well. " * 20 for turn in range(12)])
    runner = runner_for(model, tmp_path)
    for turn in range(12):
        if turn == 8:
            small = replaced_by(KeepRecentFraction(0.1), Digest(max_tokens=20))
            first = await runner.compact("s", strategy=small)
        await runner.run(f"The key of part {turn} is K{turn}71X, and it stays so.", session_id="s")
    second = await runner.compact("s", strategy=replaced_by(KeepRecentFraction(0.1), Digest()))
    assert first is not None
    assert second is not None
    assert "K371X" not in first.summary
    assert [turn for turn in range(1, 10) if f"K{turn}71X" not in second.summary] == []


@pytest.mark.parametrize("window", [300, 400])
async def test_l9_in_a_tiny_window_the_record_itself_gives_way(tmp_path: Path, window: int) -> None:
    script: list[Any] = [
        answer
        for turn in range(12)
        for answer in (calls(("read", {"name": f"n{turn}", "words": 60})), "It reads well. " * (turn % 6))
    ]
    model = ScriptedModel(
        [one or "Done." for one in script],
        window=window,
        max_output_tokens=window // 8,
        summary=ModelError("no summary is to be had"),
    )
    runner = runner_for(model, tmp_path, compaction=Compaction(tool=False))
    for turn in range(12):
        await runner.run(f"Never touch K{turn}71. Look at part {turn}.", session_id="s")
    assert_valid(model.requests)
    own = [size for size, one in zip(sizes(model), model.requests, strict=True) if one.purpose == "agent"]
    assert max(own) <= window


@pytest.mark.parametrize(
    ("window", "counts", "summary", "record"),
    [
        (3_000, 1.0, 750, 1_200),
        (8_000, 1.0, 2_000, 2_750),
        (8_000, 2.0, 1_000, 1_375),
        (20_000, 1.0, 5_000, 5_000),
    ],
)
def test_what_is_computed_may_take_a_larger_share_of_a_small_window(
    window: int, counts: float, summary: int, record: int
) -> None:
    """Both in our tokens, where the server counts so many times ours."""
    said = [
        Message.user("Look at it."),
        *(Message.assistant(f"Part {at}.") for at in range(2 * window // 100)),
    ]
    context = context_of(*said, tokens=100)
    budget = Budget(window=window, fixed=0, model="m", max_output_tokens=window // 8, least_ratio=counts)
    occasion = Occasion(reason="threshold", why="it is full")
    plan = strategy_plan(KeepRecentFraction(0.05), context, budget, occasion)
    assert plan is not None
    assert longest_summary(plan, 0.25) == summary
    assert longest_record(plan, 0.25) == record


def test_a_record_that_is_computed_again_keeps_its_room_beside_little_that_is_new() -> None:
    said = [Message.user("Look at it."), *(Message.assistant(f"Part {at}.") for at in range(4))]
    before = context_of(*said, tokens=100)
    compacted = Compacted(covers=((2, 3),), replacement="x", at=4, tokens=1_000, made="digest")
    context = before.add(Record(seq=before.length + 1, event=compacted))
    occasion = Occasion(reason="threshold", why="it is full")
    budget = Budget(window=4_000, fixed=0, model="m", max_output_tokens=500)
    plan = strategy_plan(KeepRecentFraction(0.05), context, budget, occasion)
    assert plan is not None
    assert (plan.tokens, plan.gain) == (1_100, 100)
    assert longest_record(plan, 0.25) == 1_080


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_kept_result_is_shortened_last_where_no_request_would_fit_else(
    keeps: bool, tmp_path: Path
) -> None:
    store = InMemoryStore()
    call = ToolCall(id="1", name="read", arguments="{}")
    told = MessageRecord(message=Message.tool("1", "word " * 9_000), tokens=9_000, keep=keeps)
    said = [Message.user("Read it."), Message.assistant(None, [call])]
    await store.append("s", [*(MessageRecord(message=each, tokens=20) for each in said), told], expect=0)
    model = ScriptedModel(["read"], window=WINDOW)
    result = await runner_for(model, tmp_path, store=store).resume("s")
    assert result.output == "read"
    assert max(sizes(model)) <= WINDOW
    assert result.compactions[-1].strategy == ("shorten kept" if keeps else "shorten")
    assert result.compactions[-1].shortened == (3,)


async def test_a_trigger_of_the_users_own_is_obeyed_however_small_the_request(tmp_path: Path) -> None:
    def every_five(context: Context, budget: Budget) -> Fired | None:
        return Fired(why="five in sight") if len(context.visible) > 5 else None

    model = ScriptedModel(["so " * 40 for _ in range(8)], window=4_000)
    runner = runner_for(model, tmp_path, compaction=Compaction(trigger=every_five))
    outcomes = []
    for turn in range(8):
        result = await runner.run("please " * 40 + str(turn), session_id="s")
        outcomes += [(each.status, each.why) for each in result.compactions]
    assert outcomes
    assert set(outcomes) == {("done", "five in sight")}


class Away(InMemoryStore):
    """A store that is away whenever a compaction is to be stored."""

    async def append(self, session_id: str, events: Any, **options: Any) -> int:
        events = list(events)
        if any(isinstance(event, Compacted | Cleared) for event in events):
            raise StoreError("the store is away")
        return int(await super().append(session_id, events, **options))


async def test_a_compaction_that_cannot_be_stored_is_the_stores_fault(tmp_path: Path) -> None:
    model = ScriptedModel(reading(40, 2), window=WINDOW, summary=every_fact)
    policy = Compaction(micro=None)
    with pytest.raises(StoreError, match="the store is away"):
        await runner_for(model, tmp_path, store=Away(), compaction=policy).run("Read it all.", session_id="s")
    assert max(sizes(model)) <= WINDOW


async def test_results_are_shown_shortened_where_a_record_would_gain_little_more() -> None:
    def look(at: str) -> str:
        """Look."""
        return f"Seen {at}. " + " ".join(f"part {number} of {at} is as it was" for number in range(60))

    asked = (calls(("look", {"at": f"src/part_{number}.py"})) for number in range(20))
    model = ScriptedModel([*asked, "done"], window=3_000, summary="Of src/part_0.py nothing is new.")
    result = await Runner(Agent(model, tools=[look]), transcripts=None).run("Look at all. Never push.")
    tiers = [done.tier for done in result.compactions]
    assert tiers.count(1) > tiers.count(2) + tiers.count(4) > 0
    assert "Never push." in str(model.requests[-1].messages)


async def test_a_fault_of_the_store_is_told_of_the_compaction_that_it_stopped_alone() -> None:
    keeper = run_on(Compaction(micro=None, strategy=KeepRecentFraction(), trigger=None), window=6_000).keeper
    occasion = Occasion(reason="threshold", why="it does not fit")
    full, huge = await Session.open("full", Away()), await Session.open("huge", InMemoryStore())
    said = [Message.user("Look at it."), *(Message.assistant(f"Part {at}.") for at in range(90))]
    full = await full.append(*(MessageRecord(message=message, tokens=100) for message in said))
    huge = await huge.append(MessageRecord(message=Message.user("Look at this."), tokens=9_000))
    with pytest.raises(StoreError, match="the store is away"):
        await keeper.escalate(full, keeper.budget, occasion)
    assert {str(each.store_fault) for each in keeper.outcomes} == {"the store is away"}
    with pytest.raises(ContextOverflowError):
        await keeper.escalate(huge, keeper.budget, occasion)
