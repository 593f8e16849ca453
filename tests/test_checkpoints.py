"""Checkpoints: what is opened from one is what the whole log says, and an odd one is as good as none."""

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import LogCapture

from agentloop import Agent, Compaction, MicroCompact, Runner, triggers
from agentloop.codec import encode
from agentloop.context import Context, Entry, RunTools, Shown, next_step, wire_messages
from agentloop.errors import ConflictError, StoreError, UsageError
from agentloop.events import (
    Cleared,
    ClearedItem,
    Compacted,
    Event,
    MessageRecord,
    Noted,
    Record,
    Restored,
)
from agentloop.messages import Message, ToolCall
from agentloop.sessions import Session, checkpoint, load
from agentloop.sessions.checkpoint import CHECKPOINT_EVERY, FOLD, checkpoint_of, context_in, in_short
from agentloop.stores import InMemoryStore, SQLiteStore
from agentloop.stores.base import Checkpoint
from agentloop.strategies import Digest, SlidingWindow, TurnWindow, replaced_by
from agentloop.testing import ScriptedModel
from tests.benchmarks.long_log import LongLog
from tests.kit import BUDGET, added, context_of, every_fact, read, records_of
from tests.store_kit import CheckpointingStore
from tests.test_context import logs

tails = st.integers(2, 6)


def told(entry: Entry | None) -> Any:
    """How an entry is shown."""
    if entry is None:
        return None
    plain = [entry.seq, entry.tokens, entry.kind, entry.at, entry.keep, entry.spilled, entry.run_id]
    return [*plain, entry.time, entry.cleared, entry.message.to_openai()]


def next_of(context: Context) -> Any:
    """What is to be done next."""
    match next_step(Shown(context.said)):
        case RunTools(calls=calls):
            return [call.to_openai() for call in calls]
        case step:
            return repr(step)


def looked_at(context: Context) -> str:
    """All that a step looks at, as text, so that what is no number equals itself."""
    last = context.compactions[-1:]
    return json.dumps(
        [
            wire_messages(context.messages),
            list(map(told, context.visible)),
            list(map(told, (context.newest_user, context.first, context.task))),
            [context.length, context.tokens, context.turns, context.rewritten_at, context.compaction_count],
            repr(
                [
                    context.filler,
                    context.reports,
                    context.recent_reports,
                    context.anchor("m"),
                    context.ratio("m"),
                ]
            ),
            next_of(context),
            list(map(told, (*context.said[-1:], *context.said[-2:-1]))),
            [(seq, encode(event)) for seq, event in last],
            sorted(context.call_ids),
            [repr(trigger(context, BUDGET)) for trigger in TRIGGERS],
        ]
    )


def everything(context: Context) -> str:
    """All that is in it."""
    overlays = [(seq, encode(event)) for seq, event in (*context.compactions, *context.clearings)]
    said = [[told(entry), entry.original.to_openai()] for entry in (*context.said, *context.visible)]
    return json.dumps([looked_at(context), context.starts_after, context.older_compactions, overlays, said])


TRIGGERS: tuple[triggers.Trigger, ...] = (
    triggers.TurnCount(1),
    triggers.TokenCount(300),
    triggers.TokenCount(300, counter=len),
    triggers.Every(60, clock=lambda: 4_102_444_800.0),
    triggers.Idle(60, clock=lambda: 4_102_444_800.0),
    triggers.NeedsFollowUp(),
    triggers.On("message"),
    triggers.On("result"),
    triggers.On("compaction"),
    triggers.On("request"),
)


READ = Message.assistant(None, [ToolCall(id="call_0", name="read", arguments='{"name": "a", "words": 4}')])


class Spy(CheckpointingStore):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_records: list[int] = []

    async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        records = await super().read(session_id, after=after, most=most)
        self.read_records.append(len(records))
        return records


