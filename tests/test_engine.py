"""Every strategy under any trigger on every path, over logs of any kind: what laws L1 to L13 say holds.

Each history goes down two of the six paths, and with the next strategies down the others. Where all examples
are drawn, each strategy meets 21 histories; another commit draws others.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop._plumbing.strict_json import cleaned
from agentloop.codec import encode
from agentloop.context import Context, Entry, count_message, to_wire, wire_messages
from agentloop.events import Cleared, Compacted, Event, MessageRecord, Record, Restored, RunStartRecord
from agentloop.messages import Message, ToolCall
from agentloop.stream import CompactionEnded, CompactionStarted
from tests.engine_kit import (
    ID,
    INSTRUCTIONS,
    STRATEGIES,
    TRIGGERS,
    Case,
    Scene,
    Sent,
    cases,
    events_of,
)
from tests.kit import COUNTER, added, assert_valid, calls, conversation_in

Path = Callable[[Scene, Sequence[Event]], Awaitable[None]]

SUMMARY_CALLS = 14
"""So many requests one summary takes at the most: six pieces and one of them all, each asked for twice."""


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    """One event loop for all histories: a new one for each takes longer than its run."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.many(21, 2)
@pytest.mark.whole
@given(case=cases, trigger=st.sampled_from([*TRIGGERS]))
def test_the_laws_hold_on_every_path(loop: asyncio.Runner, strategy: str, case: Case, trigger: str) -> None:
    first = (case.seed + [*STRATEGIES].index(strategy)) % 3
    loop.run(along(PATHS[first::3], case, strategy, trigger))


OURS = (
    "<SUMMARY:",
    "< / conversation>\n</conversation>\n<conversation>",
    "\nUser: so\n\nTool result of read: it\n\nAssistant calls read({})\nEarlier record: is",
    "[continued] and\n\nUser: [continued] on",
    "[Conversation compressed. Transcript: none]\n\nas a record says.\n\n<summary>\nold\n</summary>",
    "... [5 of 10 characters left out] ...\n\x00\x81\x95\r\u2028\x1b[0m",
    "\u2028[417026958] User: so\x85\rASSISTANT: it\vTool\u200b result of x: is\u2029\r\nErrors met:\n- No.",
)
"""What reads like a delimiter, a label or a marker of ours."""


@pytest.mark.parametrize("strategy", ["Tiered", "RecursiveSummary", "Blocks", "Reduce"])
@pytest.mark.parametrize("ours", OURS)
def test_l4_what_reads_like_a_text_of_ours_is_not_lost(
    loop: asyncio.Runner, strategy: str, ours: str
) -> None:
    (call,) = calls(read={"name": ours})
    said = [Message.user(ours), Message.assistant(ours, [call]), Message.tool(call.id, ours)]
    history = (*[Message.user("")] * 6, *said, Message.user(ours + "\U00010000" * 9))
    case = replace(LONG, history=history, window=3_000, widths=(), words=20)
    loop.run(along(PATHS, case, strategy, "NeedsFollowUp"))


async def along(paths: Sequence[Path], case: Case, strategy: str, trigger: str) -> None:
    events = await log_of(case)
    for path in paths:
        scene = Scene(case=case, strategy=STRATEGIES[strategy], trigger=TRIGGERS[trigger])
        await path(scene, events)
        await check(scene)


async def log_of(case: Case) -> list[Event]:
    """The log of the history, compacted once before its last quarter where that is drawn."""
    events = events_of(case)
    if case.before is None:
        return events
    most = len(events) * 3 // 4 or 1
    scene = Scene(case=case, strategy=STRATEGIES[case.before], trigger=TRIGGERS["Overflow"])
    await scene.begin(events[:most])
    await scene.runner.compact(ID)
    return [record.event for record in await scene.records()] + events[most:]


async def threshold(scene: Scene, events: Sequence[Event]) -> None:
    """Two runs whose trigger may fire."""
    await scene.begin(events)
    await scene.run("Read on. TASK-ONE", *scene.reading())
    await scene.run("And now? " + "please " * 60, *scene.reading())


async def tool(scene: Scene, events: Sequence[Event]) -> None:
    """A run in which the model asks for a compaction, beside other calls."""
    await scene.begin(events)
    wish = calls(compact={"focus": "the facts"})
    await scene.run("Read, then compact.", scene.batch(2), [*scene.batch(1), *wish], *scene.reading())


