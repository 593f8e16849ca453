"""What a summariser is asked, what it reads, and when its text is refused."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentloop.callbacks import Callbacks, Replace
from agentloop.compaction import Compaction
from agentloop.compaction.digest import digest
from agentloop.compaction.reading import BETWEEN_TOKENS, MAX_CHUNKS, reading_of
from agentloop.compaction.summary import summary_fault
from agentloop.context import Context, Labelled, count_request, counter_for, fitted
from agentloop.events import Cleared, MessageRecord, NotCompacted
from agentloop.messages import Message, ToolCall
from agentloop.models import ModelRequest
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.sessions import load
from agentloop.stores import InMemoryStore
from agentloop.strategies import Cut, MicroCompact
from agentloop.stream import AnyStreamEvent, CompactionEnded, CompactionRequest, CompactionStarted
from agentloop.testing import ScriptedModel
from tests.kit import COUNTER, FACT, added, assert_valid, context_of, every_fact, later, orderly, texts

STORY = [Message.user("begin"), Message.user("please " * 400), Message.assistant("An old answer of mine.")]


async def session_of(*messages: Message) -> InMemoryStore:
    store = InMemoryStore()
    await store.append("s", [added(message) for message in messages], expect=0)
    return store


def runner_on(store: InMemoryStore, model: Any, tmp_path: Path, **options: Any) -> Runner:
    agent = Agent(model, compaction=options.pop("compaction", Compaction()))
    return Runner(agent, store=store, transcripts=tmp_path, **options)


@pytest.mark.parametrize(
    "text",
    [
        "Internal Server Error",
        "502 Bad Gateway",
        "HTTP 500",
        "*** Error ***",
        '{"error": {"message": "x"}}',
        "ValueError: bad",
        "An unexpected error occurred",
        "Request timed out",
        "The server is overloaded",
        "I'm unable to help with that.",
        "Sorry, I cannot do that",
        "<!DOCTYPE html><html>503</html>",
        "ok",
        "{}",
        "None.",
        "An old answer of mine.",
    ],
)
def test_l6_what_stands_for_nothing_is_refused(text: str) -> None:
    context = context_of(STORY)
    assert summary_fault(text, "stop", context.visible[:2], context, COUNTER) is not None


@pytest.mark.parametrize(
    "text",
    [
        "FACT-1a2b3c",
        "Error handling was added.",
        "500 files were read.",
        "Errors seen: none.",
        "I read a.py.",
    ],
)
def test_what_tells_something_is_accepted(text: str) -> None:
    context = context_of(STORY)
    assert summary_fault(text, "stop", context.visible[:2], context, COUNTER) is None


def test_l6_an_old_message_is_known_again() -> None:
    text = "An old <summary> of mine."
    context = context_of([*STORY, Message.assistant(text)])
    assert summary_fault(text, "stop", context.visible[:2], context, COUNTER) == "it repeats an old message"


@given(st.lists(texts | texts.map(lambda text: text * 9), min_size=1, max_size=30), st.integers(200, 600))
def test_l4_what_was_said_is_whole_in_one_piece_as_long_as_it_fits(said: list[str], room: int) -> None:
    entries = context_of([Message.user(text) for text in said]).visible
    reading = reading_of(entries, room=room, counter=COUNTER)
    assert len(reading.chunks) <= MAX_CHUNKS
    assert all(COUNTER("\n\n".join(map(str, chunk))) <= room + 40 for chunk in reading.chunks)
    for entry in entries:
        if entry.seq not in reading.unread:
            pieces, text = [part.text for chunk in reading.chunks for part in chunk], entry.original.text
            if COUNTER(str(Labelled("User", text))) + BETWEEN_TOKENS > room:
                pieces = ["".join(pieces).replace("[continued] ", "")]
                text = text.replace("[continued] ", "")
            assert any(text in piece for piece in pieces)


def test_results_give_way_before_what_was_said() -> None:
    call = ToolCall(id="1", name="read", arguments="{}")
    messages = [Message.user("rule one. " * 150), Message.assistant("", [call])]
    messages += [Message.tool("1", "FACT-00000a " + "x y " * 3_000 + " FACT-00000b")]
    reading = reading_of(context_of(messages).visible, room=500, counter=COUNTER)
    text = "\n\n".join(part.text for chunk in reading.chunks for part in chunk)
    assert reading.unread == ()
    assert text.count("rule one.") == 150
    assert {"FACT-00000a", "FACT-00000b"} <= set(FACT.findall(text))


async def test_what_no_summary_stands_for_is_said(tmp_path: Path) -> None:
    messages = [Message.user(f"FACT-{at:06x} said long ago") for at in range(1_000)]
    store = await session_of(*messages, Message.user("and now"))
    model = ScriptedModel([], window=3_000, summary=every_fact)
    result = await runner_on(store, model, tmp_path).compact("s")
    assert result is not None
    assert result.status == "done"
    assert len(model.requests) <= MAX_CHUNKS + 1
    asked = [str(request.messages[-1]["content"]) for request in model.requests]
    read = [part for text in asked for part in text.split("\n\n[") if "Stands below:" not in part]
    seen = {fact for part in read for fact in FACT.findall(part)}
    unread = {f"FACT-{seq - 1:06x}" for seq in result.unread}
    assert seen | unread >= {f"FACT-{at:06x}" for at in range(1, 1_000)}
    assert not seen & unread


@pytest.mark.parametrize("script", ["\ud800 lone", "a\x00b", "日本語" * 2_000, "🙂é" * 3_000, "x" * 9_000])
async def test_any_script_makes_valid_requests_that_fit(tmp_path: Path, script: str) -> None:
    call = ToolCall(id="1", name="read", arguments="{}")
    store = await session_of(
        Message.user("begin"),
        Message.user(script),
        Message.assistant("", [call]),
        Message.tool("1", script),
        Message.assistant("so be it"),
        Message.user("and now"),
        Message.assistant("yes"),
    )
    model = ScriptedModel([], window=6_000, summary="What was said, in short.")
    result = await runner_on(store, model, tmp_path).compact("s", focus=script * 20)
    assert result is not None
    # A summary longer than what it would stand for changes nothing.
    assert result.status == ("ineffective" if len(script) < 10 else "done"), result.error
    assert_valid(model.requests)
    counter = counter_for(model.name)
    assert all(count_request(r, counter) + (r.max_output_tokens or 0) <= 6_000 for r in model.requests)


async def test_a_record_that_grows_from_piece_to_piece_is_capped(tmp_path: Path) -> None:
    def echo(request: ModelRequest) -> str:
        return str(request.messages[-1]["content"])

    messages = [Message.user(f"line {at} " + "so " * 200) for at in range(60)]
    store = await session_of(*messages, Message.assistant("yes"))
    model = ScriptedModel([], window=8_000, summary=echo)
    await runner_on(store, model, tmp_path).compact("s")
    counter = counter_for(model.name)
    assert all(count_request(r, counter) + (r.max_output_tokens or 0) <= 8_000 for r in model.requests)


async def test_the_system_message_of_an_imported_session_stays_first(tmp_path: Path) -> None:
    rules = Message(role="system", content="You are careful.")
    store = await session_of(rules, *STORY, Message.user("more " * 300), Message.assistant("fine"))
    model = ScriptedModel(["yes"], window=8_000)
    runner = runner_on(store, model, tmp_path)
    assert (await runner.compact("s")) is not None
    await runner.run("and now", session_id="s")
    assert model.requests[-1].messages[0] == {"role": "system", "content": "You are careful."}
    assert_valid(model.requests)


async def test_an_answered_session_stays_answered_after_a_compaction(tmp_path: Path) -> None:
    store = await session_of(*STORY, Message.user("now"), Message.assistant("the answer " * 300))
    model = ScriptedModel([], window=8_000)
    runner = runner_on(store, model, tmp_path)
    assert (await runner.compact("s")) is not None
    assert (await runner.resume("s")).output == "the answer " * 300


class Replacing(Callbacks):
    """Gives its own text for the summary."""

    def __init__(self, text: str) -> None:
        self.text = text

    def before_compaction(self, request: CompactionRequest) -> Replace:
        return Replace(self.text)


@pytest.mark.parametrize("text", ["Error: no", "ok", "word " * 5_000])
async def test_a_callbacks_text_is_held_to_the_same_rules(tmp_path: Path, text: str) -> None:
    store = await session_of(*STORY, Message.user("now"), Message.assistant("yes"))
    before = await store.read("s")
    runner = runner_on(store, ScriptedModel([]), tmp_path, callbacks=[Replacing(text)])
    result = await runner.compact("s")
    assert result is not None
    assert result.status == "failed"
    *records, noted = await store.read("s")
    assert records == list(before)
    assert isinstance(noted.event, NotCompacted)
    said = [record.event.message for record in before if isinstance(record.event, MessageRecord)]
    assert result.transcript is not None
    assert list(load(tmp_path / result.transcript).messages) == said


async def test_a_callbacks_text_stands_behind_a_transcript(tmp_path: Path) -> None:
    store = await session_of(*STORY, Message.user("now"), Message.assistant("yes"))
    runner = runner_on(store, ScriptedModel([]), tmp_path, callbacks=[Replacing("What was done so far.")])
    result = await runner.compact("s")
    assert result is not None
    assert (result.status, (tmp_path / str(result.transcript)).is_file()) == ("done", True)
    assert "What was done so far." in str(result.summary)


@pytest.mark.parametrize("at", [0, 10**9])
async def test_a_strategy_cannot_misplace_its_summary(tmp_path: Path, at: int) -> None:
    store = await session_of(*STORY, Message.user("now"), Message.assistant("yes"))
    policy = Compaction(strategy=lambda context, budget: Cut(covers=((2, 3),), at=at))
    model = ScriptedModel(["fine"], window=8_000)
    runner = runner_on(store, model, tmp_path, compaction=policy)
    assert (await runner.compact("s")) is not None
    await runner.run("and now", session_id="s")
    users = [m["content"] for m in model.requests[-1].messages if m["role"] == "user"]
    assert users[0] == "begin"
    assert users[-2:] == ["now", "and now"]


async def test_one_summary_has_one_time_limit_for_all_its_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ModelRequest] = []

    async def slow(request: ModelRequest) -> str:
        asked.append(request)
        later(monkeypatch, 60)
        await asyncio.Event().wait()
        return "never"

    store = await session_of(*STORY, Message.user("now"), Message.assistant("yes"))
    policy = Compaction(summary_seconds=60)
    model = ScriptedModel([], window=8_000, summary=slow)
    result = await runner_on(store, model, tmp_path, compaction=policy).compact("s")
    assert result is not None
    assert (result.status, result.error) == ("failed", "the summary took longer than 60 s")
    assert len(asked) == 1


async def test_what_a_summary_takes_is_counted_also_where_it_is_refused(tmp_path: Path) -> None:
    texts_of_it = iter(["", "", "What was done."])
    store = await session_of(*STORY, Message.user("now"), Message.assistant("yes"))
    model = ScriptedModel([], window=8_000, summary=lambda request: next(texts_of_it))
    runner = runner_on(store, model, tmp_path)
    refused, done = await runner.compact("s"), await runner.compact("s")
    assert refused is not None
    assert done is not None
    assert (refused.status, done.status) == ("failed", "done")
    assert refused.usage.input_tokens > done.usage.input_tokens > 0


async def test_l22_json_that_nobody_asked_for_is_no_summary(tmp_path: Path) -> None:
    store = await session_of(*STORY, Message.user("now"), Message.assistant("yes"))
    model = ScriptedModel([], window=8_000, summary=lambda _: '{"done": "What was done there."}')
    runner = runner_on(store, model, tmp_path)
    refused, done = await runner.compact("s"), await runner.compact("s", focus="in JSON")
    assert refused is not None
    assert done is not None
    assert (refused.status, done.status) == ("failed", "done")
    assert "it was JSON, which nobody asked for" in str(refused.error)


class Stuck(Callbacks):
    """Waits for ever at the start of a compaction."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.kinds: list[type[AnyStreamEvent]] = []

    async def on_event(self, event: Any) -> None:
        self.kinds.append(type(event))
        if isinstance(event, CompactionStarted):
            self.reached.set()
            await asyncio.Event().wait()


