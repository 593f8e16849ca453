"""What a SQLite file keeps beside the logs: checkpoints, and who works on a session.

A lease runs out by the clock of the machine: all processes that share the file read the same one. Where that
clock is set back, leases hold longer by as much.
"""

import time

from agentloop.stores.base import Checkpoint, Lease
from agentloop.stores.sqlite.columns import from_column, to_column
from agentloop.stores.sqlite.file import SQLiteFile
from agentloop.stores.sqlite.schema import record_sum

_KEEP = """INSERT INTO checkpoints (session_id, seq, event_id, body, sum)
    SELECT ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ?1)
    ON CONFLICT (session_id) DO UPDATE SET
    seq = excluded.seq, event_id = excluded.event_id, body = excluded.body, sum = excluded.sum
    WHERE excluded.seq >= checkpoints.seq"""
_LEASE = "holder, place, pid, started, since"


def checkpoint(session_id: str, file: SQLiteFile) -> Checkpoint | None:
    """The newest checkpoint; None where there is none, or a damaged one."""
    if not file.exists():
        return None
    with file.transaction("BEGIN") as connection:
        row = connection.execute(
            "SELECT seq, event_id, body, sum FROM checkpoints WHERE session_id = ?", (session_id,)
        ).fetchone()
    if row is None or row[3] != _sum(session_id, *row[:3]):
        return None
    return Checkpoint(seq=row[0], event_id=from_column(row[1]), body=from_column(row[2]))


def keep_checkpoint(session_id: str, kept: Checkpoint, file: SQLiteFile) -> None:
    """Keep this one in place of an older one, where there is a log."""
    if file.exists():
        row = (kept.seq, to_column(kept.event_id), to_column(kept.body))
        with file.transaction() as connection:
            connection.execute(_KEEP, (session_id, *row, _sum(session_id, *row)))


def drop_checkpoint(session_id: str, file: SQLiteFile) -> None:
    """Forget the checkpoint."""
    if file.exists():
        with file.transaction() as connection:
            connection.execute("DELETE FROM checkpoints WHERE session_id = ?", (session_id,))


def take_lease(session_id: str, lease: Lease, seconds: float, over: str | None, file: SQLiteFile) -> Lease:
    """Who holds the session from now on; see `GrantsLeases`."""
    with file.transaction() as connection:
        now = time.time()
        row = connection.execute(
            f"SELECT {_LEASE} FROM leases WHERE session_id = ? AND until > ?", (session_id, now)
        ).fetchone()
        if row and from_column(row[0]) not in (lease.holder, over):
            holder, place, pid, started, since = map(from_column, row)
            return Lease(holder=holder, place=place, pid=pid, started=started, since=since)
        texts = [to_column(text) for text in (lease.holder, lease.place, lease.started)]
        connection.execute(
            f"INSERT OR REPLACE INTO leases (session_id, until, {_LEASE}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (session_id, now + seconds, texts[0], texts[1], lease.pid, texts[2], lease.since),
        )
    return lease


def free_lease(session_id: str, holder: str, file: SQLiteFile) -> None:
    """Let go of the session, where that holder has it."""
    if file.exists():
        with file.transaction() as connection:
            connection.execute(
                "DELETE FROM leases WHERE session_id = ? AND holder = ?", (session_id, to_column(holder))
            )


def _sum(session_id: str, seq: int, event_id: str | bytes | None, body: str | bytes | None) -> int:
    """The sum of a checkpoint; 0 where a column is damaged."""
    parts = [part.encode() if isinstance(part, str) else part for part in (event_id, body)]
    whole = b"\0".join(part for part in parts if isinstance(part, bytes))
    return record_sum(session_id, seq, whole) if isinstance(seq, int) else 0