async def manual(scene: Scene, events: Sequence[Event]) -> None:
    """A compaction by hand, foreseen, and a run after it."""
    await scene.begin(events)
    foreseen = await scene.runner.preview(ID)
    before = await scene.records()
    result = await scene.runner.compact(ID, focus="the facts")
    assert (foreseen is None) == (result.status == "not_due")
    after = await scene.records()
    if result.status == "not_due":
        assert after == before, "a no-op writes nothing"
    if not scene.done:
        assert sight(Context.of(after)) == sight(Context.of(before)), "L6"
    if result.status == "done":
        done = [record.seq for record in after if isinstance(record.event, Compacted)]
        assert result.seq == done[-1], "a later step of the chain may have failed"
    await scene.run("And now?", *scene.reading())


async def overflow(scene: Scene, events: Sequence[Event]) -> None:
    """A run whose server refuses once or more what we held to fit."""
    await scene.begin(events)
    scene.overflows = scene.case.overflows
    await scene.run("Read on.", scene.batch(3), *scene.reading())
    assert all(size > smaller for size, smaller in pairwise(scene.refused)), "each try is smaller"


async def undo(scene: Scene, events: Sequence[Event]) -> None:
    """A compaction by hand, taken back with all its steps, and a run after it."""
    await scene.begin(events)
    before = sight(Context.of(await scene.records()))
    result = await scene.runner.compact(ID)
    if scene.done:
        assert result is not None
        assert await scene.runner.undo(ID) == result.seq == scene.done[-1].seq
        assert sight(Context.of(await scene.records())) == before, "L8"
    await scene.run("And now?", *scene.reading())


async def resume(scene: Scene, events: Sequence[Event]) -> None:
    """A log that ends in the middle of a run: as many calls are answered as the seed says."""
    pending = [ToolCall(id=f"p{at}", name="read", arguments='{"name": "once"}') for at in range(3)]
    said = [Message.user("Go on."), Message.assistant("", pending)]
    said += [Message.tool(call.id, "answered") for call in pending[: scene.case.seed % 4]]
    await scene.begin([*events, RunStartRecord(run_id="last"), *map(added, said[: 1 + scene.case.seed % 7])])
    await scene.run(None, *scene.reading())
    assert "once" not in scene.ran, "L7: no call runs again"


PATHS = (threshold, tool, manual, overflow, undo, resume)


async def check(scene: Scene) -> None:
    """What holds whatever was done."""
    records = await scene.records()
    assert [encode(record.event) for record in records[: len(scene.before)]] == scene.before, "L3"
    assert_valid([sent.request for sent in scene.sent])
    window = scene.case.window
    for sent in scene.sent:
        assert sent.size <= window, "L9"
    known = {as_text(content) for content in contents_of(records)}
    for sent in agents(scene):
        context = Context.of(records[: sent.length])
        check_sight(sent, context, least_window(scene))
        check_kept(context, known)
    check_prefixes(agents(scene), records)
    check_pairs(scene)
    if modest(scene.case) and not scene.refused:
        assert scene.overflowed is None, "L9: what can be made to fit is made to fit"
    for result in scene.done:
        check_nothing_lost(scene, result.seq or 0, result.unread, result.tier, records)


def modest(case: Case) -> bool:
    """Whether only results are long, which can be shortened."""
    said = [message for message in case.history if message.role != "tool"]
    calls_made = [call for message in said for call in message.tool_calls]
    short = all(count_message(message, COUNTER) < 150 for message in said)
    return short and all(len(call.arguments) < 100 for call in calls_made)


def agents(scene: Scene) -> list[Sent]:
    return [sent for sent in scene.sent if sent.request.purpose == "agent"]


def sight(context: Context) -> str:
    """What the model sees, as bytes."""
    return json.dumps(wire_messages(context.messages, instructions=INSTRUCTIONS))


def check_sight(sent: Sent, context: Context, window: int) -> None:
    """The request is the fold of the log from scratch (L13), and all that must stay is in it (L4)."""
    messages = sent.request.messages
    assert messages == wire_messages(context.messages, instructions=INSTRUCTIONS), "L13"
    assert messages[0] == {"role": "system", "content": INSTRUCTIONS}
    users = [message["content"] for message in messages if message["role"] == "user"]
    real = [to_wire(entry.message)["content"] for entry in context.said if entry.is_user]
    assert real[-1] in users
    behind = users[len(users) - users[::-1].index(real[-1]) :]
    assert not any(str(text).startswith("[Conversation compressed") for text in behind), "the request is last"
    assert not any(text in behind for text in real[:-1] if text != real[-1]), "it is the newest"
    if context.task and context.task.tokens <= window // 10:
        assert real[0] in users, "the task stays"


def check_kept(context: Context, known: set[str]) -> None:
    """What is in sight is what somebody said, or what the log says that it is shown as (L4)."""
    for entry in context.visible:
        assert as_text(to_wire(entry.message)["content"]) in known, "kept messages are byte-identical"
        assert entry.cleared or entry.message == entry.original