async def stored(events: Sequence[Event], *, kept: int = 0, tail: int = 3) -> Spy:
    """A store with that log, and a checkpoint at that position."""
    store = Spy()
    await store.append("s", events, expect=0)
    if kept:
        context = Context.of(records_of(events[:kept]))
        await store.keep_checkpoint("s", checkpoint_of(context, events[kept - 1].id, tail=tail))
    return store


def long_log(length: int) -> list[Event]:
    """The beginning of a long log."""
    return list(islice(LongLog().events(), length))


@pytest.mark.many(20)
@given(logs(), st.data(), tails)
async def test_l13_the_context_from_a_checkpoint_and_the_rest_equals_the_one_from_scratch(
    events: list[Event], data: st.DataObject, tail: int
) -> None:
    if not events:
        return
    kept = data.draw(st.integers(1, len(events)))
    session = await Session.open("s", await stored(events, kept=kept, tail=tail))
    scratch = Context.of(records_of(events))
    assert looked_at(session.context) == looked_at(scratch)
    assert everything((await session.whole()).context) == everything(scratch)


@pytest.mark.many(20)
@given(logs(), st.lists(st.integers(1, 40), max_size=4), tails)
def test_l13_a_context_may_be_written_down_and_read_back_again_and_again(
    events: list[Event], steps: list[int], tail: int
) -> None:
    records = records_of(events)
    context = scratch = Context()
    for step in [*steps, len(records)]:
        rest = records[scratch.length : scratch.length + step]
        if context.starts_after and any(isinstance(record.event, Restored) for record in rest):
            with pytest.raises(UsageError, match="all that was said"):
                context.add(*rest)
            return
        context, scratch = context.add(*rest), scratch.add(*rest)
        assert checkpoint_of(context, "id", tail=tail) == checkpoint_of(scratch, "id", tail=tail)
        read_back = context_in(checkpoint_of(context, "id", tail=tail))
        assert read_back is not None
        context = read_back
        assert looked_at(context) == looked_at(scratch)


def test_a_checkpoint_of_a_part_to_which_nothing_was_said_is_that_of_the_whole_log() -> None:
    shortened = Cleared(items=(ClearedItem(seq=59, message=Message.tool("c", "short"), tokens=6),))
    messages = [Message.user("go"), *(Message.assistant(f"{at}") for at in range(57)), READ]
    events = [added(message) for message in (*messages, Message.tool("call_0", "long " * 90))]
    records = records_of([*events, shortened, *(Noted(source="host") for _ in range(CHECKPOINT_EVERY))])
    part = context_in(checkpoint_of(Context.of(records[:60]), "id"))
    assert part is not None
    assert part.starts_after
    whole = Context.of(records)
    assert checkpoint_of(part.add(*records[60:]), "id") == checkpoint_of(whole, "id")


@pytest.mark.many(20)
@given(logs(), st.data())
async def test_l12_the_same_requests_are_sent_after_a_checkpoint(
    events: list[Event], data: st.DataObject
) -> None:
    if not events:
        return
    kept = data.draw(st.integers(1, len(events)))
    sent = []
    for store in (await stored(events), await stored(events, kept=kept)):
        model = ScriptedModel([READ, "done"], window=40_000)
        agent = Agent(model, tools=[read], compaction=Compaction(micro=MicroCompact(min_gain_tokens=0)))
        runner = Runner(agent, store=store, transcripts=None)
        await runner.run("and now?", session_id="s")
        sent.append([[dict(message) for message in request.messages] for request in model.requests])
    assert json.dumps(sent[0]) == json.dumps(sent[1])


LOG = long_log(400)


