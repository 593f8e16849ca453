"""Which process this is, and whether one that was named so is still there.

A process id is used again, and means nothing elsewhere. So a process is named by its place (what has process
ids of its own: a machine since it booted, a container), its id, and when it started. Where there is a `/proc`
that shows the process ids of this place, it tells all three.
"""

import os
import socket
import uuid
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeVar


class _Lock(Protocol):
    def acquire(self) -> bool: ...
    def release(self) -> None: ...


L = TypeVar("L", bound=_Lock)

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"
_NAMESPACES = ("pid", "time")
_STATE, _STARTED = 0, 19
"""Where proc(5) has the state and the start of a process, counted from behind the closing bracket of its
name: its fields 3 and 22."""
_DEAD = ("Z", "X")


def free_in_forks(lock: L) -> L:
    """The lock of a module, which is free in a child of a fork: who forks waits until no thread holds it."""
    if hasattr(os, "register_at_fork"):  # where there are forks
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process. `started` is empty where nobody can tell when that was."""

    place: str
    pid: int
    started: str

    @property
    def host(self) -> str:
        """The name of its machine or container."""
        return self.place.partition(" ")[0]

    def is_gone(self) -> bool:
        """Whether it is known that it has ended; of a process of another place nobody here knows.

        Example:
            >>> this_process().is_gone()
            False
        """
        here = this_process()
        if os.name != "posix" or self.pid < 1 or self.place != here.place:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # it is there, and somebody else's
        told = self.started and here.started
        return bool(told) and _is_another(self.started, _fields(str(self.pid)))


def this_process() -> Process:
    """The process that calls."""
    return _process(os.getpid())


@lru_cache(maxsize=1)
def _process(pid: int) -> Process:
    fields = _fields("self") if _shows_this_place() else []
    return Process(place=_place(), pid=pid, started=fields[_STARTED] if fields else "")


def _is_another(started: str, fields: list[str]) -> bool:
    """Whether what has the id now is a dead process that nobody has collected yet, or a later one."""
    return bool(fields) and (fields[_STATE] in _DEAD or fields[_STARTED] != started)


def _place() -> str:
    host = socket.gethostname().replace(" ", "-") or "unnamed"
    try:
        spaces = [str((_PROC / "self/ns" / name).readlink()) for name in _NAMESPACES]
        return " ".join([host, _BOOT_ID.read_text("ascii").strip(), *spaces])
    except (OSError, ValueError):
        return f"{host} {uuid.getnode():012x}"


def _shows_this_place() -> bool:
    """Whether `/proc` speaks of the ids that this process knows; one of another container's does not."""
    try:
        return (_PROC / "self").readlink() == Path(str(os.getpid()))
    except OSError:
        return False


def _fields(name: str) -> list[str]:
    """What `/proc` says of a process from its state on; empty where it says nothing."""
    try:
        text = (_PROC / name / "stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return []
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > _STARTED else []
