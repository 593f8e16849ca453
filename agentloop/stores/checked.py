"""What stores take for an id, an owner, a time and a position: one rule for all of them."""

import re

from agentloop._plumbing.checks import finite, finite_above_zero_or_none, shown
from agentloop.errors import UsageError

MOST_OWNER_CHARS = 200
MOST_POSITION = 2**62
"""No log gets near it; a position beyond it is taken for this one, which every store has a number for."""
LAST_MOMENT = 253_402_300_799
"""The last second of the year 9999, since the epoch: the last that Python has a date for."""
MOST_LEASE_SECONDS = 10 * 365 * 86_400.0
"""A lease that is asked for longer lasts so long; one that ends later than that from now is damaged."""

_SESSION_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


def clamped(position: int) -> int:
    """The position itself, or the nearest that every store has a number for."""
    return max(-MOST_POSITION, min(position, MOST_POSITION))


def checked_now(now: float) -> float:
    """The time itself, in seconds since the epoch.

    Raises:
        UsageError: it is no finite number.
    """
    finite("now", now)
    return float(now)


def checked_owner(owner: str | None) -> str | None:
    """The owner itself; None for none.

    Raises:
        UsageError: it is no text of 1 to 200 printable characters.
    """
    if owner is None or (
        isinstance(owner, str) and 0 < len(owner) <= MOST_OWNER_CHARS and owner.isprintable()
    ):
        return owner
    raise UsageError(f"bad owner {shown(owner)}: use 1 to {MOST_OWNER_CHARS} printable characters")


def checked_ttl(seconds: float | None) -> float | None:
    """The time to live itself, in seconds; None for none.

    Raises:
        UsageError: it is no finite number above 0.
    """
    finite_above_zero_or_none("ttl_seconds", seconds)
    return None if seconds is None else float(seconds)


def checked_session_id(session_id: str) -> str:
    """The id itself.

    Raises:
        UsageError: it is not 1 to 128 of A-Z a-z 0-9 . _ -, or begins with a dot.
    """
    if isinstance(session_id, str) and _SESSION_ID.fullmatch(session_id):
        return session_id
    raise UsageError(
        f"bad session id {shown(session_id)}: use 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with a dot"
    )
