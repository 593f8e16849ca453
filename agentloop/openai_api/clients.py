"""Connections to one server: one openai client for each event loop."""

import asyncio
import weakref
from collections.abc import AsyncGenerator
from typing import NamedTuple, TypeAlias

import httpx2
import openai

from agentloop._plumbing.aio import to_its_end
from agentloop.errors import UsageError
from agentloop.openai_api.bounded import CODINGS, BoundedClient
from agentloop.openai_api.server import Server, parted, query_of

_CONNECT_SECONDS = 10.0

_MOST_REDIRECTS = 3
"""One to https and one to the right path; more is a server that sends in circles."""


class Connection(NamedTuple):
    """An openai client, and the HTTP client that it speaks through."""

    client: openai.AsyncOpenAI
    http: httpx2.AsyncClient


_Lease: TypeAlias = AsyncGenerator[Connection, None]
_Leases: TypeAlias = dict[asyncio.AbstractEventLoop, tuple[Connection, _Lease]]


class LoopClients:
    """One client for each event loop, made at first use.

    It is closed with its loop, with these clients when nobody holds them any more, or by `close`.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = openai.Timeout(timeout_seconds, connect=min(_CONNECT_SECONDS, timeout_seconds))
        self._leases: _Leases = {}
        weakref.finalize(self, _end_all, self._leases).atexit = False

    async def client(self, server: Server) -> openai.AsyncOpenAI:
        """The running loop's client."""
        return (await self.connection(server)).client

    async def connection(self, server: Server) -> Connection:
        """The running loop's client, and the HTTP client beneath it."""
        loop = asyncio.get_running_loop()
        connection, _ = self._leases.get(loop, (None, None))
        if connection is None or connection.client.is_closed():
            for ended in [other for other in list(self._leases) if other.is_closed()]:
                self._leases.pop(ended, None)
            lease = _lease(server, self._timeout)
            connection = await anext(lease)
            self._leases[loop] = connection, lease
        return connection

    async def close(self) -> None:
        """Close the running loop's connections."""
        _, lease = self._leases.pop(asyncio.get_running_loop(), (None, None))
        if lease is not None:
            await lease.aclose()


async def _lease(server: Server, timeout: openai.Timeout) -> _Lease:
    """A client for as long as this generator lives: a loop closes its generators when it ends."""
    connection = _connection(server, timeout)
    try:
        yield connection
    finally:
        await connection.client.close()


def _connection(server: Server, timeout: openai.Timeout) -> Connection:
    """A client that has sent nothing yet.

    Raises:
        UsageError: the environment names a proxy or certificates that cannot be used.
    """
    try:
        # Who has a password in the address has it sent, as ever; in the address it would stand in errors.
        address, login = parted(server.base_url)
        auth = httpx2.BasicAuth(*login) if login else None
        http_client = BoundedClient(
            timeout=timeout,
            auth=auth,
            limits=openai.DEFAULT_CONNECTION_LIMITS,
            follow_redirects=True,
            max_redirects=_MOST_REDIRECTS,
            headers={"accept-encoding": CODINGS},
        )
        client = openai.AsyncOpenAI(
            api_key=server.key,
            base_url=address,
            default_query=query_of(server.base_url),
            max_retries=0,
            http_client=http_client,
        )
    except Exception as error:
        # OSError, ValueError, ImportError or InvalidURL, by what is set wrong: httpx2 documents none of them.
        raise UsageError(
            f"no connection to {server.place} can be set up: {type(error).__name__}: {error}: check the "
            "base URL, the proxy variables such as ALL_PROXY, and SSL_CERT_FILE"
        ) from error
    return Connection(client, http_client)


def _end_all(leases: _Leases) -> None:
    for loop, (_, lease) in list(leases.items()):
        if not loop.is_closed():
            loop.call_soon_threadsafe(_end, loop, lease)


def _end(loop: asyncio.AbstractEventLoop, lease: _Lease) -> None:
    loop.create_task(_ended(lease))


async def _ended(lease: _Lease) -> None:
    """Close all of its connections, also where the loop ends meanwhile and cancels its tasks."""
    await to_its_end(lease.aclose())
