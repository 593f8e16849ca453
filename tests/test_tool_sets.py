"""What tool sets pin stays in sight over compactions, within its room; what they remind of is said once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    Background,
    Compaction,
    Message,
    RunContext,
    Runner,
    Skills,
    SyncRunner,
    Todo,
    Tool,
    ToolSet,
)
from agentloop.codec import decode, encode
from agentloop.compaction import Note
from agentloop.context import Budget, Context
from agentloop.errors import ModelUnavailableError, ToolDefinitionError, UsageError
from agentloop.events import Compacted, Event, Record, Restored
from agentloop.messages import SeenMessage
from agentloop.models import ModelRequest
from agentloop.prompts import KEPT_IN_SIGHT
from agentloop.sessions.checkpoint import checkpoint_of, context_in
from agentloop.stores import SQLiteStore
from agentloop.strategies import Cut, KeepRecentTurns, SlidingWindow, Summary, Tiered, replaced_by
from agentloop.stream import ToolProgress
from agentloop.testing import ScriptedModel, calls
from agentloop.triggers import TurnCount
from tests.kit import added, assert_valid


class Telling(ToolSet):
    """Pins a text and says what it was asked with."""

    instructions = ""

    def __init__(self, text: str = "The gate is KX-4711.", priority: int = 0) -> None:
        self.text, self.priority = text, priority
        self.asked: list[tuple[SeenMessage, ...]] = []

    def pinned(self, said: Sequence[SeenMessage], fits: Callable[[str], bool]) -> str:
        self.asked.append(tuple(said))
        return self.text


class Broken(ToolSet):
    """Fails whatever it is asked."""

    def pinned(self, said: Sequence[SeenMessage], fits: Callable[[str], bool]) -> str:
        raise RuntimeError("no pins today")

    def reminder(self, messages: Sequence[Message]) -> str:
        raise RuntimeError("no reminders today")

    async def notice(self, context: RunContext[Any]) -> str:
        raise RuntimeError("no notices today")

    async def run_ended(self, session_id: str) -> Mapping[str, str]:
        raise RuntimeError("no ends today")


TALK = tuple(f"Tell me of garden number {number}. " + "The snails came. " * 60 for number in range(6))
TWO_TURNS = Compaction(strategy=KeepRecentTurns(1), tool=False)


def talked(agent: Agent, place: Path, *more: str, session_id: str = "s") -> SyncRunner:
    """A runner on a store in that folder, once all of this was said in the session."""
    runner = SyncRunner(agent, store=SQLiteStore(place / "s.db"), transcripts=None)
    for text in more or TALK:
        runner.run(text, session_id=session_id)
    return runner


def replies(count: int = 20) -> list[str]:
    """Answers that differ."""
    return [f"Answer number {number}." for number in range(count)]


def kept_in(request: ModelRequest) -> list[str]:
    """The messages of a request that say what is pinned."""
    texts = [str(message["content"]) for message in request.messages if message["role"] == "user"]
    return [text for text in texts if text.startswith(KEPT_IN_SIGHT)]


def test_what_a_set_pins_stands_behind_the_summary_and_is_replaced_at_the_next(tmp_path: Path) -> None:
    tells = Telling()
    model = ScriptedModel(replies())
    with talked(Agent(model, tools=[tells], compaction=TWO_TURNS), tmp_path) as runner:
        assert runner.compact("s").status == "done"
        runner.run("And now?", session_id="s")
        messages = model.requests[-1].messages
        assert [message["role"] for message in messages[:4]] == ["user", "assistant", "user", "assistant"]
        assert kept_in(model.requests[-1]) == [messages[4]["content"]]
        assert "KX-4711" in str(messages[4]["content"])
        first = kept_in(model.requests[-1])
        runner.run("And then?", session_id="s")
        assert model.requests[-1].messages[: len(messages)] == messages
        tells.text = "The gate is KX-9."
        assert kept_in(model.requests[-1]) == first  # until the next compaction
        assert runner.compact("s").status == "done"
        runner.run("At last?", session_id="s")
        [second] = kept_in(model.requests[-1])
        assert "KX-9." in second
        assert "KX-4711" not in second
        runner.undo("s")
        runner.run("Once more?", session_id="s")
        assert kept_in(model.requests[-1]) == first
        assert_valid(model.requests)


def test_the_log_says_what_was_pinned_and_another_process_sends_the_same_bytes(tmp_path: Path) -> None:
    model = ScriptedModel([*replies(6), ModelUnavailableError("gone"), "Here."])
    agent = Agent(model, tools=[Telling()], compaction=TWO_TURNS)
    with talked(agent, tmp_path) as runner:
        runner.compact("s")
        with pytest.raises(ModelUnavailableError):
            runner.run("And now?", session_id="s")
    other = ScriptedModel(["Here."])
    with SyncRunner(Agent(other), store=SQLiteStore(tmp_path / "s.db"), transcripts=None) as runner:
        assert runner.resume("s").output == "Here."  # without the set
        pinned = [r.event.pinned for r in runner.events("s") if isinstance(r.event, Compacted)]
    assert pinned == kept_in(other.requests[0]) == kept_in(model.requests[-1])
    assert other.requests[0].messages == model.requests[-1].messages


def test_a_set_is_told_what_was_said_and_what_of_it_stays_in_sight(tmp_path: Path) -> None:
    tells = Telling()
    with talked(Agent(ScriptedModel(replies()), tools=[tells], compaction=TWO_TURNS), tmp_path) as runner:
        runner.rewind("s")
        runner.compact("s")
    [said] = tells.asked
    assert [each.message.text for each in said if each.message.role == "user"] == list(TALK[:5])
    assert [each.message.text for each in said if each.in_sight] == [TALK[0], TALK[4], "Answer number 4."]


def test_all_share_one_room_those_of_higher_priority_first(tmp_path: Path) -> None:
    low, high = Telling("low " * 9_000, priority=1), Telling("high " * 100, priority=2)
    model = ScriptedModel(replies(), window=8_000)
    agent = Agent(model, tools=[low, high], compaction=Compaction(strategy=KeepRecentTurns(1), tool=False))
    with talked(agent, tmp_path) as runner:
        foreseen = runner.preview("s")
        result = runner.compact("s")
        assert result.status == "done"
        assert result.tokens_after < 4_000  # the target
        assert foreseen is not None
        assert abs(foreseen.tokens_after - result.tokens_after) < 500
        runner.run("And now?", session_id="s")
    [text] = kept_in(model.requests[-1])
    assert "high " * 99 in text
    assert text.index("high high") < text.index("low low")
    assert "left out" in text
    assert text.count("low") < 1_100


def test_what_fails_or_is_no_text_is_left_out_and_the_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    number = Telling()
    number.text = 7  # type: ignore[assignment]
    sets = [Broken(), number, Telling()]
    add = Tool(name="add", description="Adds.", parameters={"type": "object"}, function=lambda: "3")
    model = ScriptedModel([*replies(6), calls(("add", {})), "Done."])
    with talked(Agent(model, tools=[*sets, add], compaction=TWO_TURNS), tmp_path) as runner:
        assert runner.compact("s").status == "done"
        assert runner.run("Add.", session_id="s").output == "Done."
    [text] = kept_in(model.requests[-1])
    assert "KX-4711" in text
    assert model.requests[-1].messages[-1]["content"] == "3"
    told = caplog.text
    for words in (
        "Broken.pinned",
        "no pins today",
        "Broken.reminder",
        "no notices",
        "no ends",
        "it must give a text, not int",
    ):
        assert words in told


def test_what_is_pinned_never_keeps_a_request_from_being_sent() -> None:
    async def run() -> None:
        model = ScriptedModel(replies(40), window=1_000)
        agent = Agent(model, tools=[Telling("snail " * 900)])
        async with Runner(agent, transcripts=None) as runner:
            for text in TALK * 4:
                await runner.run(text, session_id="s")
        assert_valid(model.requests)

    asyncio.run(run())


@pytest.mark.parametrize("target", [0.16, 0.18, 0.22])
def test_a_tier_comes_to_its_target_with_what_is_pinned(target: float, tmp_path: Path) -> None:
    summary = "They said please and asked for their files. " * 10
    model = ScriptedModel(replies(), window=16_000, summary=summary)
    policy = Compaction(micro=None, trigger=None, strategy=Tiered(target=target))
    asked = [
        " ".join(
            f"Never touch the file src/part_{turn}_{at}.py: it is number {at} of ours." for at in range(25)
        )
        for turn in range(12)
    ]
    agent = Agent(model, tools=[Telling("The gate is KX-4711. " * 30)], compaction=policy)
    with talked(agent, tmp_path, *asked) as runner:
        result = runner.compact("s")
        assert (result.status, result.tier, result.error) == ("done", 2, None)
        runner.run("And now?", session_id="s")
    assert len(kept_in(model.requests[-1])) == 1


def test_a_window_that_slides_pins_too(tmp_path: Path) -> None:
    policy = Compaction(trigger=TurnCount(3), strategy=SlidingWindow(4), tool=False)
    model = ScriptedModel(replies())
    with talked(Agent(model, tools=[Telling()], compaction=policy), tmp_path):
        pass
    assert len(kept_in(model.requests[-1])) == 1


def test_of_summaries_that_stand_side_by_side_the_newest_alone_pins(tmp_path: Path) -> None:
    def two_more(context: Context, budget: Budget) -> Cut:
        oldest = [entry.seq for entry in context.visible if entry.kind == "said"][1:3]
        return Cut(covers=((oldest[0], oldest[1]),), at=oldest[0], instead=Summary())

    model = ScriptedModel(replies())
    with talked(Agent(model, tools=[Telling()], compaction=TWO_TURNS), tmp_path) as runner:
        assert [runner.compact("s", strategy=two_more).status for _ in range(2)] == ["done"] * 2
        runner.run("And now?", session_id="s")
        pinned = [r.event.pinned for r in runner.events("s") if isinstance(r.event, Compacted)]
    assert kept_in(model.requests[-1]) == pinned[1:]
    texts = [str(message["content"]) for message in model.requests[-1].messages]
    assert sum(text.startswith("[Conversation compressed") for text in texts) == 2


def test_a_compaction_that_only_shortens_leaves_what_is_pinned() -> None:
    said = [added(Message.user(f"u{at}")) for at in range(4)]
    fold = Compacted(covers=((1, 2),), replacement="S", at=1, tokens=3, pinned="P", pinned_tokens=2)
    short = Compacted(covers=(), replacement="", at=1, tokens=0)
    context = Context.of(records([*said, fold, short]))
    assert [message.text for message in context.messages] == ["S", "P", "u2", "u3"]
    assert context.tokens == Context.of(records([*said, fold])).tokens


def records(events: Sequence[Event]) -> list[Record]:
    """The events as a log."""
    return [Record(seq=seq, event=event) for seq, event in enumerate(events, 1)]


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Messages, compactions of what is before them that pin or do not, and some that are taken back."""
    events: list[Event] = [added(Message.user("begin"))]
    for at in range(draw(st.integers(1, 12))):
        standing = Context.of(records(events)).compactions
        match draw(st.sampled_from(["say", "fold", "block", "short", "undo"])):
            case "say":
                events.append(added(Message.user(f"u{at}")))
            case "undo" if standing:
                events.append(Restored(seq=standing[-1][0]))
            case "short":
                events.append(Compacted(covers=(), replacement="", at=1, tokens=0, pinned=""))
            case kind:
                last = len(events)
                first = 1 if kind == "fold" else max(1, last - 1)
                pinned = draw(st.sampled_from(["", "P", f"P{at}"]))
                size = len(pinned)
                events.append(
                    Compacted(
                        covers=((first, last),),
                        replacement=f"S{at}",
                        at=first,
                        tokens=3,
                        answer=draw(st.sampled_from(["", "A"])),
                        answer_tokens=1,
                        pinned=pinned,
                        pinned_tokens=size,
                    )
                )
    return events


