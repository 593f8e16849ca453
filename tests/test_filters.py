"""The filter over records: what it takes, what it refuses, and where callbacks use it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.callbacks import Callbacks
from agentloop.context import Context
from agentloop.errors import UsageError
from agentloop.events import (
    KINDS,
    MAIN,
    AnyEvent,
    Compacted,
    Event,
    EventFilter,
    MessageRecord,
    ModelCalled,
    Noted,
    Record,
    Restored,
    RunEndRecord,
    RunStartRecord,
    TurnMap,
    Unknown,
    archived_in,
    holds,
    select,
    visible_in,
)
from agentloop.messages import Message, ToolCall
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.strategies import KeepRecentFraction
from agentloop.stream import CompactionRequest, Positioned
from agentloop.testing import ScriptedModel
from tests.cli_kit import agentloop
from tests.kit import BUDGET, added, context_of, histories, orderly, read, reading, records_of


def said(text: str, *, branch: str | None = None, run_id: str = "") -> MessageRecord:
    return MessageRecord(message=Message.user(text), tokens=1, branch=branch, run_id=run_id)


LOG = records_of(
    [
        RunStartRecord(run_id="r1"),
        said("a", run_id="r1"),
        said("b", run_id="r9", branch="scout"),
        said("c", branch="other"),
        ModelCalled(purpose="agent", model="m"),
        Compacted(covers=((2, 2),), replacement="a", at=3, tokens=1),
        RunEndRecord(run_id="r1", status="answered"),
        Noted(source="memory"),
        Unknown(kind="dreamt", body='{"v":2,"kind":"dreamt"}'),
        said("d", run_id="r2"),
    ]
)


def taken(only: EventFilter) -> list[int]:
    return [record.seq for record in select(LOG, only)]


@pytest.mark.parametrize(
    ("only", "seqs"),
    [
        (EventFilter(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (EventFilter(branch="scout"), [3]),
        (EventFilter(branch="nobody"), []),
        (EventFilter(branch=MAIN), [1, 2, 5, 6, 7, 8, 9, 10]),
        (EventFilter(run_id="r1"), [1, 2, 7]),
        (EventFilter(run_id="r9", branch=MAIN), []),
        (EventFilter(run_id=""), [4]),
        (EventFilter(kinds=["message_added"]), [2, 3, 4, 10]),
        (EventFilter(kinds=(MessageRecord, "compacted")), [2, 3, 4, 6, 10]),
        (EventFilter(kinds={"unknown"}), [9]),
        (EventFilter(kinds=()), []),
        (EventFilter(first=9), [9, 10]),
        (EventFilter(last=2), [1, 2]),
        (EventFilter(first=4, last=4), [4]),
        (EventFilter(first=40), []),
        (EventFilter(branch=MAIN, kinds=(MessageRecord,), run_id="r2", first=3, last=10), [10]),
    ],
)
def test_a_filter_takes_what_is_all_of_what_is_asked_for(only: EventFilter, seqs: list[int]) -> None:
    assert taken(only) == seqs


def test_without_a_filter_everything_is_taken() -> None:
    assert select(iter(LOG), None) == LOG


events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        said,
        st.just("x"),
        branch=st.sampled_from([None, "scout", "other"]),
        run_id=st.sampled_from(["", "r1", "r2"]),
    ),
    st.sampled_from([record.event for record in LOG]),
)
parts: dict[str, st.SearchStrategy[Any]] = {
    "branch": st.sampled_from([MAIN, "scout", "nobody"]),
    "kinds": st.sets(st.sampled_from(KINDS)),
    "run_id": st.sampled_from(["r1", "r3"]),
    "first": st.integers(1, 12),
    "last": st.integers(12, 30),
}


@given(st.lists(events, max_size=20), st.fixed_dictionaries({}, optional=parts))
def test_each_part_narrows_by_itself_and_the_order_stays(log: list[Event], asked: dict[str, Any]) -> None:
    records = records_of(log)
    each = [set(map(seq_of, select(records, EventFilter(**{name: asked[name]})))) for name in asked]
    seqs = [record.seq for record in select(records, EventFilter(**asked))]
    assert seqs == [record.seq for record in records if all(record.seq in some for some in each)]


def seq_of(record: Record) -> int:
    return record.seq


def test_kinds_are_the_same_by_name_and_by_class_and_in_any_order() -> None:
    by_name, by_class = EventFilter(kinds=["compacted", "noted"]), EventFilter(kinds=(Noted, Compacted))
    assert by_name == by_class
    assert len({by_name, by_class}) == 1
    assert len(KINDS) == len(AnyEvent.__args__)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"kinds": ["dreamt"]}, r"kinds must be of message_added, .*compacted.*, not 'dreamt'"),
        ({"kinds": [Message]}, r"kinds must be of message_added, .*, not 'Message'"),
        ({"kinds": [[]]}, r"kinds must be of message_added, .*, not \[\]"),
        ({"kinds": "message_added"}, r"kinds must be several kinds, .*, not 'message_added'"),
        ({"kinds": MessageRecord}, r"kinds must be several kinds"),
        ({"kinds": 5}, r"kinds must be several kinds, .*, not 5"),
        ({"branch": 5}, r"branch must be a text, not 5"),
        ({"run_id": b"r"}, r"run_id must be a text, not b'r'"),
        ({"first": 0}, r"first must be a whole number of at least 1, not 0"),
        ({"first": True}, r"first must be a whole number of at least 1, not True"),
        ({"last": -3}, r"last must be a whole number of at least 1, not -3"),
        ({"last": 2.5}, r"last must be a whole number of at least 1, not 2.5"),
        ({"first": 9, "last": 8}, r"last must be a whole number of at least 9, not 8"),
    ],
)
def test_what_can_be_no_filter_is_refused_by_its_name(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=rf"^{says}[^\n]*$"):
        EventFilter(**asked)


class Looking(Callbacks):
    """Keeps what it was shown."""

    def __init__(self) -> None:
        self.requests: list[CompactionRequest] = []

    def before_compaction(self, request: CompactionRequest) -> None:
        self.requests.append(request)


async def test_a_callback_selects_among_the_messages_about_to_go(tmp_path: Path) -> None:
    model = ScriptedModel([*reading(3), "then"])
    looking = Looking()
    runner = Runner(Agent(model, tools=[read]), callbacks=[looking], transcripts=tmp_path)
    runs = [(await runner.run(prompt, session_id="s")).run_id for prompt in ("one", "two")]
    await runner.compact("s")
    (request,) = looking.requests
    positions = [each.seq for each in request.messages]
    assert len(positions) > 3
    first, *_, last = positions
    assert request.select(EventFilter()) == request.messages
    assert seqs(request.select(EventFilter(first=first + 1, last=last - 1))) == positions[1:-1]
    assert request.select(EventFilter(branch=MAIN, kinds=(MessageRecord,))) == request.messages
    assert request.select(EventFilter(branch="scout")) == ()
    assert request.select(EventFilter(kinds=("compacted",))) == ()
    assert request.select(EventFilter(run_id=runs[0])) == request.messages


def seqs(messages: tuple[Positioned, ...]) -> list[int]:
    return [each.seq for each in messages]


def test_messages_of_several_runs_are_told_apart() -> None:
    messages = tuple(
        Positioned(seq=seq, message=Message.user("x"), run_id=run_id)
        for seq, run_id in enumerate(("a", "b", "a"), 1)
    )
    request = CompactionRequest(
        session_id="s", run_id="c", reason="manual", why="asked for", messages=messages, tokens_before=9
    )
    assert seqs(request.select(EventFilter(run_id="a"))) == [1, 3]
    assert seqs(request.select(EventFilter(run_id="a", first=2))) == [3]
    assert request.select(EventFilter(run_id="c")) == ()


TALK = records_of(
    [
        said("Where is the KEY?", run_id="r1"),
        MessageRecord(
            message=Message.assistant(None, [ToolCall(id="c", name="look", arguments='{"at": "key"}')]),
            tokens=1,
        ),
        MessageRecord(message=Message.tool("c", "Under the mat."), tokens=1),
        said("below", branch="scout.a"),
        said("beside", branch="scouting"),
        Compacted(covers=((1, 3),), replacement="The key was sought.", at=1, tokens=1),
        said("And the door?", run_id="r2"),
        MessageRecord(message=Message.assistant("Green."), tokens=1),
    ]
)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ({"text": "key"}, [1, 2, 6]),
        ({"regex": r"(?i)^the key|mat\.$"}, [3, 6]),
        ({"branch": "scout"}, [4]),
        ({"synthetic": True}, [6]),
        ({"synthetic": False}, [1, 2, 3, 4, 5, 7, 8]),
        ({"archived": True}, [1, 2, 3]),
        ({"archived": False}, [6, 7, 8]),
        ({"newest": 2}, [7, 8]),
        ({"newest": 0}, []),
        ({"skip": 2, "most": 3}, [3, 4, 5]),
        ({"archived": False, "synthetic": False, "newest": 1}, [8]),
        ({"text": "key", "skip": 1, "most": 1}, [2]),
    ],
)
def test_what_filters_take_of_a_log(asked: dict[str, Any], taken: list[int]) -> None:
    assert [record.seq for record in select(TALK, EventFilter(**asked))] == taken


@pytest.mark.parametrize("asked", [{"regex": "("}, {"text": 5}, {"newest": -1}, {"most": 1.5}])
def test_filters_that_make_no_sense_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        EventFilter(**asked)


@given(st.one_of(histories, orderly()), st.lists(st.sampled_from(["compact", "undo"]), max_size=4))
def test_what_is_visible_is_what_the_model_sees(messages: list[Message], steps: list[str]) -> None:
    events: list[Event] = list(map(added, messages))
    context = context_of(messages)
    for step in steps:
        cut = KeepRecentFraction(0.3)(context, BUDGET)
        if step == "undo" and context.compactions:
            events.append(Restored(seq=context.compactions[-1][0]))
        elif cut:
            events.append(Compacted(covers=cut.covers, at=cut.at, replacement="what was said", tokens=3))
        context = Context.of(records_of(events))
    records = records_of(events)
    seen = {entry.seq for entry in context.visible}
    assert {record.seq for record in records if holds(visible_in(records), record.seq)} == seen
    hidden = {record.seq for record in records if holds(archived_in(records), record.seq)}
    assert hidden.isdisjoint(seen)
    assert {at for at, event in enumerate(events, 1) if isinstance(event, MessageRecord)} <= hidden | seen


def test_turns_of_a_log() -> None:
    turns = TurnMap.of(TALK)
    assert (len(turns), turns.positions(1), turns.positions(2)) == (2, (1, 6), (7, 8))
    assert (turns.run(1), turns.run(2)) == ("r1", "r2")
    assert [turns.turn_at(position) for position in (0, 1, 6, 7, 8, 9)] == [None, 1, 1, 2, 2, None]
    assert turns.slice(TALK, 2) == TALK[6:]
    assert turns.slice(TALK, 1, 2) == TALK
    assert len(TurnMap.of([])) == 0
    for wrong in (0, 3, -1, True, "1"):
        with pytest.raises(UsageError):
            turns.positions(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        turns.slice(TALK, 2, 1)


@pytest.mark.deep
def test_the_command_line_shows_what_is_asked_for(tmp_path: Path) -> None:
    for prompt in ("Where is the KEY?", "And the door?"):
        agentloop("-m", "offline", "-p", prompt, "--session", "s", cwd=tmp_path)
    found = agentloop("sessions", "show", "s", "--grep", "(?i)the key", "--real", cwd=tmp_path)
    assert "## 3 User\n\nWhere is the KEY?" in found.out
    assert "And the door?" not in found.out
    agentloop("rewind", "s", cwd=tmp_path)
    seen = agentloop("sessions", "show", "s", "--visible", cwd=tmp_path).out
    gone = agentloop("sessions", "show", "s", "--archived", cwd=tmp_path).out
    assert ("And the door?" in seen, "And the door?" in gone) == (False, True)
    wrong = agentloop("sessions", "show", "s", "--grep", "(", cwd=tmp_path)
    assert wrong.status == 2
    newest = agentloop("sessions", "show", "s", "--real", "--tail", "2", "--json", cwd=tmp_path).out
    said = [each["message"]["content"] for each in json.loads(newest)]
    assert (said[0], len(said)) == ("And the door?", 2)
    first = agentloop("sessions", "show", "s", "--tail", "1", "--range", "1-4", cwd=tmp_path).out
    assert first.endswith("## 3 User\n\nWhere is the KEY?\n")


NOTHING = "nothing in the session is all of what was asked for"
SILENT = f"{NOTHING}, or it holds no text: --json or --format events shows that"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["--grep", "zebra"], SILENT),
        (["--synthetic"], SILENT),
        (["--archived"], SILENT),
        (["--range", "90-"], SILENT),
        (["--kind", "restored", "--grep", "KEY"], SILENT),
        (["--range", "1-2", "--real"], SILENT),
        (["--kind", "run_ended"], SILENT),
        (["--branch", "scout"], "--branch: the session has no 'scout'; it has 'main'"),
    ],
)
def test_what_finds_nothing_in_a_session_is_named(asked: list[str], says: str, session_folder: Path) -> None:
    done = agentloop("sessions", "show", "s", *asked, cwd=session_folder)
    assert (done.out, done.complaint()) == ("", f"agentloop: {says}")


@pytest.fixture(scope="module")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the session `s` of one question."""
    folder = tmp_path_factory.mktemp("session")
    agentloop("-m", "offline", "-p", "Where is the KEY?", "--session", "s", cwd=folder)
    return folder
