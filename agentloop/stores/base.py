"""What a store of sessions promises.

`append` is the only write to a log. It succeeds only while the log holds exactly `expect` records, and
then writes all of the events at positions `expect + 1` on, or none. A repeated append whose first answer
was lost is harmless: where the very events (by their `id` and content) stand at those positions already,
it counts as written. A store keeps an index of its sessions from what is appended (`Described`, times,
lengths), so that listing them reads no log.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentloop.errors import UsageError
from agentloop.events import Event, Record

_SESSION_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One line of the list of sessions; times in seconds since the epoch, `length` in records."""

    id: str
    title: str | None
    folder: str | None
    created: float
    updated: float
    length: int


class SessionStore(Protocol):
    """Where logs live."""

    async def append(self, session_id: str, events: Sequence[Event], *, expect: int) -> int:
        """Write all events after record `expect`, or none; returns the log's new length.

        Raises:
            ConflictError: the log does not hold exactly `expect` records.
            StoreError: it could not be written, with the reason and what to do in its text.
        """
        ...

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[Record]:
        """The records behind position `after`, in order; none for a session that does not exist."""
        ...

    async def list(self, *, folder: str | None = None) -> Sequence[SessionInfo]:
        """The sessions, newest update first; with `folder`, those described by it."""
        ...

    async def delete(self, session_id: str) -> bool:
        """Remove a session and its log; False where there was none."""
        ...

    async def close(self) -> None:
        """Let go of files and connections; harmless when called again."""
        ...


def checked_session_id(session_id: str) -> str:
    """The id itself.

    Raises:
        UsageError: it is not 1 to 128 of A-Z a-z 0-9 . _ -, or begins with a dot.
    """
    if isinstance(session_id, str) and _SESSION_ID.fullmatch(session_id):
        return session_id
    raise UsageError(
        f"bad session id {str(session_id)[:40]!r}: use 1 to 128 of A-Z a-z 0-9 . _ -, "
        "not beginning with a dot"
    )