@pytest.mark.many(80)
@given(logs())
def test_of_all_pins_the_newest_is_in_sight_however_the_log_is_folded(events: list[Event]) -> None:
    log = records(events)
    whole = Context.of(log)
    grown = Context()
    for record in log:
        grown = grown.add(record)
    assert list(grown.visible) == list(whole.visible)
    assert grown.tokens == whole.tokens
    folds = [event for _, event in whole.compactions if event.covers]
    shown = [entry.message.text for entry in whole.visible if entry.message.text.startswith("P")]
    assert shown == ([folds[-1].pinned] if folds and folds[-1].pinned else [])
    kept = context_in(checkpoint_of(whole, "id", tail=1))
    assert kept is not None
    assert [e.message for e in kept.visible] == [e.message for e in whole.visible]
    later = [added(Message.user("more")), Compacted(covers=((1, 1),), replacement="S", at=1, tokens=1)]
    more = [Record(seq=len(log) + at, event=event) for at, event in enumerate(later, 1)]
    assert [e.message for e in kept.add(*more).visible] == [e.message for e in whole.add(*more).visible]


def test_a_record_without_pins_is_written_as_before_and_one_with_them_comes_back() -> None:
    plain = Compacted(covers=((1, 2),), replacement="S", at=1, tokens=3)
    assert "pinned" not in encode(plain)
    full = Compacted(covers=((1, 2),), replacement="S", at=1, tokens=3, pinned="P", pinned_tokens=2)
    assert decode(encode(full)) == full


