"""Workers of durable runs in processes of their own, that a test can kill at any moment.

Run as a module it is a warm process (`tests.warm_kit`): each line is one worker to be, which it forks off; it
answers with the process id. Workers end with it.
"""

import asyncio
import contextlib
import os
import signal
import threading
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from agentloop import Agent, RunContext, tool
from agentloop.context import counter_for
from agentloop.durable import QueueLimits, Worker, engine
from agentloop.messages import ToolCall
from agentloop.models import ModelRequest
from agentloop.testing import Reply, ScriptedModel, calls
from tests.warm_kit import Warm, serve, warm

BATCHES = 3
DONE = "all is stamped"
LOOK_SECONDS = 0.3
LONGEST_SECONDS = 300
"""How long a broken test may take, on a machine that does much else."""


@tool
async def stamp(context: RunContext[Any], milliseconds: int) -> str:
    """Leave a mark that must be left once."""
    return await _mark("stamp", context, milliseconds)


@tool(idempotent=True)
async def look(context: RunContext[Any], milliseconds: int) -> str:
    """Leave a mark that may be left again."""
    return await _mark("look", context, milliseconds)


async def _mark(name: str, context: RunContext[Any], milliseconds: int) -> str:
    """Work for half the time, and until the gate is open, mark, work for the other half."""
    await asyncio.sleep(milliseconds / 2000)
    while (gate := os.environ.get("GATE")) and not Path(gate).exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    line = f"{name} {context.run_id} {context.call_id}\n".encode()
    file = os.open(os.environ["MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line)
    os.close(file)
    await asyncio.sleep(milliseconds / 2000)
    return f"{name} left"


def stamping(request: ModelRequest) -> Reply:
    """So many batches of two calls, counted in the request itself, then the answer."""
    since = [message["role"] for message in request.messages]
    newest = len(since) - 1 - since[::-1].index("user")
    done = since[newest:].count("assistant")
    if done >= BATCHES:
        return DONE
    batch: Sequence[ToolCall] = calls(("stamp", {"milliseconds": 60}), ("look", {"milliseconds": 60}))
    return batch


def stamping_agent() -> Agent:
    """An agent whose every run leaves marks."""
    return Agent(ScriptedModel(repeat(stamping)), tools=[stamp, look])


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One side effect."""

    tool: str
    run_id: str
    call_id: str


def marks(path: Path) -> list[Mark]:
    """All side effects so far."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Mark(tool=tool, run_id=run, call_id=call) for tool, run, call in map(str.split, lines)]


class Fleet:
    """Worker processes on one database.

    A `gate` is a file that their tools wait for; `idle_seconds` is how long a worker that hangs in the middle
    of a transaction keeps the others waiting.
    """

    def __init__(self, zygote: Warm, url: str, marks: Path, **options: Any) -> None:
        self._zygote = zygote
        self._order = {"url": url, "marks": str(marks), **options}
        self.pids: list[int] = []

    def start(self, **options: Any) -> int:
        """One more worker; its process id."""
        pid = int(self._zygote.ask({**self._order, **options}))
        self.pids.append(pid)
        return pid

    def kill(self, pid: int) -> None:
        """Kill a worker as a power cut does."""
        self.pids.remove(pid)
        os.kill(pid, signal.SIGKILL)

    def signal(self, pid: int, number: int) -> None:
        """Send a worker this signal."""
        os.kill(pid, number)

    async def gone(self, pid: int) -> None:
        """Look until a worker that is to end is gone; nobody but the warm process is told."""
        self.pids.remove(pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            async with asyncio.timeout(LONGEST_SECONDS):
                while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

    def end(self) -> None:
        """Kill them all."""
        for pid in list(self.pids):
            with contextlib.suppress(ProcessLookupError):
                self.kill(pid)


def zygote() -> AbstractContextManager[Warm]:
    """The warm process."""
    return warm("tests.durable_kit")


async def _work(order: dict[str, Any]) -> None:
    worker = Worker(
        stamping_agent(),
        order["url"],
        queues=[QueueLimits(name="agentloop", each=4)],
        transcripts=None,
        look_seconds=order.get("look_seconds", LOOK_SECONDS),
        poll_seconds=0.1,
        grace_seconds=order.get("grace_seconds", 5.0),
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


def _fork(order: dict[str, Any], life: tuple[int, int]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _be_a_worker(order, life)
            status = 0
        except BaseException:  # noqa: BLE001 — whatever it is, this process must not go on as the warm one
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def _be_a_worker(order: dict[str, Any], life: tuple[int, int]) -> None:
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(life[1])
    threading.Thread(target=_end_with, args=(life[0],), daemon=True).start()
    os.environ["MARKS"] = order["marks"]
    os.environ["GATE"] = order.get("gate", "")
    engine.IDLE_SECONDS = order.get("idle_seconds", engine.IDLE_SECONDS)
    asyncio.run(_work(order))


def _end_with(life: int) -> None:
    """End this process when the other end of the pipe, which the warm one holds, is closed."""
    os.read(life, 1)
    os._exit(1)


def main() -> None:
    """Fork a worker for each line read."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    counter_for("scripted")("loads the vocabulary")
    life = os.pipe()
    serve(lambda order: _fork(order, life))


if __name__ == "__main__":
    main()
