"""A scripted session that notes what it does: its tools, its model, its store, and the points it comes to.

It compacts twice, clears results, keeps a long result in a file, and runs tools side by side. Its processes
may be killed anywhere (`tests.kill_kit`); `tests.kill_checks` then judges what is left.
"""

import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import agentloop.sessions.checkpoint
from agentloop import Agent, Callbacks, Compaction, MicroCompact, RunContext, Runner, tool
from agentloop.context import count_request, counter_for
from agentloop.errors import AgentLoopError, UsageError
from agentloop.events import Compacted, Event, MessageRecord
from agentloop.messages import Message
from agentloop.models import ModelPart, ModelRequest
from agentloop.providers.local import answer_of, streamed
from agentloop.stores import SessionStore, SQLiteStore
from agentloop.stream import CompactionRequest, CompactionResult
from agentloop.testing import calls
from tests.kit import body_of, every_fact
from tests.strict_rules import violations

Json: TypeAlias = dict[str, Any]

ID = "s"
PROMPT = "Do all of the work. FACT-0000ff"
BATCHES: tuple[tuple[tuple[str, int], ...], ...] = (
    (("once", 400),),
    (("again", 400), ("once", 400)),
    (("once", 2_500),),
    (("once", 400), ("once", 400), ("again", 20)),
    (("again", 400),),
    (("once", 400),),
    (("again", 400), ("once", 400)),
    (("once", 400),),
)
"""What the model asks for, batch by batch: a tool, and how many words it gives."""

POLICY = Compaction(micro=MicroCompact(keep_messages=4, min_gain_tokens=700), tool=False)
WINDOW = 3_000
NAME = "planned"


def once(context: RunContext["World"], number: int, words: int) -> str:
    """Take effect; never twice."""
    return context.deps.effect("once", context.call_id, number, words)


@tool(idempotent=True)
def again(context: RunContext["World"], number: int, words: int) -> str:
    """Take effect; again does no harm."""
    return context.deps.effect("again", context.call_id, number, words)


class World:
    """One folder with a session's database and files, and what its processes leave behind to be judged by.

    `hold` is a label and a number: the process stops where it comes to that label for that time, until it is
    killed or let go on.
    """

    def __init__(
        self, folder: Path, *, store: Callable[[], Any] | None = None, hold: Sequence[Any] | None = None
    ) -> None:
        self.folder, self.store = folder, store
        self.database, self.transcripts = folder / "disc" / "sessions.db", folder / "disc" / "transcripts"
        self._hold, self._told, self._let_go = hold, -1, -1
        self.reached: Counter[str] = Counter()
        self._lock = threading.Lock()

    def watched(self, told: int, let_go: int) -> None:
        """Say what happens through one descriptor from now on, and wait on the other where it holds."""
        self._told, self._let_go = told, let_go

    def tell(self, **said: Any) -> None:
        os.write(self._told, (json.dumps(said) + "\n").encode())

    def reach(self, label: str) -> None:
        """Come to a point; where it is the drawn one, say so and wait."""
        with self._lock:
            self.reached[label] += 1
            drawn = self._hold and [label, self.reached[label]] == list(self._hold)
        if drawn:
            self.tell(held=label)
            os.read(self._let_go, 1)

    def note(self, name: str, **line: Any) -> None:
        """A line at the end of a file, in one write: it stands there once this returns, whoever dies."""
        file = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, (json.dumps({"pid": os.getpid(), **line}) + "\n").encode())
        finally:
            os.close(file)

    def noted(self, name: str) -> list[Json]:
        """The lines of such a file."""
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def effect(self, name: str, call_id: str, number: int, words: int) -> str:
        self.reach("tool, before its effect")
        self.note("effects", tool=name, call=call_id, number=number)
        self.reach("tool, after its effect")
        return f"FACT-{number:06x} done {number} " + "word " * words + f"FACT-{number + 4096:06x}"


