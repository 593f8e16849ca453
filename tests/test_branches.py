"""Messages of other branches, in merged and imported logs, are kept and stay out of the main line."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import strategies, triggers
from agentloop.callbacks import Callbacks
from agentloop.codec import encode
from agentloop.context import Context, wire_messages
from agentloop.errors import UsageError
from agentloop.events import (
    MAIN,
    Compacted,
    Event,
    EventFilter,
    MessageRecord,
    ModelCalled,
    Noted,
    Record,
    Restored,
    kind_name,
    select,
)
from agentloop.messages import Message, ToolCall, Usage
from agentloop.models import ModelRequest
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.sessions import load, transcripts_in
from agentloop.sessions.export import to_blocks, to_events, to_openai
from agentloop.sessions.importing import parse
from agentloop.stores import InMemoryStore
from agentloop.strategies import KeepRecentFraction, Strategy
from agentloop.stream import CompactionRequest
from agentloop.testing import ScriptedModel
from agentloop.triggers import Trigger
from tests.kit import (
    BUDGET,
    added,
    assert_valid,
    every_fact,
    histories,
    orderly,
    read,
    reading,
    records_of,
)

MARK = "SCOUT-SAID"


def aside(message: Message, branch: str = "scout") -> MessageRecord:
    return MessageRecord(message=message, tokens=50_000, run_id="r9", branch=branch)


CALL = ToolCall(id="call_0", name="read")
asides = st.sampled_from(
    [
        aside(Message.user(MARK)),
        aside(Message.assistant(None, [CALL])),
        aside(Message.tool("call_0", MARK)),
        aside(Message.assistant(MARK), "main"),
        aside(Message(role="system", content=MARK), ""),
    ]
)


@st.composite
def merged(draw: st.DrawFn, said: st.SearchStrategy[list[Message]]) -> list[Event]:
    """A log of the main line, compacted and restored here and there, with other branches in between."""
    events: list[Event] = []
    context = Context()
    for message in draw(said):
        more = draw(st.lists(asides, max_size=2))
        for event in (*more, added(message), *draw(st.lists(rewrites(context), max_size=1))):
            events.append(event)
            context = context.add(Record(seq=len(events), event=event))
    return events


def rewrites(context: Context) -> st.SearchStrategy[Event]:
    """Something that a compaction of this context, or undoing one, would write."""
    cuts = [cut for fraction in (0.1, 0.5) if (cut := KeepRecentFraction(fraction)(context, BUDGET))]
    choices: list[Event] = [
        Compacted(covers=cut.covers, at=cut.at, replacement="what was", tokens=8) for cut in cuts
    ]
    if context.compactions:
        choices.append(Restored(seq=context.compactions[-1][0]))
    return st.sampled_from(choices) if choices else st.just(Noted(source="nothing to do"))


def silenced(events: list[Event]) -> list[Event]:
    """The same log, where records that say nothing stand at the positions of other branches."""
    return [
        Noted(source="elsewhere") if isinstance(event, MessageRecord) and event.branch is not None else event
        for event in events
    ]


@pytest.mark.deep
@pytest.mark.many(25)
@given(merged(st.one_of(histories, orderly())))
def test_the_context_is_as_if_other_branches_had_said_nothing(events: list[Event]) -> None:
    """What triggers, strategies, guard and requests see is this value alone."""
    context = Context.of(records_of(events))
    assert context == Context.of(records_of(silenced(events)))
    assert wire_messages(context.messages) == wire_messages(Context.of(records_of(silenced(events))).messages)
    assert MARK not in json.dumps(wire_messages(context.messages))


STRATEGIES: list[Strategy] = [
    strategies.SlidingWindow(4),
    strategies.TurnWindow(1),
    strategies.TokenWindow(400),
    strategies.KeepUserMessages(200),
    strategies.KeepRecentFraction(0.1),
    strategies.KeepRecentTurns(1),
    strategies.Blocks(keep_first_turns=1, keep_recent_turns=1),
    strategies.Tiered(),
    strategies.Reduce(),
]
TRIGGERS: list[Trigger] = [
    triggers.TurnCount(2),
    triggers.TokenCount(2_000),
    triggers.WindowFraction(0.5),
    triggers.Headroom(),
    triggers.Buffer(),
    triggers.On("message"),
    triggers.On("request"),
    triggers.NeedsFollowUp(),
]


@pytest.mark.deep
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: type(each).__name__)
@pytest.mark.many(6)
@given(events=merged(orderly()))
def test_no_strategy_takes_in_what_a_branch_said(strategy: Strategy, events: list[Event]) -> None:
    context, silent = (Context.of(records_of(log)) for log in (events, silenced(events)))
    cut = strategy(context, BUDGET)
    assert cut == strategy(silent, BUDGET)
    if cut and cut.covers:
        assert not [seq for pair in cut.covers for seq in pair if is_aside(events[seq - 1])]
        event = Compacted(covers=cut.covers, at=cut.at, replacement="what was", tokens=8)
        record = Record(seq=context.length + 1, event=event)
        assert context.add(record) == silent.add(record)
        assert context.add(record).add(Record(seq=record.seq + 1, event=Restored(seq=record.seq))).visible


@pytest.mark.deep
@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda each: type(each).__name__)
@pytest.mark.many(6)
@given(events=merged(orderly()))
def test_no_trigger_fires_for_what_a_branch_said(trigger: Trigger, events: list[Event]) -> None:
    fired = trigger(Context.of(records_of(events)), BUDGET)
    assert fired == trigger(Context.of(records_of(silenced(events))), BUDGET)
    assert trigger(Context.of(records_of(scouting(1) * 9)), BUDGET) is None


def is_aside(event: Event) -> bool:
    return isinstance(event, MessageRecord) and event.branch is not None


@pytest.mark.many(20)
@given(merged(orderly()))
def test_branches_come_back_from_an_export_of_events(events: list[Event]) -> None:
    text = "\n".join(to_events(records_of(events)))
    back = parse(text, count=lambda message: 1)
    assert [encode(event) for event in back] == [encode(event) for event in events]


@pytest.mark.many(25)
@given(merged(st.one_of(histories, orderly())))
def test_the_filter_finds_each_branch_and_the_main_line(events: list[Event]) -> None:
    records = records_of(events)
    scouts = select(records, EventFilter(branch="scout"))
    assert scouts == [record for record in records if getattr(record.event, "branch", None) == "scout"]
    main = select(records, EventFilter(branch=MAIN, kinds=[MessageRecord]))
    assert [record.seq for record in main] == [entry.seq for entry in Context.of(records).said]
    assert to_openai(records) == to_openai(main)


def test_what_a_branch_said_starts_no_turn_and_takes_no_tokens() -> None:
    alone = [added(Message.user("a")), added(Message.assistant("b"))]
    between = [alone[0], aside(Message.user("c")), aside(Message.user("d")), alone[1]]
    with_asides, without = Context.of(records_of(between)), Context.of(records_of(alone))
    assert (with_asides.turns, with_asides.tokens) == (1, without.tokens)
    assert [entry.seq for entry in with_asides.said] == [1, 4]
    assert with_asides.task == with_asides.newest_user == with_asides.first
    assert BUDGET.size(with_asides) == BUDGET.size(without)


@pytest.mark.parametrize("purpose", ["scout", "summary", "memory"])
def test_only_what_the_agent_itself_asked_anchors_the_size(purpose: str) -> None:
    said = MessageRecord(message=Message.user("hello"), tokens=900)
    called = ModelCalled(purpose=purpose, model="m", counted=1000, usage=Usage(input_tokens=1500))
    context = Context.of(records_of([said, called]))
    assert context.anchor("m") is None
    assert context.ratio("m") == 1.0
    assert BUDGET.size(context) == BUDGET.fixed + 900


def scouting(number: int) -> list[Event]:
    """A sub-agent's exchange: larger than the window, by an id that the main line uses too."""
    call = ToolCall(id=f"call_{number}", name="read", arguments='{"name": "x"}')
    return [
        aside(Message.user(f"{MARK} look")),
        aside(Message.assistant(MARK, [call])),
        aside(Message.tool(call.id, MARK + " word" * 9_000)),
        aside(Message.assistant(MARK)),
    ]