def test_instructions_of_sets_stand_behind_those_of_the_agent() -> None:
    class House(ToolSet):
        instructions = "The house is number 7."

    model = ScriptedModel(["Yes."] * 2)
    for given_ in ("Be brief.", None):
        with SyncRunner(Agent(model, tools=[House()], instructions=given_), transcripts=None) as runner:
            runner.run("Hello?")
    systems = [request.messages[0]["content"] for request in model.requests]
    assert systems == ["Be brief.\n\nThe house is number 7.", "The house is number 7."]


def test_a_reminder_stands_behind_the_first_result_of_a_batch_alone() -> None:
    class Nagging(ToolSet):
        def reminder(self, messages: Sequence[Message]) -> str:
            return f"{len(messages)} messages"

    def echo(text: str) -> str:
        """Say it again."""
        return text

    model = ScriptedModel([calls(("echo", {"text": "a"}), ("echo", {"text": "b"})), "Done."])
    with SyncRunner(Agent(model, tools=[Nagging(), echo]), transcripts=None) as runner:
        runner.run("Say it.")
    results = [message["content"] for message in model.requests[-1].messages if message["role"] == "tool"]
    assert results == ["a\n[Reminder: 2 messages]", "b"]


def test_a_reminder_stands_behind_the_first_result_beside_a_compaction_that_the_model_asks_for() -> None:
    class Nagging(ToolSet):
        def reminder(self, messages: Sequence[Message]) -> str:
            return "still here"

    def echo(text: str) -> str:
        """Say it again."""
        return text

    model = ScriptedModel([calls(("compact", {}), ("echo", {"text": "a"})), "Done."])
    with SyncRunner(Agent(model, tools=[Nagging(), echo]), transcripts=None) as runner:
        runner.run("Say it.")
    results = [message["content"] for message in model.requests[-1].messages if message["role"] == "tool"]
    assert results[1] == "a\n[Reminder: still here]"