async def test_a_started_compaction_ends_also_when_cancelled_at_its_start(tmp_path: Path) -> None:
    store = await session_of(*STORY, Message.user("now"), Message.assistant("yes"))
    stuck = Stuck()
    runner = runner_on(store, ScriptedModel([]), tmp_path, callbacks=[stuck])
    task = asyncio.create_task(runner.compact("s"))
    await asyncio.wait_for(stuck.reached.wait(), 120)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stuck.kinds == [CompactionStarted, CompactionEnded]


async def test_undo_forgets_what_was_cleared_since(tmp_path: Path) -> None:
    calls = [ToolCall(id=f"c{at}", name="read", arguments="{}") for at in range(8)]
    exchanges = [m for c in calls for m in (Message.assistant("", [c]), Message.tool(c.id, "data " * 300))]
    store = await session_of(Message.user("begin"), *exchanges, Message.assistant("done"))
    before = Context.of(await store.read("s"))
    policy = Compaction(micro=MicroCompact(keep_messages=1, min_gain_tokens=0), trigger=None)
    runner = runner_on(store, ScriptedModel(["and on"], window=9_000), tmp_path, compaction=policy)
    assert (await runner.compact("s")) is not None
    await runner.run("go on", session_id="s")
    records = await store.read("s")
    assert any(isinstance(record.event, Cleared) for record in records)
    await runner.undo("s")
    after = Context.of(await store.read("s"))
    assert list(after.messages)[: len(before.visible)] == list(before.messages)


@given(orderly(), st.integers(50, 600))
def test_a_digest_keeps_to_its_length_and_names_each_call_with_its_own_result(
    messages: list[Message], most: int
) -> None:
    text = digest(context_of(messages).visible, max_tokens=most, counter=COUNTER)
    assert COUNTER(text) <= most * 1.2 + 20


def test_a_digest_tells_results_apart_where_ids_are_used_again() -> None:
    calls = [ToolCall(id="call_0", name="read", arguments=f'{{"path": "{at}.py"}}') for at in range(3)]
    messages = [
        m
        for at, call in enumerate(calls)
        for m in (Message.assistant("", [call]), Message.tool("call_0", f"result {at}"))
    ]
    text = digest(context_of(messages).visible, max_tokens=500, counter=COUNTER)
    assert [f"result {at}" in text for at in range(3)] == [True] * 3


@given(texts, st.integers(150, 400))
@example("\x95", 400)
def test_a_fitted_text_fits(text: str, most: int) -> None:
    assert COUNTER(fitted(text * 400, max_tokens=most, counter=COUNTER)) <= most
