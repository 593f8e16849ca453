"""Checkpoints and leases, which stand beside the logs."""

from dataclasses import asdict
from typing import Any

from psycopg import AsyncConnection

from agentloop.errors import StoreError, UsageError
from agentloop.stores.checked import MOST_LEASE_SECONDS
from agentloop.stores.lines import to_bytes, to_text
from agentloop.stores.postgres.rows import one_row
from agentloop.stores.values import Checkpoint, Lease

_TRIES = 20

LIVES = (
    "held.until > clock_timestamp()"
    f" AND held.until <= clock_timestamp() + make_interval(secs => {MOST_LEASE_SECONDS})"
)
"""Whether a lease holds: one that ends later than it can is damaged and keeps nobody out."""

_CHECKPOINT = "SELECT seq, event_id, body FROM agentloop_checkpoints WHERE session_id = %s::text"
_KEEP = """
    INSERT INTO agentloop_checkpoints AS kept (session_id, seq, event_id, body)
    SELECT id, %(seq)s::int8, %(event_id)s::bytea, %(body)s::bytea
    FROM agentloop_sessions WHERE id = %(id)s::text FOR KEY SHARE
    ON CONFLICT (session_id) DO UPDATE
    SET seq = excluded.seq, event_id = excluded.event_id, body = excluded.body
    WHERE kept.seq <= excluded.seq"""
_HELD = "SELECT holder, place, pid, started, since FROM agentloop_leases WHERE session_id = %(id)s::text"
_LIVE = f"""
    SELECT holder, place, pid, started, since FROM agentloop_leases AS held
    WHERE session_id = %s::text AND {LIVES}"""
_TAKE = f"""
    INSERT INTO agentloop_leases AS held (session_id, holder, place, pid, started, since, until)
    VALUES (%(id)s::text, %(holder)s::bytea, %(place)s::bytea, %(pid)s::int8, %(started)s::bytea,
        %(since)s::float8, clock_timestamp() + make_interval(secs => %(seconds)s::float8))
    ON CONFLICT (session_id) DO UPDATE
    SET holder = excluded.holder, place = excluded.place, pid = excluded.pid, started = excluded.started,
        since = excluded.since,
        until = clock_timestamp() + make_interval(secs => %(seconds)s::float8)
    WHERE held.holder = excluded.holder OR held.holder = %(over)s::bytea OR NOT ({LIVES})
    RETURNING holder, place, pid, started, since"""
"""Who holds it stays where `stays_with` of `stores.values` says so: the condition is its negation."""
_FREE = "DELETE FROM agentloop_leases WHERE session_id = %s::text AND holder = %s::bytea"


async def checkpoint(session_id: str, connection: AsyncConnection) -> Checkpoint | None:
    """The session's checkpoint; None where there is none, or where it is damaged."""
    row = await one_row(connection, _CHECKPOINT, (session_id,))
    if row is None:
        return None
    try:
        return Checkpoint(seq=row[0], event_id=to_text(row[1]) or "", body=to_text(row[2]) or "")
    except (UnicodeDecodeError, UsageError):
        return None


async def keep_checkpoint(session_id: str, kept: Checkpoint, connection: AsyncConnection) -> None:
    """Keep it where no newer one stands, and the session does."""
    values = {"id": session_id, "seq": kept.seq, "event_id": to_bytes(kept.event_id)}
    await connection.execute(_KEEP, {**values, "body": to_bytes(kept.body)}, prepare=True)


async def drop_checkpoint(session_id: str, connection: AsyncConnection) -> None:
    """Forget it."""
    await connection.execute("DELETE FROM agentloop_checkpoints WHERE session_id = %s::text", (session_id,))


async def take_lease(
    session_id: str, lease: Lease, seconds: float, over: str | None, connection: AsyncConnection
) -> Lease:
    """Who holds the session now, by the server's clock."""
    values: dict[str, Any] = {
        **asdict(lease),
        "id": session_id,
        "seconds": min(seconds, MOST_LEASE_SECONDS),
        "holder": to_bytes(lease.holder),
        "place": to_bytes(lease.place),
        "started": to_bytes(lease.started),
        "since": float(lease.since),
        "over": to_bytes(over),
    }
    for _ in range(_TRIES):
        # Where it is held, the second statement looks by whom; it may have been freed in between.
        row = await one_row(connection, _TAKE, values) or await one_row(connection, _HELD, values)
        if row and (held := _lease(row)):
            return held
        values["over"] = row[0] if row else to_bytes(over)
    raise StoreError(f"the lease of session {session_id!r} changes hands too often: try again")


async def free_lease(session_id: str, holder: str, connection: AsyncConnection) -> None:
    """Let go of the session where this holder has it."""
    await connection.execute(_FREE, (session_id, to_bytes(holder)), prepare=True)


async def lease(session_id: str, connection: AsyncConnection) -> Lease | None:
    """Who holds the session now; None for nobody."""
    row = await one_row(connection, _LIVE, (session_id,))
    return _lease(row) if row else None


def _lease(row: tuple[Any, ...]) -> Lease | None:
    """The lease that the row holds; None where it is damaged: its holder is put out then."""
    holder, place, pid, started, since = row
    try:
        texts = [to_text(data) or "" for data in (holder, place, started)]
        return Lease(holder=texts[0], place=texts[1], pid=pid, started=texts[2], since=since)
    except (UnicodeDecodeError, UsageError):
        return None