class Planned:
    """A model that asks for the batches one after the other, by how many answers stand in the log."""

    name, window, max_output_tokens = NAME, WINDOW, 300

    def __init__(self, world: World, store: SessionStore) -> None:
        self._world, self._store = world, store

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """The summary, or the next batch; what a strict provider would refuse is noted."""
        counter = counter_for(self.name)
        tokens = count_request(request, counter)
        wrong = violations(body_of(request))
        if wrong or tokens > WINDOW:
            self._world.note("problems", purpose=request.purpose, wrong=wrong, tokens=tokens)
        self._world.reach(f"{request.purpose}, asked")
        summary = request.purpose == "summary"
        message = Message.assistant(every_fact(request)) if summary else await self._next()
        for part in streamed(answer_of(message, tokens, counter)):
            yield part
            self._world.reach(f"{request.purpose}, half said")

    async def _next(self) -> Message:
        records = await self._store.read(ID)
        said = [record.event.message for record in records if isinstance(record.event, MessageRecord)]
        batch = sum(message.role == "assistant" for message in said)
        if batch >= len(BATCHES):
            return Message.assistant("all done")
        first = sum(len(each) for each in BATCHES[:batch])
        numbered = enumerate(BATCHES[batch], first)
        return Message.assistant(
            None, calls(*((name, {"number": at, "words": words}) for at, (name, words) in numbered))
        )


class Journal:
    """Notes what a store is asked to append, and what it says is written; stands before it in a class."""

    world: World

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        """Append to the store."""
        saves = any(isinstance(event, Compacted) for event in events)
        self.world.reach("compaction, to be saved" if saves else "append, asked")
        ids = [event.id for event in events]
        self.world.note("journal", does="append", expect=expect, ids=ids)
        length = await super().append(session_id, events, expect=expect)  # type: ignore[misc]
        self.world.note("journal", does="appended", ids=ids)
        self.world.reach("compaction, saved" if saves else "append, returned")
        return int(length)

    async def keep_checkpoint(self, session_id: str, checkpoint: Any) -> None:
        """Keep it in the store."""
        self.world.reach("checkpoint, to be kept")
        await super().keep_checkpoint(session_id, checkpoint)  # type: ignore[misc]
        self.world.reach("checkpoint, kept")


class JournalledSQLite(Journal, SQLiteStore):
    """SQLite, watched."""


class Watching(Callbacks):
    """Comes to the points of a compaction."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def before_compaction(self, request: CompactionRequest) -> None:
        """Decided, nothing done yet."""
        self._world.reach("compaction, decided")

    async def after_compaction(self, result: CompactionResult) -> None:
        """Done, not yet told."""
        if result.status == "done":
            self._world.reach("compaction, done")


def open_world(world: World) -> SessionStore:
    """The store of the world."""
    store = world.store() if world.store else JournalledSQLite(world.database)
    store.world = world
    return cast(SessionStore, store)


def runner_of(world: World, store: SessionStore) -> Runner:
    """The runner of the scripted session."""
    agent = Agent(Planned(world, store), tools=[once, again], instructions="Work.", compaction=POLICY)
    return Runner(agent, store=store, transcripts=world.transcripts, callbacks=[Watching(world)])


async def worked(world: World) -> Json:
    """The session begun, or gone on with, to the end of the run: its status, or the error in words."""
    store = open_world(world)
    try:
        found = await store.read(ID)
        world.note("journal", does="start", length=len(found))
        world.tell(started=len(found))
        runner = runner_of(world, store)
        try:
            result = await runner.resume(ID, deps=world)
        except UsageError:  # nobody has said anything in it yet
            result = await runner.run(PROMPT, deps=world, session_id=ID)
    except AgentLoopError as error:
        return {"error": type(error).__name__, "text": str(error)}
    finally:
        await store.close()
    return {"status": result.status, "output": result.output, "reached": world.reached}


def hooked(world: World) -> None:
    """Let this process come to points inside SQLite's transactions and the writing of files."""
    sqlite3.connect = partial(sqlite3.connect, factory=_held(world))
    os.fsync = _between(world, "sync of a file", os.fsync)
    os.link = _between(world, "placing of a file", os.link)
    agentloop.sessions.checkpoint.CHECKPOINT_EVERY = 4


def _held(world: World) -> type[sqlite3.Connection]:
    class Held(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            writes = sql == "COMMIT" and self.in_transaction and self.total_changes != self._written
            if not writes:
                return super().execute(sql, *values)
            world.reach("commit, to come")
            cursor = super().execute(sql, *values)
            self._written = self.total_changes
            world.reach("commit, done")
            return cursor

        _written = 0

    return Held


def _between(world: World, label: str, function: Callable[..., None]) -> Callable[..., None]:
    def called(*args: Any, **options: Any) -> None:
        world.reach(f"{label}, to come")
        function(*args, **options)
        world.reach(f"{label}, done")

    return called
