"""The connections to a server: one client for each event loop; the door to openai.

Bodies of responses that nobody streams are read as far as is believed, of any length, in any coding: an error
keeps its status whatever its body, one that is broken off, packed wrongly, or said to be in a charset that is
none.
"""

import asyncio
import weakref
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

import httpx2
import openai

from agentloop._plumbing.aio import to_its_end
from agentloop.errors import UsageError
from agentloop.providers.openai.server import Server, is_loopback

MOST_ERROR_BYTES = 1_000_000
"""Far more than any error says; 25 MB of it would keep the event loop busy for seconds."""

CODINGS = "gzip, deflate"
"""The codings that are asked for: those that can be undone bit by bit, up to a bound."""

_MOST_SECONDS = 10.0
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_EITHER_PACKING = zlib.MAX_WBITS | 32
_KEPT = frozenset({b"retry-after", b"retry-after-ms", b"location", b"x-request-id"})

_CONNECT_SECONDS = 10.0

_MOST_REDIRECTS = 3
"""One to https and one to the right path; more is a server that sends in circles."""

_NO_KEY = "sent by OwnHeaders"
"""What the client, which wants a key, has in its place."""


async def bounded_body(response: httpx2.Response, most: int) -> bytes:
    """The first `most` bytes of the body, unpacked; what came before it broke off, and b"" if it is none."""
    body = bytearray()
    with suppress(TimeoutError, httpx2.HTTPError, httpx2.StreamError):
        async with asyncio.timeout(_MOST_SECONDS), aclosing(response.aiter_raw()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= most:
                    break
    return _unpacked(bytes(body[:most]), response.headers.get("content-encoding", ""), most)


class OwnHeaders(NamedTuple):
    """The headers of a server, for requests to its own address; one that is led elsewhere goes without."""

    address: httpx2.URL
    headers: Mapping[str, str]

    async def put(self, request: httpx2.Request) -> None:
        """Put them on the request, in place of what its client says of them, or take them off."""
        for name in ("authorization", *self.headers):
            request.headers.pop(name, None)
        if self._is_own(request.url):
            request.headers.update(self.headers)

    def _is_own(self, url: httpx2.URL) -> bool:
        """Whether it is the same server, also where that leads from http to https."""
        own = self.address
        is_safer = (own.scheme, url.scheme) == ("http", "https") and own.port is url.port is None
        return own.origin == url.origin or (is_safer and own.host == url.host)


class BoundedClient(httpx2.AsyncClient):
    """An HTTP client whose errors are short and plain: their bodies are read at once, as UTF-8."""

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send the request; what is no answer comes back with a body of `MOST_ERROR_BYTES` at most."""
        options["stream"], streams = True, options.get("stream", False)
        response = await super().send(request, **options)  # type: ignore[arg-type]
        if response.is_success:
            if not streams:
                await response.aread()
            return response
        try:
            body = await bounded_body(response, MOST_ERROR_BYTES)
        finally:
            await response.aclose()
        headers = [(name, value) for name, value in response.headers.raw if name.lower() in _KEPT]
        return httpx2.Response(response.status_code, headers=headers, content=body, request=response.request)


def _unpacked(body: bytes, coding: str, most: int) -> bytes:
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in _PACKED:
        return b""
    try:
        return zlib.decompressobj(_EITHER_PACKING).decompress(body, most)
    except zlib.error:
        return b""


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
        # Without its login, which would stand in errors: the headers have it.
        address = server.place
        http_client = BoundedClient(
            timeout=timeout,
            limits=openai.DEFAULT_CONNECTION_LIMITS,
            follow_redirects=True,
            max_redirects=_MOST_REDIRECTS,
            headers={"accept-encoding": CODINGS},
            mounts=_past_proxies(address),
            event_hooks={"request": [OwnHeaders(httpx2.URL(address), server.headers).put]},
        )
        client = openai.AsyncOpenAI(
            api_key=_NO_KEY,
            base_url=address,
            default_query=server.query,
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


def _past_proxies(url: str) -> dict[str, None]:
    """What keeps requests to this machine itself from the proxy that the environment names for others."""
    host = urlsplit(url).hostname or ""
    return {f"all://[{host}]" if ":" in host else f"all://{host}": None} if is_loopback(url) else {}


def _end_all(leases: _Leases) -> None:
    for loop, (_, lease) in list(leases.items()):
        if not loop.is_closed():
            loop.call_soon_threadsafe(_end, loop, lease)


def _end(loop: asyncio.AbstractEventLoop, lease: _Lease) -> None:
    loop.create_task(_ended(lease))


async def _ended(lease: _Lease) -> None:
    """Close all of its connections, also where the loop ends meanwhile and cancels its tasks."""
    await to_its_end(lease.aclose())