@given(st.data())
def test_a_damaged_checkpoint_is_none(data: st.DataObject) -> None:
    context = Context.of(records_of(LOG[:40]))
    checkpoint = checkpoint_of(context, "id")
    at = data.draw(st.integers(0, len(checkpoint.body) - 1))
    other = data.draw(st.characters().filter(lambda char: char != checkpoint.body[at]))
    flipped = checkpoint.body[:at] + other + checkpoint.body[at + 1 :]
    for body in (flipped, checkpoint.body[:at], checkpoint.body + other, ""):
        assert context_in(replace(checkpoint, body=body)) is None
    assert context_in(replace(checkpoint, seq=checkpoint.seq - 1)) is None
    assert context_in(replace(checkpoint, event_id="other")) is None
    assert context_in(checkpoint) is not None


def another_programs(data: str, seq: int, event_id: str) -> str:
    """A text with the right checksum."""
    told = hashlib.blake2b(f"{seq}\n{event_id}\n{data}".encode(), digest_size=16).hexdigest()
    return f"{FOLD} {told}\n{data}"


def test_one_without_what_the_guard_knows_is_none() -> None:
    data = json.loads(checkpoint_of(Context.of(records_of(LOG[:300])), "id").body.partition("\n")[2])
    del data["guard"]
    body = another_programs(json.dumps(data), 300, "id")
    assert context_in(Checkpoint(seq=300, event_id="id", body=body)) is None


@pytest.mark.parametrize("data", ["", "[]", "{}", '{"entries": [[]], "said": []}', "[" * 100_000])
async def test_a_checkpoint_of_another_program_is_none(data: str) -> None:
    store, event_id = await stored(LOG), LOG[299].id
    body = another_programs(data, 300, event_id)
    await store.keep_checkpoint("s", Checkpoint(seq=300, event_id=event_id, body=body))
    assert everything((await Session.open("s", store)).context) == everything(Context.of(records_of(LOG)))


@pytest.mark.parametrize("body", ["", "{}", "1\n{}", "\x00", "\ud800"])
async def test_a_session_with_a_damaged_checkpoint_opens_as_without_one(body: str) -> None:
    store = await stored(LOG)
    await store.keep_checkpoint("s", Checkpoint(seq=300, event_id=LOG[299].id, body=body))
    session = await Session.open("s", store)
    assert everything(session.context) == everything(Context.of(records_of(LOG)))
    assert await store.checkpoint("s") is None


