"""Logging for the command line: structlog to standard error, at the level the user asks for."""

import logging
import os
import sys
from importlib import import_module

from agentloop.cli.console import PatientStream
from agentloop.cli.options import LOG_VARIABLE
from agentloop.errors import UsageError


def is_verbose() -> bool:
    """Whether the user wants to see where an internal error arose."""
    return os.environ.get(LOG_VARIABLE, "").strip().lower() == "debug"


def configure(*, verbose: bool) -> None:
    """Send log lines to standard error: from `AGENTLOOP_LOG`'s level on, else from info with `verbose`.

    Where neither asks for them there are none, since progress already says what happens.

    Raises:
        UsageError: the variable names no level.
    """
    name = os.environ.get(LOG_VARIABLE, "").strip() or ("info" if verbose else "")
    if not name:
        return
    level = logging.getLevelNamesMapping().get(name.upper())
    if level is None:
        raise UsageError(f"{LOG_VARIABLE}: {name!r} is no level: use debug, info, warning or error")
    # Logging loads only where somebody wants to read it: that takes longer than the rest of a short call.
    structlog = import_module("structlog")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=_colours(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(PatientStream(sys.stderr)),
        cache_logger_on_first_use=False,
    )


def _colours() -> bool:
    return not os.environ.get("NO_COLOR") and sys.stderr is not None and sys.stderr.isatty()