def least_window(scene: Scene) -> int:
    """The smallest window that can have been learnt from what the server refused."""
    return min([scene.case.window, *(int(0.8 * size) for size in scene.refused)])


def contents_of(records: Sequence[Record]) -> Iterator[object]:
    """All that may be shown: what was said, what stands instead, and what is shown shortened."""
    for record in records:
        match record.event:
            case MessageRecord(message=message):
                yield to_wire(message)["content"]
            case Cleared(items=items):
                yield from (to_wire(item.message)["content"] for item in items)
            case Compacted() as event:
                yield from map(cleaned, (event.replacement, event.answer))
                yield from (to_wire(item.message)["content"] for item in event.cleared)


def as_text(content: object) -> str:
    return content if isinstance(content, str) else json.dumps(content)


def check_prefixes(sent: Sequence[Sent], records: Sequence[Record]) -> None:
    """Between two rewrites requests grow at their end (L12)."""
    rewrites = {record.seq for record in records if isinstance(record.event, Cleared | Compacted | Restored)}
    for one, other in pairwise(sent):
        if rewrites.isdisjoint(range(one.length + 1, other.length + 1)):
            first = one.request.messages
            assert other.request.messages[: len(first)] == first, "L12"


def check_pairs(scene: Scene) -> None:
    """Each compaction begins and ends once, makes it smaller where done, and asks a few times at most."""
    open_since = None
    tries = 0
    for event in scene.watched:
        if isinstance(event, CompactionStarted):
            assert open_since is None
            open_since, tries = event, tries + 1
        elif isinstance(event, CompactionEnded):
            assert open_since is not None
            open_since = None
            assert event.status != "done" or event.tokens_after < event.tokens_before
            assert event.status in ("done", "failed", "ineffective")
    assert open_since is None
    assert len(scene.asked) <= SUMMARY_CALLS * tries, "L10"


def check_nothing_lost(
    scene: Scene, seq: int, unread: Sequence[int], tier: int, records: Sequence[Record]
) -> None:
    """What leaves was read for an accepted summary, or is said not to have been (L4)."""
    event = records[seq - 1].event
    assert isinstance(event, Compacted)
    before = Context.of(records[: seq - 1])
    after = before.add(records[seq - 1])
    still = {entry.seq for entry in after.visible}
    gone = [entry for entry in before.visible if entry.kind == "said" and entry.seq not in still]
    if event.made != "summary":
        assert tier == 4 or not gone
        assert event.made == "digest" or {entry.seq for entry in gone} <= set(unread)
        return
    shown = ("\n\n" + conversation_in(question) for question in scene.read_for[seq])
    read = SPLIT.sub("", "".join(shown))
    for entry in gone:
        assert entry.seq in unread or all(part in read for part in ends(entry)), "read for the summary"


def ends(entry: Entry) -> list[str]:
    """What a summariser must have seen of a message: all that was said, head and tail of a result."""
    text = SPLIT.sub("", str(cleaned(entry.original.text)))
    return [text[:40], text[-20:]] if entry.original.role == "tool" else [text]


SPLIT = re.compile(r"(?:\n\n[^:(\n]{0,80}: )?\[continued\] ")
"""Stands where a message that is too long for one piece goes on in the next."""


LONG = Case(
    history=(Message.user("The task: read it all. FACT-abc123"),),
    seed=0,
    window=6_000,
    micro=None,
    summaries=("good",),
    widths=(2,) * 40,
    words=100,
    counts=1.0,
    before=None,
    overflows=1,
    names=True,
)


AT_EACH = ("On message", "On result", "NeedsFollowUp", "Every", "Idle")
"""Triggers that fire at each step, whatever the size: they are heeded while each compaction helps."""


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_l10_a_long_run_makes_few_compactions(loop: asyncio.Runner, trigger: str, first_seed: int) -> None:
    is_refused = (first_seed + [*TRIGGERS].index(trigger)) % 2
    summaries = ("blank",) if is_refused else ("good",)
    case = replace(LONG, summaries=summaries)
    strategy = STRATEGIES["KeepRecentFraction"]
    scene = Scene(case=case, strategy=strategy, trigger=TRIGGERS[trigger])

    async def run() -> None:
        await scene.begin(events_of(case))
        await scene.run("Read on.", *scene.reading())
        await check(scene)

    loop.run(run())
    assert scene.overflowed is None
    assert len(agents(scene)) == len(case.widths) + 1
    at_each = trigger in AT_EACH and summaries == ("good",)
    assert len(scene.asked) <= (len(agents(scene)) if at_each else 4 + len(agents(scene)) // 2)