@pytest.mark.parametrize("other", [1, FOLD + 1])
async def test_a_checkpoint_of_another_version_is_made_anew(
    other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as another:
        another.setattr(checkpoint, "FOLD", other)
        store = await stored(long_log(1_200), kept=1_100)
    session = await Session.open("s", store)
    assert session.context.starts_after == 0
    assert store.read_records == [1_200]
    await Session.open("s", store)
    assert store.read_records == [1_200, 1]


@pytest.mark.parametrize("length", [1, 299, 300, 301, 700])
async def test_a_checkpoint_of_another_log_with_that_id_is_refused(length: int) -> None:
    before = await stored(LOG, kept=300)
    store = await stored([replace(event, id=f"{at}") for at, event in enumerate(long_log(length))])
    checkpoint = await before.checkpoint("s")
    assert checkpoint is not None
    await store.keep_checkpoint("s", checkpoint)
    session = await Session.open("s", store)
    assert session.context == Context.of(await store.read("s"))
    assert await store.checkpoint("s") is None


async def test_a_session_deleted_and_begun_anew_knows_nothing_of_the_old_one() -> None:
    store = await stored(LOG, kept=300)
    await store.delete("s")
    await store.append("s", [added(Message.user("hello"))], expect=0)
    session = await Session.open("s", store)
    assert [message.text for message in session.context.messages] == ["hello"]


async def test_a_log_gets_a_checkpoint_as_it_grows_and_its_opening_reads_the_end() -> None:
    store, events = Spy(), iter(long_log(3_500))
    session = await Session.open("s", store)
    while batch := list(islice(events, 7)):
        session = await session.append(*batch)
    store.read_records.clear()
    opened = await Session.open("s", store)
    assert sum(store.read_records) <= CHECKPOINT_EVERY
    assert looked_at(opened.context) == looked_at(session.context)
    assert len(opened.context.said) < 700 < len(session.context.said)


async def test_an_old_log_gets_one_when_it_is_first_opened() -> None:
    store = await stored(long_log(2_500))
    await Session.open("s", store)
    await Session.open("s", store)
    assert store.read_records == [2_500, 1]


async def test_short_logs_get_none() -> None:
    store = await stored(long_log(CHECKPOINT_EVERY - 1))
    await Session.open("s", store)
    assert await store.checkpoint("s") is None


@pytest.mark.deep
async def test_a_log_whose_end_takes_a_compaction_back_is_read_from_its_beginning_once() -> None:
    events = long_log(2_500)
    seq = max(at for at, event in enumerate(events, 1) if isinstance(event, Compacted))
    store = await stored([*events, Restored(seq=seq)], kept=2_450)
    session = await Session.open("s", store)
    assert everything(session.context) == everything(Context.of(await store.read("s")))
    store.read_records.clear()
    await Session.open("s", store)
    assert store.read_records == [1]


@pytest.mark.deep
@pytest.mark.parametrize("by", ["open", "checkpoint", "reload", "append"])
async def test_many_records_are_folded_on_a_thread(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events = long_log(2 * CHECKPOINT_EVERY)
    store = await stored(events, kept=400 if by == "checkpoint" else 0)
    folded: list[tuple[int, bool]] = []
    add = Context.add

    def noted(context: Context, *records: Record) -> Context:
        folded.append((len(records), threading.current_thread() is threading.main_thread()))
        return add(context, *records)

    session = Session(id="s", store=store, context=Context.of(records_of(events[:400])))
    monkeypatch.setattr(Context, "add", noted)
    match by:
        case "reload":
            session = await session.reload()
        case "append":
            await store.delete("s")
            session = await replace(session, context=Context()).append(*events)
        case _:
            session = await Session.open("s", store)
    assert session.context.length == len(events)
    assert any(count > CHECKPOINT_EVERY for count, _ in folded)
    assert not any(count > CHECKPOINT_EVERY and on_loop for count, on_loop in folded)


@pytest.mark.deep
@pytest.mark.parametrize("by", ["append", "reload"])
async def test_a_compaction_taken_back_on_a_part_of_a_log_is_taken_back_whole(by: str) -> None:
    events = long_log(2_500)
    seq = max(at for at, event in enumerate(events, 1) if isinstance(event, Compacted))
    store = await stored(events, kept=2_450)
    session = await Session.open("s", store)
    assert session.context.starts_after
    if by == "append":
        session = await session.append(Restored(seq=seq))
    else:
        await store.append("s", [Restored(seq=seq)], expect=2_500)
        session = await session.reload()
    assert everything(session.context) == everything(Context.of(await store.read("s")))


async def test_a_conflict_is_one_on_a_part_of_a_log_too() -> None:
    store = await stored(LOG, kept=390)
    session = await Session.open("s", store)
    await store.append("s", [added(Message.user("another writer"))], expect=400)
    with pytest.raises(ConflictError):
        await session.append(added(Message.user("mine")))
    assert (await session.reload()).context.messages[-1].text == "another writer"


async def test_a_right_one_is_kept_when_the_whole_is_read() -> None:
    store = await stored(LOG, kept=390)
    session = await (await Session.open("s", store)).whole()
    assert (session.kept, session.context.starts_after) == (390, 0)
    assert await store.checkpoint("s") is not None


class Failing(Spy):
    """Keeps no checkpoint, and cannot say so."""

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        raise StoreError("the table is damaged")

    async def keep_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> None:
        raise OSError("no space left")

    async def drop_checkpoint(self, session_id: str) -> None:
        raise StoreError("the table is damaged")


@pytest.fixture
def captured() -> LogCapture:
    """What the host's structlog gets."""
    capture = LogCapture()
    structlog.configure(processors=[capture])
    return capture


async def test_a_store_that_cannot_keep_one_stores_and_opens_all_the_same(captured: LogCapture) -> None:
    store = Failing()
    session = await Session.open("s", store)
    for events in (LOG, long_log(1_000), LOG):
        session = await session.append(*events)
    assert (await Session.open("s", store)).context.length == 1_800
    noted = [(entry["event"], entry["error"]) for entry in captured.entries]
    assert ("a checkpoint could not be kept", "no space left") in noted
    assert ("a checkpoint could not be read", "the table is damaged") in noted
    assert {entry["log_level"] for entry in captured.entries} == {"debug"}


async def test_a_damaged_one_that_cannot_be_dropped_is_passed_over() -> None:
    class Stuck(Spy):
        async def drop_checkpoint(self, session_id: str) -> None:
            raise StoreError("the table is damaged")

    store = Stuck()
    await store.append("s", LOG, expect=0)
    await store.keep_checkpoint("s", Checkpoint(seq=9, event_id="x", body="damaged"))
    assert (await Session.open("s", store)).context.length == 400


async def test_a_store_without_checkpoints_is_read_whole() -> None:
    store = InMemoryStore()
    session = await Session.open("s", store)
    session = await session.append(*long_log(1_500))
    assert (await Session.open("s", store)).context == session.context
    assert await session.whole() is session


def test_what_is_kept_is_what_is_in_sight_and_the_newest_messages() -> None:
    context = Context.of(records_of(long_log(12_000)))
    short = in_short(context)
    assert len(context.said) > 6_000
    assert len(short.said) <= checkpoint.TAIL + 1
    assert len(context.compactions) > 6 > len(short.compactions)
    size = sum(len(message.text) for message in context.messages) + 30 * len(context.call_ids)
    assert len(checkpoint_of(context, "id").body) < 2 * size + 200 * len(context.visible)


def test_results_of_one_call_for_many_are_kept_with_it() -> None:
    asked = Message.assistant(None, [ToolCall(id=f"c{at}", name="read") for at in range(200)])
    results = [Message.tool(f"c{at}", "x") for at in range(199)]
    context = context_of([Message.user("read all"), Message.user("please"), asked, *results])
    short = in_short(context)
    assert short.starts_after == 2
    assert next_step(Shown(short.said)) == next_step(Shown(context.said))


def test_the_meaning_of_the_fold_has_its_number() -> None:
    """A change of what `Context` makes of a log raises `FOLD`."""
    log = [replace(event, id=f"{at}", time=float(at)) for at, event in enumerate(long_log(1_500))]
    checkpoint = checkpoint_of(Context.of(records_of(log)), "id")
    assert FOLD == 4
    data = checkpoint.body.partition("\n")[2]
    assert hashlib.sha256(data.encode()).hexdigest()[:16] == "645e599ad4c35bda"


Stores = pytest.mark.parametrize("kind", ["memory", "sqlite"])


def spied(kind: str, folder: Path) -> tuple[Any, list[int]]:
    """A store of that kind, and how many records each reading of it brings."""
    store: Any = CheckpointingStore() if kind == "memory" else SQLiteStore(folder / "sessions.db")
    inner, seen = store.read, []

    async def counting(session_id: str, *, after: int = 0, most: int | None = None) -> Sequence[Record]:
        records = await inner(session_id, after=after, most=most)
        seen.append(len(records))
        return records  # type: ignore[no-any-return]

    store.read = counting
    return store, seen


def spoken(events: Sequence[Event]) -> list[Message]:
    return [event.message for event in events if isinstance(event, MessageRecord)]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("memory", marks=pytest.mark.deep)])
