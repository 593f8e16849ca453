"""How a call ends: the exit table, and an error in one line."""

from collections.abc import Mapping

from agentloop._plumbing.to_text import told_by
from agentloop.errors import AgentLoopError
from agentloop.stream import RunStatus

EXIT_STATUS: Mapping[RunStatus, int] = {
    "answered": 0,
    "failed": 1,
    "usage": 2,
    "limit": 3,
    "needs_approval": 4,
    "too_large": 5,
    "try_later": 75,
    "interrupted": 130,
}
"""The words of the exit table and their numbers."""


def exit_status(word: RunStatus) -> int:
    """The number for a word of the exit table; one that a newer version has stored counts as `failed`."""
    return EXIT_STATUS.get(word, EXIT_STATUS["failed"])


def one_line(error: BaseException) -> str:
    """What went wrong in one line; an error that is not ours is named as an internal one."""
    text = " ".join(told_by(error).split())
    if isinstance(error, AgentLoopError):
        return text
    return f"internal error, {type(error).__name__}: {text} (AGENTLOOP_LOG=debug shows where)"
