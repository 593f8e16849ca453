"""Many writers of one session: eight tasks and two processes, one of which compacts what is there meanwhile.

`python -m tests.many_writers_kit URL NAME` is a process that writes once its standard input ends; the one
called `COMPACTING` compacts too.
"""

import asyncio
import subprocess
import sys

from agentloop import Agent, Compaction, Runner
from agentloop.context import Context
from agentloop.errors import ConflictError
from agentloop.events import Compacted, MessageRecord
from agentloop.messages import Message
from agentloop.sessions import Session
from agentloop.stores import SessionStore, open_store
from agentloop.strategies import KeepRecentTurns
from agentloop.testing import ScriptedModel
from tests.store_kit import texts

ID = "shared"
RECORDS = 100
"""So many does each writer append, one by one."""

COMPACTING = "compacting"
EACH = 20
"""It compacts once for so many records of its own."""

TOKENS = 100
"""So long each record says it is, so that a summary is shorter than what it covers."""

TASKS = tuple(f"task{number}" for number in range(8))
PROCESSES = ("process", COMPACTING)
READY = b"ready\n"
LONGEST_SECONDS = 300


async def write(store: SessionStore, name: str) -> None:
    """Append `name 0`, `name 1`, …; behind whoever was first, and nothing is read for that."""
    length = 0
    for number in range(RECORDS):
        length = await _appended(store, f"{name} {number}", length)


async def write_and_compact(store: SessionStore) -> None:
    """The same, and now and then the session is compacted while the others go on."""
    model, length = ScriptedModel([], window=1_000_000), 0
    policy = Compaction(micro=None, strategy=KeepRecentTurns(4))
    runner = Runner(Agent(model, compaction=policy), store=store, transcripts=None)
    for number in range(RECORDS):
        length = await _appended(store, f"{COMPACTING} {number}", length)
        if number % EACH == EACH - 1:
            result = await runner.compact(ID)
            assert result is not None
            assert result.status == "done", result
    assert len(model.requests) == RECORDS // EACH, "no summary is written twice"


async def _appended(store: SessionStore, text: str, length: int) -> int:
    event = MessageRecord(message=Message.user(text), tokens=TOKENS)
    while True:
        try:
            return await store.append(ID, [event], expect=length)
        except ConflictError as conflict:
            length = conflict.actual


async def written_by_all(url: str, store: SessionStore) -> None:
    """Let all of them write at once: nobody begins before everybody is there."""
    processes = [await _process(url, name) for name in PROCESSES]
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            for process in processes:
                assert process.stdout
                assert await process.stdout.readline() == READY
            await asyncio.gather(
                *(_let_go(process) for process in processes), *(write(store, name) for name in TASKS)
            )
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _process(url: str, name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "tests.many_writers_kit", url, name),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


async def _let_go(process: asyncio.subprocess.Process) -> None:
    output, _ = await process.communicate(b"!")
    assert process.returncode == 0, output.decode()


async def check_nothing_is_lost(store: SessionStore) -> None:
    """Each message stands there once, in its writer's order, and the session opens as it is folded."""
    records = await store.read(ID)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    said, names = await texts(store, ID), (*TASKS, *PROCESSES)
    for name in names:
        mine = [text for text in said if text.startswith(f"{name} ")]
        assert mine == [f"{name} {number}" for number in range(RECORDS)]
    assert len(said) == RECORDS * len(names)
    assert sum(isinstance(record.event, Compacted) for record in records) == RECORDS // EACH
    assert [info.length for info in await store.list()] == [len(records)]
    opened, folded = (await Session.open(ID, store)).context, Context.of(records)
    assert (opened.length, opened.tokens) == (folded.length, folded.tokens)
    assert list(opened.messages) == list(folded.messages)


async def main(url: str, name: str) -> None:
    """One of the processes."""
    store = open_store(url)
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    sys.stdin.read()
    await (write_and_compact(store) if name == COMPACTING else write(store, name))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