def talk(number: int) -> list[Event]:
    """One finished turn of the main line."""
    call = ToolCall(id=f"call_{number}", name="read")
    return [
        added(Message.user(f"ask {number} FACT-{number:06x}")),
        added(Message.assistant(None, [call])),
        added(Message.tool(call.id, f"seen {number} " + "word " * 300)),
        added(Message.assistant(f"told {number} " + "so " * 100)),
    ]


MERGED = [event for number in range(6) for event in (*talk(number), *scouting(number))]


class Looking(Callbacks):
    """Keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[Message] = []

    def before_compaction(self, request: CompactionRequest) -> None:
        self.shown.extend(each.message for each in request.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What a session came to: its requests, its kinds of records, what callbacks were shown, its log."""

    requests: list[ModelRequest]
    kinds: list[str]
    shown: list[Message]
    records: Sequence[Record]


async def lived(events: Sequence[Event], script: Sequence[Any], *, window: int, transcripts: Path) -> Lived:
    """A session with that past: a long run, a compaction by hand, one taken back, and another prompt."""
    store, looking = InMemoryStore(), Looking()
    await store.append("s", events, expect=0)
    model = ScriptedModel(script, window=window, summary=every_fact)
    runner = Runner(Agent(model, tools=[read]), store=store, callbacks=[looking], transcripts=transcripts)
    await runner.run("read it all", session_id="s")
    await runner.compact("s")
    await runner.undo("s")
    await runner.run("and now?", session_id="s")
    records = await store.read("s")
    kinds = [kind_name(type(record.event)) for record in records]
    return Lived(requests=model.requests, kinds=kinds, shown=looking.shown, records=records)


