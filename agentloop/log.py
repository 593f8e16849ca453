"""Logging listens: where the host has configured structlog, each event of a run becomes one log line.

Text deltas are left out.
"""

from collections.abc import Callable
from typing import Any

from agentloop._plumbing.host_logging import host_logger
from agentloop.stream import (
    AnyStreamEvent,
    CallbackFailed,
    CompactionEnded,
    CompactionStarted,
    ContextWarning,
    Retrying,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolProgress,
    event_type,
    to_json,
)

_WARNINGS = (CallbackFailed, ContextWarning, Retrying)
_NOTEWORTHY = (CompactionEnded, CompactionStarted, RunEnded, RunStarted)
_LEFT_OUT = frozenset({"type", "time", "message", "output", "arguments"})


def log_event(event: AnyStreamEvent) -> None:
    """Log the event where the host listens; what was said stays out, also by a tool while it runs."""
    logger = None if isinstance(event, TextDelta) else host_logger()
    if logger is None:
        return
    left_out = _LEFT_OUT | {"text"} if isinstance(event, ToolProgress) else _LEFT_OUT
    fields = {name: value for name, value in to_json(event).items() if name not in left_out}
    _level(logger, event)(event_type(event), **fields)


def _went_wrong(event: AnyStreamEvent) -> bool:
    """Whether it ends a compaction that failed, or was done by other means than it should."""
    return isinstance(event, CompactionEnded) and event.status in ("done", "failed") and bool(event.error)


def _level(logger: Any, event: AnyStreamEvent) -> Callable[..., None]:
    if isinstance(event, _WARNINGS) or _went_wrong(event):
        level = "warning"
    else:
        level = "info" if isinstance(event, _NOTEWORTHY) else "debug"
    method: Callable[..., None] = getattr(logger, level)
    return method
