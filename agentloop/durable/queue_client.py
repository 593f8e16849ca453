"""DBOS's own client, asked in threads: it knows no event loop."""

import threading
from collections.abc import Callable
from typing import TypeVar

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer

from agentloop._plumbing.aio import in_thread
from agentloop.durable.database import DbosTables, faults_told, quiet, reached
from agentloop.durable.orders import APPLICATION

T = TypeVar("T")


class QueueClient:
    """A client of the database at that URL, made when it is first asked."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: DBOSClient | None = None
        self._opening = threading.Lock()

    async def asked(self, question: Callable[[DBOSClient], T]) -> T:
        """What the database says to that.

        Raises:
            StoreError: it could not be reached or used.
        """
        with faults_told():
            client = self._client or await self._opened()
            return await in_thread(lambda: question(client))

    async def close(self) -> None:
        """Let go of the database; harmless when called again."""
        client, self._client = self._client, None
        if client is not None:
            await in_thread(client.destroy)

    async def _opened(self) -> DBOSClient:
        tables = await reached(self._url)
        return await in_thread(lambda: self._open(tables))

    def _open(self, tables: DbosTables) -> DBOSClient:
        with self._opening:
            if self._client is None:
                self._client = _client(tables)
            return self._client


def _client(tables: DbosTables) -> DBOSClient:
    """A client; DBOS's tables are made where they are not there, since no worker may have started."""
    quiet()
    client = DBOSClient(
        system_database_url=tables.url,
        dbos_system_schema=tables.schema,
        serializer=DBOSPortableJSONSerializer(),
        application_name=APPLICATION,
        system_database_pool_size=1,
        retry_connection_errors=False,
    )
    try:
        DBOS.migrate(tables.url, schema=tables.schema)
    except BaseException:  # whatever keeps it from that, nobody else would close it; raised again
        client.destroy()
        raise
    return client