def test_a_long_reminder_behind_a_result_that_is_kept_leaves_room_for_the_rest() -> None:
    class Nagging(ToolSet):
        def reminder(self, messages: Sequence[Message]) -> str:
            return "again " * 4_000

    items = {"items": [{"content": "Dig.", "status": "pending"}]}
    model = ScriptedModel([calls(("todo_write", items)), "Done.", "Still here."], window=3_000)
    with SyncRunner(Agent(model, tools=[Todo(), Nagging()]), transcripts=None) as runner:
        assert runner.run("Begin.", session_id="s").output == "Done."
        assert runner.run("And now?", session_id="s").output == "Still here."
    [result] = [str(each["content"]) for each in model.requests[-1].messages if each["role"] == "tool"]
    assert result.startswith("[Todo list]\n[ ] Dig.\n[Reminder: again again")
    assert "left out" in result
    assert result.count("again") < 250


def test_tools_of_sets_are_held_to_the_rules_of_tools() -> None:
    class Twice(ToolSet):
        @property
        def tools(self) -> Sequence[Tool]:
            return [Tool(name="x", description="", parameters={}, function=len)] * 2

    twice = r"two tools are called 'todo_write', both agentloop\.toolsets\.todo\.todo_write: give it once, or"
    with pytest.raises(ToolDefinitionError, match=twice):
        Agent(ScriptedModel([]), tools=[Todo(), Todo()])
    with pytest.raises(ToolDefinitionError, match="two tools are called 'x'"):
        Agent(ScriptedModel([]), tools=[Twice()])
    for odd in ("first", None, True):
        with pytest.raises(UsageError, match=r"Telling\.priority must be a finite number"):
            Agent(ScriptedModel([]), tools=[Telling(priority=odd)])  # type: ignore[arg-type]
    told = Telling()
    told.instructions = 7  # type: ignore[misc, assignment]
    with pytest.raises(UsageError, match=r"Telling\.instructions must be"):
        Agent(ScriptedModel([]), tools=[told])
    odd_set = type("Odd", (ToolSet,), {"tools": 5})()
    with pytest.raises(UsageError, match=r"Odd\.tools must be a list of tools, not 5"):
        Agent(ScriptedModel([]), tools=[odd_set])
    with pytest.raises(UsageError, match="tools must be a list"):
        Agent(ScriptedModel([]), tools=Telling())  # type: ignore[arg-type]