@pytest.mark.deep
async def test_a_long_session_is_resumed_from_its_end_compacted_and_taken_back(
    kind: str, tmp_path: Path
) -> None:
    store, seen = spied(kind, tmp_path)
    await store.append("s", long_log(1_400), expect=0)
    await Session.open("s", store)
    seen.clear()
    model = ScriptedModel(["first answer", "second answer"], window="1m", summary=every_fact)
    policy = Compaction(micro=None, strategy=replaced_by(TurnWindow(2), Digest()))
    runner = partial(Runner, Agent(model, compaction=policy), store=store, transcripts=tmp_path / "kept")
    await runner().run("Go on. FACT-abcdef", session_id="s")
    await runner().run("And on.", session_id="s")
    assert sum(seen) < 50
    before = Context.of(await store.read("s"))
    foreseen = await runner().preview("s")
    result = await runner().compact("s")
    assert result is not None
    assert foreseen is not None
    assert result.status == "done"
    assert (result.tokens_before, result.archived[0]) == (foreseen.context.tokens, foreseen.first)
    records = await store.read("s")
    messages = spoken([record.event for record in records])
    saved = load(tmp_path / "kept" / (result.transcript or ""))
    assert [message.to_openai() for message in saved.messages] == [
        message.to_openai() for message in messages
    ]
    scratch = await copied(records[:-1])
    again = await Runner(Agent(model, compaction=policy), store=scratch, transcripts=tmp_path / "2").compact(
        "s"
    )
    assert again is not None
    assert again.summary.partition("]")[2] == result.summary.partition("]")[2]
    assert await runner().undo("s") == result.seq
    after = Context.of(await store.read("s"))
    assert after.visible == before.visible
    assert (after.tokens, after.turns, after.filler) == (before.tokens, before.turns, before.filler)
    assert looked_at((await Session.open("s", store)).context) == looked_at(after)


