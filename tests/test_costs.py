"""L14: what a step does is in proportion to what is new, counted in operations instead of time."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import agentloop
from agentloop.compaction import Compaction
from agentloop.context.guard import STRIKES
from agentloop.events import Compacted, MessageRecord, ModelCalled, NotCompacted
from agentloop.messages import Message
from agentloop.run import Agent
from agentloop.run.execute import RunSteps
from agentloop.run.loop import loop
from agentloop.run.model_step import request_for
from agentloop.sessions import Session
from agentloop.stores import InMemoryStore
from agentloop.strategies import MicroCompact
from agentloop.testing import ScriptedModel, calls
from agentloop.triggers import Fired
from tests.benchmarks.conversation import conversation, run_on, step
from tests.store_kit import CountingStore

PACKAGE = str(Path(agentloop.__file__).parent)
SMALL, LARGE = 1_000, 10_000
WINDOW = 100_000_000
A_FEW = 8
NEWEST = 8
"""How far back a step may look: the messages that clearing keeps, and the last exchange."""


class Watched(Message):
    """A message that notes in `read` who of its kind was looked into."""

    read: set[int] = set()  # noqa: RUF012 — one for all, that is the point

    def __getattribute__(self, name: str) -> Any:
        Watched.read.add(id(self))
        return super().__getattribute__(name)

    @classmethod
    def of(cls, message: Message) -> "Watched":
        return cls(
            role=message.role,
            content=message.content,
            tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id,
        )


class CountingCounter:
    """Counts a token a word, and notes what it was given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str, /) -> int:
        self.texts.append(text)
        return len(text.split())


async def session_of(length: int, kind: Callable[[Message], Message] = lambda message: message) -> Session:
    """A session of so many messages, turns of four, in a store that counts."""
    session = await Session.open("s", CountingStore())
    messages = map(kind, islice(conversation(), length))
    return await session.append(*map(added, messages))


async def compacted(session: Session, *, visible: int) -> Session:
    """The session with all but its newest messages standing as one summary."""
    last = session.context.visible[-visible - 1].seq
    event = Compacted(covers=((1, last),), replacement="what was said", at=last + 1, tokens=9)
    return await session.append(event)


def added(message: Message) -> MessageRecord:
    """The record of a message."""
    return MessageRecord(message=message, tokens=90)


def moved_in(session: Session) -> list[tuple[str, int]]:
    """What its store moves from now on."""
    assert isinstance(session.store, CountingStore)
    session.store.moved.clear()
    return session.store.moved


@contextmanager
def operations() -> Iterator[Counter[str]]:
    """Counts the calls that agentloop's code gets and makes in this block, generators' steps among them."""
    counted: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(PACKAGE):
            counted[event] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield counted
    finally:
        sys.setprofile(before)


@pytest.mark.deep
@pytest.mark.parametrize("micro", [MicroCompact(), None], ids=["clears in batches", "clears nothing"])
async def test_l14_a_step_takes_as_many_operations_at_10_000_messages(micro: MicroCompact | None) -> None:
    counted = []
    for length in (SMALL, LARGE):
        run, session = run_on(Compaction(micro=micro), window=WINDOW), await session_of(length)
        session = await step(run, session, Message.user("by now all is loaded"))
        with operations() as step_by_step:
            await step(run, session, Message.user("and now?"))
        counted.append(step_by_step.total())
    assert counted[1] <= counted[0] + A_FEW
    assert counted[0] < 1_000


async def test_l14_a_step_in_a_pause_of_the_guard_takes_as_many_operations_in_a_long_turn() -> None:
    counted = []
    for length in (SMALL, LARGE):
        run = run_on(Compaction(trigger=lambda context, budget: Fired(why="always")), window=WINDOW)
        session = await Session.open("s", InMemoryStore())
        turn = (message for message in conversation() if message.role != "user")
        session = await session.append(*map(added, (Message.user("one long turn"), *islice(turn, length))))
        assert session.context.guard.allows(size=0, limit=WINDOW)
        vain = NotCompacted(status="failed", reason="threshold", before=WINDOW)
        for _ in range(STRIKES):
            session = await session.append(vain, ModelCalled(purpose="agent", model="m"))
        assert not session.context.guard.allows(size=WINDOW, limit=WINDOW)
        session = await step(run, session, Message.assistant("by now all is loaded"))
        with operations() as of_the_step:
            await step(run, session, Message.assistant("and on"))
        counted.append(of_the_step.total())
    assert counted[1] <= counted[0] + A_FEW


