"""Logging listens: the one place where agentloop gets a logger. It never configures logging for its host.

Where the host has configured structlog, each event of a run becomes one log line of the logger
`agentloop`, text deltas left out. Where it has not, nothing is logged: structlog's own defaults would
write to standard output, which belongs to the host.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

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
    event_type,
    to_json,
)

_WARNINGS = (CallbackFailed, ContextWarning, Retrying)
_NOTEWORTHY = (CompactionEnded, CompactionStarted, RunEnded, RunStarted)
_LEFT_OUT = frozenset({"type", "time", "message", "output", "arguments"})


def log_event(event: AnyStreamEvent) -> None:
    """Log the event where the host listens; what was said stays out of the log."""
    # Who has not imported structlog has not configured it, and importing it takes 100 ms.
    structlog = sys.modules.get("structlog")
    if structlog is None or isinstance(event, TextDelta) or not structlog.is_configured():
        return
    fields = {name: value for name, value in to_json(event).items() if name not in _LEFT_OUT}
    _level(structlog, event)(event_type(event), **fields)


def _level(structlog: ModuleType, event: AnyStreamEvent) -> Callable[..., None]:
    logger: Any = structlog.get_logger("agentloop")
    if isinstance(event, _WARNINGS):
        level = "warning"
    else:
        level = "info" if isinstance(event, _NOTEWORTHY) else "debug"
    method: Callable[..., None] = getattr(logger, level)
    return method
