"""The files that were touched, with the last thing done to each."""

import re
from collections.abc import Iterable, Sequence

from agentloop.digest.actions import CHANGING, action_of
from agentloop.digest.calls import Call

_WRITES = re.compile(r"(?:>>?|\btee(?: -a)?)\s*$")
FAILED = "could not be "
_PARTS = re.compile(r"\|\||&&|[;|\n]")


def last_done(calls: Iterable[Call], earlier: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Each file with the last thing done to it, the one touched last coming last.

    A read after a change does not hide the change: the change is what must be known. `earlier` are files with
    what was done to them before all these calls.
    """
    done = dict(earlier)
    for call in calls:
        for path in call.paths:
            action = _action(call, path)
            before = done.pop(path, None)
            done[path] = before if before and _hides(action, before) else action
    return done


def changed(action: str) -> bool:
    """Whether what was done, or tried, changes a file."""
    return action.removeprefix(FAILED) in CHANGING


def _hides(action: str, before: str) -> bool:
    return changed(before) and not changed(action)


def _action(call: Call, path: str) -> str:
    action = _of_command(call.command, path) if call.command else action_of(call.name)
    return f"{FAILED}{action}" if call.error and action in CHANGING else action


def _of_command(command: str, path: str) -> str:
    for part in _PARTS.split(command):
        if path in part:
            before = part[: part.index(path)]
            return "written" if _WRITES.search(before) else action_of(part.strip())
    return "used"


def grouped(files: Sequence[tuple[str, str]]) -> list[str]:
    """One line for each thing done, with the files it was done to."""
    lines: dict[str, list[str]] = {}
    for path, action in files:
        lines.setdefault(action, []).append(path)
    return [f"- {action}: {', '.join(paths)}" for action, paths in lines.items()]