async def test_l14_a_step_looks_into_no_old_message() -> None:
    run, session = run_on(Compaction(), window=WINDOW), await session_of(SMALL, Watched.of)
    session = await step(run, session, Message.user("by now all is loaded"))
    Watched.read.clear()
    await step(run, session, Message.user("and now?"))
    newest = {id(entry.message) for entry in session.context.visible[-NEWEST:]}
    assert Watched.read <= newest


async def test_l14_a_step_counts_the_tokens_of_the_new_message_alone() -> None:
    counter = CountingCounter()
    run, session = run_on(Compaction(), window=WINDOW, counter=counter), await session_of(SMALL)
    await step(run, session, Message.user("only this is new"))
    assert counter.texts == ["only this is new"]


async def test_l14_no_text_is_counted_twice_however_often_results_are_cleared() -> None:
    counter = CountingCounter()
    policy = Compaction(micro=MicroCompact(min_gain_tokens=20), trigger=None)
    run, session = run_on(policy, window=WINDOW, counter=counter), await session_of(0)
    for message in islice(conversation(words=(13, 45, 21)), 400):
        session = await step(run, session, message)
    assert 10 < len(session.context.cleared) < 90, "clearing pays for some results and not for others"
    long = Counter(text for text in counter.texts if len(text) > 100)
    assert sum("[truncated" in text for text in long) >= len(session.context.cleared)
    assert max(long.values()) == 1


async def test_l14_a_step_writes_what_is_new_and_reads_nothing() -> None:
    session = await session_of(SMALL)
    moved = moved_in(session)
    await step(run_on(Compaction(), window=WINDOW), session, Message.user("and now?"))
    assert moved == [("append", 2)]


@pytest.mark.parametrize(("length", "not_covered"), [(SMALL - 1, SMALL - 1), (SMALL, 1), (SMALL + 9, 1)])
async def test_a_session_reads_what_no_checkpoint_covers_once_and_then_what_is_new(
    length: int, not_covered: int
) -> None:
    """And the last record that it knows, which tells whether it is the same log."""
    session = await session_of(length)
    moved = moved_in(session)
    other = await Session.open(session.id, session.store)
    await session.append(added(Message.user("from elsewhere")))
    assert (await other.reload()).context.length == length + 1
    assert moved == [("read", not_covered), ("append", 1), ("read", 2)]


async def test_l14_a_request_is_built_from_the_visible_context_alone() -> None:
    run, session = run_on(Compaction(), window=WINDOW), await session_of(SMALL, Watched.of)
    session = await compacted(session, visible=40)
    Watched.read.clear()
    request = request_for(run, session)
    assert len(request.messages) == len(session.context.visible) + 1 <= 42
    assert Watched.read == {id(entry.message) for entry in session.context.visible if entry.kind == "said"}


@pytest.mark.deep
async def test_l14_a_compacted_session_runs_with_as_many_operations_whatever_its_log_holds() -> None:
    counted = []
    for length in (SMALL, SMALL, LARGE):
        run, session = run_on(Compaction(), window=WINDOW), await session_of(length)
        session = await compacted(session, visible=40)
        agent = Agent(ScriptedModel([calls(look={"path": "a"}), "It says so."]), tools=[look])
        run.config = replace(run.config, agent=agent)
        session = await session.append(added(Message.user("Look once more.")))
        with operations() as of_the_run:
            ended = await loop(RunSteps(run=run, session=session))
        assert ended.output == "It says so."
        counted.append(of_the_run.total())
    _, small, large = counted
    assert large <= small * 1.01  # the texts in sight are others


async def look(path: str) -> str:
    """Look into a file."""
    return f"{path} is read"