async def copied(records: Sequence[Record]) -> InMemoryStore:
    """A store that keeps no checkpoints, with that log."""
    store = InMemoryStore()
    await store.append("s", [record.event for record in records], expect=0)
    return store


@pytest.mark.deep
@Stores
async def test_a_compaction_at_the_threshold_reads_the_whole_and_no_step_before_it(
    kind: str, tmp_path: Path
) -> None:
    store, seen = spied(kind, tmp_path)
    await store.append("s", long_log(3_000), expect=0)
    session = await Session.open("s", store)
    seen.clear()
    tokens = session.context.tokens
    model = ScriptedModel(["done"] * 2, window=tokens * 2)
    policy = Compaction(micro=None, trigger=triggers.TokenCount(tokens + 2_000), strategy=SlidingWindow(20))
    agent = Agent(model, compaction=policy)
    result = await Runner(agent, store=store, transcripts=tmp_path).run("short", session_id="s")
    assert (sum(seen), result.compactions) == (1, ())
    result = await Runner(agent, store=store, transcripts=tmp_path).run("long " * 3_000, session_id="s")
    [done] = result.compactions
    assert done.status == "done"
    messages = spoken([record.event for record in await store.read("s")])[:-1]
    saved = load(tmp_path / (done.transcript or ""))
    assert [message.text for message in saved.messages] == [message.text for message in messages]


@pytest.mark.deep
async def test_a_servers_call_id_used_again_gets_one_of_its_own_however_long_ago_it_was() -> None:
    log = long_log(2_500)
    first = next(message.tool_calls[0].id for message in spoken(log) if message.tool_calls)
    store = await stored(log)
    await Session.open("s", store)
    store.read_records.clear()
    again = Message.assistant(None, [ToolCall(id=first, name="read", arguments='{"name": "a", "words": 3}')])
    runner = Runner(
        Agent(ScriptedModel([again, "done"], window="1m"), tools=[read]), store=store, transcripts=None
    )
    await runner.run("Read it.", session_id="s")
    assert sum(store.read_records) < 10
    *_, asked, _, _ = spoken([record.event for record in await store.read("s")])
    assert [call.id for call in asked.tool_calls] == [f"{first}_2"]