def test_a_note_instead_of_a_summary_is_followed_by_what_is_pinned(tmp_path: Path) -> None:
    policy = Compaction(strategy=replaced_by(KeepRecentTurns(1), Note("gone")), tool=False)
    model = ScriptedModel(replies())
    with talked(Agent(model, tools=[Telling()], compaction=policy), tmp_path) as runner:
        assert runner.compact("s").status == "done"
        runner.run("And now?", session_id="s")
    assert len(kept_in(model.requests[-1])) == 1


async def test_what_a_set_tells_stands_behind_one_result_and_is_shown_at_the_end() -> None:
    class Doors(ToolSet):
        """Tells of each call once, and at the end which was told last."""

        def __init__(self) -> None:
            self.last = ""

        async def notice(self, context: RunContext[Any]) -> str:
            told = [each.message.text for each in await context.said()]
            self.last = context.call_id
            return f"door {sum('a door' in text for text in told)} is a door"

        async def run_ended(self, session_id: str) -> Mapping[str, str]:
            return {self.last: f"closed in {session_id}"}

    async def both(context: RunContext[Any]) -> str:
        """Call another tool."""
        return (await context.call_tool("add", {})).text + (await context.call_tool("none", {})).text

    add = Tool(name="add", description="Adds.", parameters={"type": "object"}, function=lambda: "3")
    steps = [calls(("add", {}), ("add", {})), calls(both={})]
    model = ScriptedModel([*steps, "Done."])
    async with Runner(Agent(model, tools=[Doors(), add, both]), transcripts=None) as runner:
        events = [event async for event in runner.stream("Go.", session_id="s")]
    results = [str(each["content"]) for each in model.requests[-1].messages if each["role"] == "tool"]
    assert results[0] == "3\n[Reminder: door 0 is a door]"
    assert results[1] == "3"
    assert results[2].startswith("3There is no tool 'none'.")
    assert results[2].endswith("\n[Reminder: door 1 is a door]")
    told = [(each.call_id, each.text) for each in events if isinstance(each, ToolProgress)]
    assert told == [(steps[1][0].id, "closed in s")]


def test_the_list_skills_jobs_and_a_note_of_ones_own_share_one_message(tmp_path: Path) -> None:
    (tmp_path / "skills/tea").mkdir(parents=True)
    (tmp_path / "skills/tea/SKILL.md").write_text("---\nname: tea\ndescription: Tea.\n---\nBoil it.\n")
    begun = calls(
        ("todo_write", {"items": [{"content": "paint", "status": "pending"}]}),
        ("read_skill", {"name": "tea"}),
        ("run_in_background", {"command": "true"}),
    )
    model = ScriptedModel([begun, *replies(12)])
    note = Telling("My note: KX-4711.", priority=7)
    sets = [note, Skills(tmp_path / "skills"), Background(workdir=tmp_path), Todo()]
    with talked(Agent(model, tools=sets, compaction=TWO_TURNS), tmp_path) as runner:
        assert runner.compact("s").status == "done"
        for text in ("And now?", "And then?"):
            runner.run(text, session_id="s")
            [kept] = kept_in(model.requests[-1])
        [pinned] = [r.event.pinned for r in runner.events("s") if isinstance(r.event, Compacted)]
    assert pinned == kept
    places = [kept.index(words) for words in ("[ ] paint", "My note", "[Jobs in", "Boil it.")]
    assert places == sorted(places)
