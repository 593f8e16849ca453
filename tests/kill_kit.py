"""Runs the scripted session of `tests.kill_world` in processes that are killed at drawn moments.

`python -m tests.kill_kit` is the warm process (`tests.warm_kit`): it has no threads, and forks a worker for
each run, which it kills and reaps. It is asked for one trial after the other.
"""

import asyncio
import contextlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from agentloop.context import count_message, counter_for
from agentloop.messages import Message
from agentloop.stores import InMemoryStore
from tests import warm_kit
from tests.kill_world import NAME, Json, World, hooked, runner_of, worked

LONGEST_RUN_SECONDS = 120
"""A worker that says nothing for so long hangs."""

LEAST_ROOM = 32 * 2**20
"""Bytes that a folder in memory must have free; a trial writes about one million."""

HANGS: Json = {"ended": {"error": "hangs", "text": "a worker said nothing, and did not end"}}


class Worker:
    """A forked process that works on the session; `last_words` is added to what it says at its end."""

    def __init__(
        self, world: World, prepare: Callable[[World], None], last_words: Callable[[], Json] = dict
    ) -> None:
        reading, writing = os.pipe()
        waited, self._let_go = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(reading)
            os.close(self._let_go)
            world.watched(writing, waited)
            _work(world, prepare, last_words)
        os.close(writing)
        os.close(waited)
        self._said, self._lines = os.fdopen(reading, "rb", buffering=0), b""
        self.has_left = False

    def next(self, seconds: float = LONGEST_RUN_SECONDS) -> Json | None:
        """What it says next; None where it said nothing for so long, or has left: see `has_left`."""
        until = time.monotonic() + seconds
        while b"\n" not in self._lines:
            ready, _, _ = select.select([self._said], [], [], max(0.0, until - time.monotonic()))
            more = self._said.read(65_536) if ready else b""
            if not more:
                self.has_left = bool(ready)
                return None
            self._lines += more
        line, _, self._lines = self._lines.partition(b"\n")
        return dict(json.loads(line))

    def status(self) -> int:
        """Its exit status, once it has ended by itself."""
        while self.next() is not None:
            pass
        handle = os.pidfd_open(self.pid)
        try:
            select.select([handle], [], [], LONGEST_RUN_SECONDS)
        finally:
            os.close(handle)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL where it has not ended, and wait until nothing of it is left; its exit status."""
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self._close()
        return os.waitstatus_to_exitcode(status)

    def go_on(self) -> None:
        """Let it go on where it holds; harmless where it does not, or has ended."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._let_go, b"!")

    def _close(self) -> None:
        self._said.close()
        os.close(self._let_go)


def _work(world: World, prepare: Callable[[World], None], last_words: Callable[[], Json]) -> NoReturn:
    try:
        prepare(world)
        ended = asyncio.run(worked(world))
        world.tell(ended=ended | last_words())
    except BaseException:  # noqa: BLE001 — a forked process must never go on as its parent
        world.tell(ended={"error": "crash", "text": traceback.format_exc()})
    finally:
        os._exit(0)


def trial(asked: Json) -> Json:
    """Kill the session's process at each of the moments, then let one end: what was done.

    A moment is seconds after the start, or a label and a number, or None for the end. `seconds` is how long
    all of them worked together.
    """
    killed: list[str | float] = []
    seconds = 0.0
    for moment in [*asked["moments"], None]:
        world = World(Path(asked["folder"]), hold=moment if isinstance(moment, list) else None)
        worker = Worker(world, hooked)
        said, worked_seconds = led(worker, moment)
        worker.kill()
        seconds += worked_seconds
        if said and "ended" in said:
            return {"killed": killed, "seconds": seconds, **said}
        killed.append(said["held"] if said else moment)
    raise AssertionError("the last process is let go on to its end")


def led(worker: Worker, moment: Any) -> tuple[Json | None, float]:
    """What it says once it comes to that moment, None where that is a time; and its seconds until then."""
    said = worker.next()
    began = time.monotonic()
    if said and "started" in said:
        is_time = isinstance(moment, float)
        said = worker.next(moment if is_time else LONGEST_RUN_SECONDS)
        if said is None and is_time and not worker.has_left:
            return None, time.monotonic() - began
    return said or HANGS, time.monotonic() - began


def serve(answer: Callable[[Json], Json]) -> None:
    """Be a warm process that answers so."""
    _warm()
    warm_kit.serve(answer)


def _warm() -> None:
    """Load what every worker needs, in threads that are gone again before anything is forked."""
    count_message(Message.user("warm"), counter_for(NAME))
    world = World(Path(os.devnull))
    runner_of(world, InMemoryStore()).agent.schemas  # noqa: B018 — made when first asked for
    until = time.monotonic() + LONGEST_RUN_SECONDS
    while len(list(Path("/proc/self/task").iterdir())) > 1:  # a joined one is there until the kernel is done
        assert time.monotonic() < until, "no thread may be there when a process forks"
        os.sched_yield()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that goes behind the block, in memory where the system has a place for that.

    What a killed process wrote is the kernel's, on a disc or not: only a power cut needs the disc.
    """
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > LEAST_ROOM
    with tempfile.TemporaryDirectory(prefix="agentloop-", dir=memory if has_room else None) as folder:
        yield Path(folder)


if __name__ == "__main__":
    serve(trial)
