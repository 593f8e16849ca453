"""Whether what the database holds is whole."""

from collections.abc import Sequence
from functools import partial

from psycopg import AsyncConnection

from agentloop.codec import decode
from agentloop.errors import StoreError
from agentloop.stores.postgres.link import Link
from agentloop.threads import in_thread

_AT_ONCE = 1_000

_LENGTHS = """
    SELECT coalesce(line.id, log.session_id), coalesce(line.length, 0),
        coalesce(log.records, 0), coalesce(log.newest, 0)
    FROM agentloop_sessions AS line
    FULL JOIN (
        SELECT session_id, count(*) AS records, max(seq) AS newest, min(seq) AS oldest
        FROM agentloop_events GROUP BY session_id) AS log ON log.session_id = line.id
    WHERE line.id IS NULL OR log.session_id IS NULL OR line.length <> log.newest
        OR log.records <> log.newest OR log.oldest <> 1
    ORDER BY 1"""
_BODIES = f"""
    SELECT session_id, seq, body FROM agentloop_events
    WHERE (session_id, seq) > (%s::text, %s::int8) ORDER BY session_id, seq LIMIT {_AT_ONCE}"""

Row = tuple[str, int, str]


async def faults_of(link: Link) -> tuple[str, ...]:
    """A line for each session whose records have gaps or are not as its entry says, and each bad record."""
    faults = [_in_words(*row) for row in await link.run(_lengths)]
    place = ("", 0)
    while rows := await link.run(partial(_rows, place)):
        place = rows[-1][:2]
        faults += await in_thread(_damaged, rows)
    return tuple(faults)


async def _lengths(connection: AsyncConnection) -> list[tuple[str, int, int, int]]:
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        return await (await connection.execute(_LENGTHS)).fetchall()


async def _rows(place: tuple[str, int], connection: AsyncConnection) -> list[Row]:
    return await (await connection.execute(_BODIES, place)).fetchall()


def _in_words(session_id: str, length: int, records: int, newest: int) -> str:
    return (
        f"session {session_id!r}: its entry says {length} records, "
        f"there are {records}, the newest at position {newest}"
    )


def _damaged(rows: Sequence[Row]) -> list[str]:
    found = []
    for session_id, seq, body in rows:
        try:
            decode(body)
        except StoreError as error:
            found.append(f"session {session_id!r}, record {seq}: {error}")
    return found
