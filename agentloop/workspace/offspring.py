"""The processes that a command has started, wherever they have gone: into sessions of their own, too.

Each command has a mark in its environment, which all that it starts inherit. Where there is a `/proc` to look
into, as on Linux, they are found by it; one that was started with an environment made anew is not.
"""

import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PROCESSES = Path("/proc")
_MOST_PASSES = 50
"""What is killed may have started others that the pass before did not see; who starts them faster than half a
second of passes kills them is left."""
_PAUSE_SECONDS = 0.01
"""Between two passes, for the system to take the killed away. Both are our own figures."""
_under_way: set[str] = set()


@contextmanager
def marking() -> Iterator[str]:
    """A mark of its own for a command that runs within the block: the name of a variable."""
    mark = f"AGENTLOOP_COMMAND_{uuid.uuid4().hex}"
    _under_way.add(mark)
    try:
        yield mark
    finally:
        _under_way.discard(mark)


def marked(mark: str) -> dict[str, str]:
    """This process's environment with the mark."""
    return {**os.environ, mark: "1"}


def end_all() -> None:
    """Kill all that commands under way have started, for a process that leaves at once."""
    for mark in tuple(_under_way):
        end_marked(mark)


def end_marked(mark: str) -> None:
    """Kill all that carry the mark, and what they start meanwhile; blocks for a moment."""
    for _ in range(_MOST_PASSES):
        found = list(_carrying(f"{mark}=".encode()))
        for number in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        if not found:
            return
        time.sleep(_PAUSE_SECONDS)


def _carrying(mark: bytes) -> Iterator[int]:
    with suppress(OSError):
        for folder in _PROCESSES.iterdir():
            if folder.name.isdecimal() and mark in _environment(folder):
                yield int(folder.name)


def _environment(process: Path) -> bytes:
    """That of a process as it was started; empty where it is none of ours or has ended."""
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
