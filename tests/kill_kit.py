"""Runs the scripted session of `tests.kill_world` in processes that are killed at drawn moments.

`python -m tests.kill_kit` is the warm process: it has everything imported, has no threads, and forks a worker
for each run, which it kills and reaps. It reads one JSON line for a trial and answers with one.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from agentloop.messages import Message
from agentloop.stores import InMemoryStore
from agentloop.tokens import count_message, counter_for
from tests.kill_world import NAME, Json, World, hooked, runner_of, worked

LONGEST_RUN_SECONDS = 60
"""Who says nothing for so long hangs."""


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

    def next(self, seconds: float = LONGEST_RUN_SECONDS) -> Json | None:
        """What it says next; None where it said nothing for so long, or has ended."""
        until = time.monotonic() + seconds
        while b"\n" not in self._lines:
            ready, _, _ = select.select([self._said], [], [], max(0.0, until - time.monotonic()))
            more = self._said.read(65_536) if ready else b""
            if not more:
                return None
            self._lines += more
        line, _, self._lines = self._lines.partition(b"\n")
        return dict(json.loads(line))

    def status(self) -> int:
        """Its exit status, once it has ended by itself."""
        while self.next() is not None:
            pass
        self._close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        """SIGKILL, and wait until nothing of it is left."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._close()

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

    A moment is seconds after the start, or a label and a number, or None for the end.
    """
    killed: list[str | float] = []
    for moment in [*asked["moments"], None]:
        at_point = isinstance(moment, list)
        world = World(Path(asked["folder"]), hold=moment if at_point else None)
        worker = Worker(world, hooked)
        began = time.monotonic()
        said = worker.next()
        if said and "started" in said:
            said = worker.next(moment) if isinstance(moment, float) else worker.next()
        worker.kill()
        if said and "ended" in said:
            return {"killed": killed, "seconds": time.monotonic() - began, **said}
        killed.append(said["held"] if said else moment)
    return {"killed": killed, "ended": {"error": "hangs", "text": "the last process came to no end"}}


def serve(answer: Callable[[Json], Json]) -> None:
    """Answer each line of standard input with one of standard output."""
    _warm()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def _warm() -> None:
    """Load what every worker needs, in threads that are gone again before anything is forked."""
    count_message(Message.user("warm"), counter_for(NAME))
    world = World(Path(os.devnull))
    runner_of(world, InMemoryStore()).agent.schemas  # noqa: B018 — made when first asked for
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "no thread may be there when a process forks"


class Warm:
    """The warm process, from outside."""

    def __init__(self, module: str = "tests.kill_kit", **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def __call__(self, **asked: Any) -> Json:
        """What it answers."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the warm process has died"
        return dict(json.loads(line))

    def end(self) -> None:
        """Let it end."""
        self._process.communicate()


@contextlib.contextmanager
def warm(module: str = "tests.kill_kit", **environment: str) -> Iterator[Warm]:
    """A warm process that ends behind the block."""
    process = Warm(module, **environment)
    try:
        yield process
    finally:
        process.end()


if __name__ == "__main__":
    serve(trial)
