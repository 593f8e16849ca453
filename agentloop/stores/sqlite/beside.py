"""What a SQLite file keeps beside the logs: checkpoints, and who works on a session.

A lease runs out by the clock of the machine: all processes that share the file read the same one. Where that
clock is set back, leases hold longer by as much.
"""

import sqlite3
import time
from typing import Any

from agentloop.errors import UsageError
from agentloop.stores.checked import MOST_LEASE_SECONDS
from agentloop.stores.sqlite.columns import from_column, to_column
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.values import Checkpoint, Lease, stays_with

_KEEP = """INSERT INTO checkpoints (session_id, seq, event_id, body)
    SELECT ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ?1)
    ON CONFLICT (session_id) DO UPDATE SET
    seq = excluded.seq, event_id = excluded.event_id, body = excluded.body
    WHERE excluded.seq >= checkpoints.seq"""
_KEPT = "SELECT seq, event_id, body FROM checkpoints WHERE session_id = ?"
_LEASE = "holder, place, pid, started, since"
LIVES = f"typeof(until) = 'real' AND until - ? BETWEEN 0 AND {MOST_LEASE_SECONDS}"
"""Whether a lease holds at that moment: one that ends later than it can is damaged and keeps nobody out."""


def checkpoint(session_id: str, file: SQLiteFile) -> Checkpoint | None:
    """The newest checkpoint; None where there is none, or what stands there is none.

    Whether the text is whole is for its reader: it holds a sum of itself.
    """
    row = file.read(lambda connection: connection.execute(_KEPT, (session_id,)).fetchone(), None)
    try:
        seq, event_id, body = map(from_column, row or (None, None, None))
        return Checkpoint(seq=seq, event_id=event_id, body=body)
    except (UnicodeDecodeError, UsageError):
        return None


def keep_checkpoint(session_id: str, kept: Checkpoint, file: SQLiteFile) -> None:
    """Keep this one in place of an older one, where there is a log."""
    row = (session_id, kept.seq, to_column(kept.event_id), to_column(kept.body))
    file.change(lambda connection: connection.execute(_KEEP, row), None)


def drop_checkpoint(session_id: str, file: SQLiteFile) -> None:
    """Forget the checkpoint."""
    delete = "DELETE FROM checkpoints WHERE session_id = ?"
    file.change(lambda connection: connection.execute(delete, (session_id,)), None)


def take_lease(session_id: str, lease: Lease, seconds: float, over: str | None, file: SQLiteFile) -> Lease:
    """Who holds the session from now on; see `GrantsLeases`."""
    with file.transaction() as connection:
        now = time.time()
        held = _held(connection, session_id, now)
        if held and stays_with(held, lease, over):
            return held
        texts = [to_column(text) for text in (lease.holder, lease.place, lease.started)]
        until = now + min(seconds, MOST_LEASE_SECONDS)
        connection.execute(
            f"INSERT OR REPLACE INTO leases (session_id, until, {_LEASE}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (session_id, until, texts[0], texts[1], lease.pid, texts[2], float(lease.since)),
        )
    return lease


def lease(session_id: str, file: SQLiteFile) -> Lease | None:
    """Who holds the session now; None for nobody."""
    return file.read(lambda connection: _held(connection, session_id, time.time()), None)


def _held(connection: sqlite3.Connection, session_id: str, now: float) -> Lease | None:
    row = connection.execute(
        f"SELECT {_LEASE} FROM leases WHERE session_id = ? AND {LIVES}", (session_id, now)
    ).fetchone()
    return _lease(row) if row else None


def _lease(row: tuple[Any, ...]) -> Lease | None:
    """The lease that the row holds; None where it is damaged, as it keeps nobody then from the session."""
    try:
        holder, place, pid, started, since = map(from_column, row)
        return Lease(holder=holder, place=place, pid=pid, started=started, since=since)
    except (UnicodeDecodeError, UsageError):
        return None


def free_lease(session_id: str, holder: str, file: SQLiteFile) -> None:
    """Let go of the session, where that holder has it."""
    free, row = "DELETE FROM leases WHERE session_id = ? AND holder = ?", (session_id, to_column(holder))
    file.change(lambda connection: connection.execute(free, row), None)
