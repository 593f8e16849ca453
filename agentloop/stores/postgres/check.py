"""Whether what the database holds is whole."""

from collections.abc import Sequence
from functools import partial

from psycopg import AsyncConnection

from agentloop._plumbing.aio import in_thread
from agentloop.errors import DamagedError
from agentloop.stores.checking import ROWS_AT_ONCE, LogCheck
from agentloop.stores.lines import record_of
from agentloop.stores.postgres.link import Link
from agentloop.stores.postgres.sessions import written_line

_NAMES = """
    SELECT id FROM agentloop_sessions
    UNION SELECT session_id FROM agentloop_events ORDER BY 1"""
_PAGE = f"""
    SELECT seq, body FROM agentloop_events WHERE session_id = %s::text AND seq > %s::int8
    ORDER BY seq LIMIT {ROWS_AT_ONCE}"""


async def faults_of(label: str, link: Link) -> tuple[str, ...]:
    """A line for each record that is damaged or missing, and each line of the list that is not its log's."""
    faults: list[str] = []
    try:
        for name in await link.run(_names):
            faults += await link.run(partial(_faults_of_session, label, name))
    except DamagedError as error:
        faults.append(str(error))
    return tuple(faults)


async def _names(connection: AsyncConnection) -> list[str]:
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        return [name for (name,) in await (await connection.execute(_NAMES)).fetchall()]


async def _faults_of_session(label: str, session_id: str, connection: AsyncConnection) -> list[str]:
    """All of it as it was at one moment: who appends or deletes meanwhile is no fault."""
    log, faults = LogCheck(label, session_id, partial(record_of, label, session_id)), list[str]()
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            listed = await written_line(session_id, connection)
        except DamagedError as error:
            return [f"{label}: {error}"]
        read = ROWS_AT_ONCE
        while read == ROWS_AT_ONCE:
            rows = await _page(connection, session_id, log.seq)
            faults += await in_thread(_faults_of_page, log, rows)
            read = len(rows)
    return [*faults, *log.faults_of_line(listed)]


async def _page(connection: AsyncConnection, session_id: str, after: int) -> list[tuple[int, str]]:
    return await (await connection.execute(_PAGE, (session_id, after))).fetchall()


def _faults_of_page(log: LogCheck, rows: Sequence[tuple[int, str]]) -> list[str]:
    return list(log.faults_of(rows))
