"""The one place where agentloop logs; it never configures logging for its host.

What the host's structlog is set up for, it gets. Where the host has not configured structlog, whose own
defaults would write to standard output, warnings go to the standard logger `agentloop`, and nothing else.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from agentloop._plumbing.to_text import strict

Level: TypeAlias = Literal["debug", "info", "warning"]


def logs_at(level: Level) -> Callable[..., Any] | None:
    """What takes an event's name and its fields at this level, None where nobody would hear them."""
    # Who has not imported structlog has not configured it, and importing it takes 100 ms.
    structlog = sys.modules.get("structlog")
    if structlog is not None and structlog.is_configured():
        method: Callable[..., Any] = getattr(structlog.get_logger("agentloop"), level)
        return method
    return _to_standard_logging if level == "warning" else None


def note(event: str, **fields: object) -> None:
    """Log what only who looks for a fault wants to know, where the host listens."""
    if (log := logs_at("debug")) is not None:
        log(event, **fields)


def warn(event: str, **fields: object) -> None:
    """Log what somebody should look after."""
    if (log := logs_at("warning")) is not None:
        log(event, **fields)


def leave_to_host(library: str) -> None:
    """Let a library that we use log where the host's logging has it, and on no standard error unasked."""
    logger = logging.getLogger(library)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _to_standard_logging(event: str, **fields: object) -> None:
    words = "".join(f" {name}={value!r}" for name, value in fields.items())
    # A handler that writes UTF-8 fails on half a character.
    logging.getLogger("agentloop").warning("agentloop: %s", strict(f"{event}{words}"))