SCRIPT = [*reading(12), "now this"]
TRANSCRIPT = re.compile(r"transcript_[0-9-]+\.jsonl")


def bodies(requests: Sequence[ModelRequest]) -> list[str]:
    """The messages sent, whatever their transcript is called."""
    return [TRANSCRIPT.sub("T", json.dumps(request.messages)) for request in requests]


async def test_a_session_lives_as_if_other_branches_had_said_nothing(tmp_path: Path) -> None:
    merged = await lived(MERGED, SCRIPT, window=6_000, transcripts=tmp_path / "a")
    silent = await lived(silenced(MERGED), SCRIPT, window=6_000, transcripts=tmp_path / "b")
    assert_valid(merged.requests)
    assert bodies(merged.requests) == bodies(silent.requests)
    assert merged.kinds[len(MERGED) :] == silent.kinds[len(MERGED) :]
    assert "compacted" in merged.kinds[len(MERGED) :]
    assert merged.shown == silent.shown
    assert MARK not in "".join(bodies(merged.requests))
    assert not [message for message in merged.shown if MARK in message.text]
    assert [record.event for record in merged.records[: len(MERGED)]] == MERGED


async def test_transcripts_hold_the_main_line_alone(tmp_path: Path) -> None:
    """They are what the model saw, to be read on as one talk; the log and its exports have the rest."""
    merged = await lived(MERGED, SCRIPT, window=6_000, transcripts=tmp_path)
    said = [json.dumps(data) for data in to_openai(merged.records)]
    files = transcripts_in(tmp_path)
    assert files
    for path in files:
        saved = [json.dumps(message.to_openai()) for message in load(path).messages]
        assert set(saved) <= set(said)
        assert len(saved) > 20


async def test_a_small_main_line_is_not_compacted_for_what_branches_said(tmp_path: Path) -> None:
    quiet = await lived(MERGED, ["so", "now this"], window=20_000, transcripts=tmp_path)
    automatic = [record.event for record in quiet.records if isinstance(record.event, Compacted)]
    assert [event.reason for event in automatic] == ["manual"]
    assert [request.purpose for request in quiet.requests] == ["agent", "summary", "agent"]


async def test_what_a_branch_said_last_is_no_prompt_and_no_call_to_answer(tmp_path: Path) -> None:
    store = InMemoryStore()
    asked = ToolCall(id="call_9", name="read", arguments='{"name": "x"}')
    last = [aside(Message.user(MARK)), aside(Message.assistant(None, [asked]))]
    await store.append("s", [*talk(0), *last], expect=0)
    model = ScriptedModel([])
    result = await Runner(Agent(model, tools=[read]), store=store, transcripts=tmp_path).resume("s")
    assert result.output.startswith("told 0")
    assert model.requests == []
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_session_in_which_only_a_branch_spoke_has_nothing_to_resume(tmp_path: Path) -> None:
    store = InMemoryStore()
    await store.append("s", scouting(0), expect=0)
    model = ScriptedModel(["hello"])
    runner = Runner(Agent(model), store=store, transcripts=tmp_path)
    with pytest.raises(UsageError, match="nobody has said anything"):
        await runner.resume("s")
    assert (await runner.run("hi", session_id="s")).output == "hello"
    assert [message["content"] for message in model.requests[0].messages] == ["hi"]


def test_text_to_read_says_which_branch_spoke() -> None:
    shown = to_blocks(records_of([added(Message.user("task")), *scouting(7)[1:3]]))
    assert [line for block in shown for line in block.split("\n") if line.startswith("## ")] == [
        "## 1 User",
        "## 2 Assistant in scout",
        "## 3 Tool in scout: result of `call_7`",
    ]


def test_messages_alone_are_exported_one_line_of_talk_at_a_time() -> None:
    records = records_of([*talk(0), *scouting(0)])
    scout = to_openai(records, only=EventFilter(branch="scout"))
    assert [data["role"] for data in scout] == ["user", "assistant", "tool", "assistant"]
    assert all(MARK in data["content"] for data in scout)
    assert len(to_openai(records, only=EventFilter(last=8))) == 4
