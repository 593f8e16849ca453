"""The one place where agentloop gets a logger; it never configures logging for its host.

Where the host has not configured structlog there is none: structlog's own defaults would write to standard
output, which belongs to the host.
"""

import sys
from typing import Any


def host_logger() -> Any | None:
    """The logger `agentloop` of the host's structlog, None where the host has not configured it."""
    # Who has not imported structlog has not configured it, and importing it takes 100 ms.
    structlog = sys.modules.get("structlog")
    if structlog is None or not structlog.is_configured():
        return None
    return structlog.get_logger("agentloop")


def note(event: str, **fields: object) -> None:
    """Log what only who looks for a fault wants to know, where the host listens."""
    if (logger := host_logger()) is not None:
        logger.debug(event, **fields)


def warn(event: str, **fields: object) -> None:
    """Log what somebody should look after, where the host listens."""
    if (logger := host_logger()) is not None:
        logger.warning(event, **fields)
