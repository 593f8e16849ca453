"""The connections to a server: one client for each event loop; the door to openai.

Bodies of responses that nobody streams are read as far as is believed, of any length: an error keeps its
status whatever its body, one that is broken off, packed, or said to be in a charset that is none.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import httpx2
import openai

from agentloop._plumbing.aio import to_its_end
from agentloop.bounds import MOST_ERROR_BYTES, MOST_MODELS_BYTES, MOST_REDIRECTS
from agentloop.errors import UsageError
from agentloop.providers.openai.server import Server, is_loopback
from agentloop.providers.openai.sse import SIGNS_OF_LIFE_FACTOR

_MOST_SECONDS = 10.0
_SEE_OTHER = 303
_FOLLOWED = frozenset({301, 302, _SEE_OTHER, 307, 308})
_KEPT = frozenset({b"retry-after", b"retry-after-ms", b"location", b"x-request-id"})

_CONNECT_SECONDS = 10.0
_SHOWN_CHARS = 100

_NO_KEY = "sent by ServerClient"
"""What the client, which wants a key, has in its place."""


class RedirectError(httpx2.RequestError):
    """A server sends a request on to where it is not to go."""

    def __init__(self, message: str, *, request: httpx2.Request | None = None) -> None:
        super().__init__(message, request=request)


def check_coding(headers: Mapping[str, str]) -> None:
    """Refuse a body that is packed: none was asked for, and some are a thousand times longer unpacked.

    Raises:
        httpx2.DecodingError: it is packed.
    """
    coding = headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise httpx2.DecodingError(f"it is packed as {coding[:20]!r}, which nobody asked for")


class ServerClient(httpx2.AsyncClient):
    """An HTTP client of one server, whose headers go with each request; requests go nowhere else.

    Its errors are short and plain: their bodies are read at once.
    """

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(**options)
        self._address = httpx2.URL(server.place)
        self._own_headers = server.headers

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send the request; the body of an answer that streams is still to be read, any other is short.

        Where the server sends it on to another of its own addresses, it is sent again there.

        Raises:
            RedirectError: it sends it on to another server, to what is no address, or in circles.
            httpx2.ReadTimeout: nothing but signs of life came for too long.
        """
        follows = options.get("follow_redirects") is not False
        streams = options.get("stream", False)
        options |= {"stream": True, "follow_redirects": False}
        for _ in range(MOST_REDIRECTS + 1):
            request.headers.pop("authorization", None)
            request.headers.update(self._own_headers)
            response = await self._begun(request, **options)
            if not (follows and response.status_code in _FOLLOWED and response.has_redirect_location):
                return response if response.is_success and streams else await _with_short_body(response)
            await response.aclose()
            request = self._led(request, response)
        raise RedirectError("in circles", request=request)

    async def _begun(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """What is answered, up to its headers: a server may send parts of them, or of others, for ever."""
        silence = self.timeout.read
        try:
            async with asyncio.timeout(None if silence is None else silence * SIGNS_OF_LIFE_FACTOR):
                return await super().send(request, **options)
        except TimeoutError:
            raise httpx2.ReadTimeout("the headers have no end", request=request) from None

    def _led(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Request:
        """The request to where it is led; but for `See Other` it stays the POST that it was."""
        try:
            url = request.url.join(response.headers["location"])
        except (httpx2.InvalidURL, ValueError) as error:
            raise RedirectError("to what is no address", request=request) from error
        if not self._is_own(url):
            host = f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"[:_SHOWN_CHARS]
            raise RedirectError(f"to another server, {host}, which got nothing", request=request)
        left = {"host", "cookie"}
        method, content = request.method, request.content
        if response.status_code == _SEE_OTHER:
            left |= {"content-length", "content-type"}
            method, content = "GET", b""
        headers = {name: value for name, value in request.headers.items() if name not in left}
        kept: dict[str, Any] = {"cookies": self.cookies, "extensions": request.extensions}
        return httpx2.Request(method, url, headers=headers, content=content, **kept)

    def _is_own(self, url: httpx2.URL) -> bool:
        """Whether it is the same server, also where that leads from http to https."""
        own = self._address
        is_safer = (own.scheme, url.scheme) == ("http", "https") and own.port is url.port is None
        return own.origin == url.origin or (is_safer and own.host == url.host)


async def _with_short_body(response: httpx2.Response) -> httpx2.Response:
    """The response with the beginning of its body, as UTF-8, whatever it is said to be.

    That is what came before it broke off, and nothing of one that is packed.
    """
    most = MOST_MODELS_BYTES if response.is_success else MOST_ERROR_BYTES
    body = bytearray()
    try:
        with suppress(TimeoutError, httpx2.HTTPError, httpx2.StreamError):
            check_coding(response.headers)
            async with asyncio.timeout(_MOST_SECONDS), aclosing(response.aiter_raw()) as received:
                async for piece in received:
                    body += piece
                    if len(body) >= most:
                        break
    finally:
        await response.aclose()
    headers = [(name, value) for name, value in response.headers.raw if name.lower() in _KEPT]
    if response.is_success:
        headers.append((b"content-type", b"application/json"))
    return httpx2.Response(
        response.status_code, headers=headers, content=bytes(body[:most]), request=response.request
    )


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
        http_client = ServerClient(
            server,
            timeout=timeout,
            limits=openai.DEFAULT_CONNECTION_LIMITS,
            headers={"accept-encoding": "identity"},
            mounts=_past_proxies(address),
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
    """Close all of its connections, also where the loop ends meanwhile and cancels its tasks."""
    loop.create_task(to_its_end(lease.aclose()))
