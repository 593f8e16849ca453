"""Connections to one server: where it is, with which key, and one openai client for each event loop."""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

import httpx2
import openai

from agentloop.errors import UsageError
from agentloop.openai_api.errors import Server
from agentloop.openai_api.keyless import parted, place_of
from agentloop.threads import to_its_end

_OPENAI_URL = "https://api.openai.com/v1"
_PLACEHOLDER_KEY = "no-key"
_CONNECT_SECONDS = 10.0


class Connection(NamedTuple):
    """An openai client, and the HTTP client that it speaks through."""

    client: openai.AsyncOpenAI
    http: httpx2.AsyncClient


_Lease: TypeAlias = AsyncGenerator[Connection, None]
_Leases: TypeAlias = dict[asyncio.AbstractEventLoop, tuple[Connection, _Lease]]


def checked_url(url: str) -> str:
    """The URL itself, without blanks around it.

    Raises:
        UsageError: it is no http or https URL.
    """
    url = url.strip()
    try:
        parts = urlsplit(url)
        known = (
            url.isprintable()
            and " " not in url
            and parts.scheme in ("http", "https")
            and parts.hostname
            and parts.port != 0
        )
    except ValueError:
        known = False
    if not known:
        raise UsageError(f"bad base URL {place_of(url)!r}: write one such as http://localhost:8080/v1")
    return url


def is_openai(url: str) -> bool:
    """Whether the URL names OpenAI's own API."""
    return urlsplit(url).hostname == urlsplit(_OPENAI_URL).hostname


def is_loopback(url: str) -> bool:
    """Whether the URL names this machine itself."""
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChoice:
    """A model and where it is, as far as that was given; the environment says the rest when it is asked.

    Raises:
        UsageError: the model's name or the base URL is none.
    """

    model: str
    base_url: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.model.strip() or not self.model.isprintable():
            raise UsageError(f"bad model name {self.model!r}: name one that the server offers")
        object.__setattr__(self, "base_url", checked_url(self.base_url) if self.base_url else None)

    @property
    def place(self) -> str | None:
        """The base URL as far as it was given, without any credentials in it."""
        return None if self.base_url is None else place_of(self.base_url)

    def server(self) -> Server:
        """The server that was given, or where that is None the environment's.

        Raises:
            UsageError: there is neither a key nor a base URL, or one that cannot be used.
        """
        url = self.base_url or os.environ.get("OPENAI_BASE_URL", "").strip()
        key = (self.api_key or os.environ.get("OPENAI_API_KEY", "")).strip()
        if not url and not key:
            raise UsageError("no key and no server: set OPENAI_API_KEY, or give a base URL")
        if not key.isascii() or any(not letter.isprintable() or letter == " " for letter in key):
            raise UsageError("the API key holds characters that no key has: check OPENAI_API_KEY")
        return Server(model=self.model, base_url=checked_url(url or _OPENAI_URL), key=key or _PLACEHOLDER_KEY)


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
    """A client for as long as this generator lives: a loop closes its generators when it ends.

    Raises:
        UsageError: the environment names a proxy or certificates that cannot be used.
    """
    try:
        # Who has a password in the address has it sent, as ever; in the address it would stand in errors.
        address, login = parted(server.base_url)
        auth = httpx2.BasicAuth(*login) if login else None
        http_client = openai.DefaultAsyncHttpxClient(timeout=timeout, auth=auth)
        client = openai.AsyncOpenAI(
            api_key=server.key, base_url=address, max_retries=0, http_client=http_client
        )
    except Exception as error:
        raise UsageError(
            f"no connection to {server.place} can be set up: {type(error).__name__}: {error}: check the "
            "base URL, the proxy variables such as ALL_PROXY, and SSL_CERT_FILE"
        ) from error
    try:
        yield Connection(client, http_client)
    finally:
        await client.close()


def _end_all(leases: _Leases) -> None:
    for loop, (_, lease) in list(leases.items()):
        if not loop.is_closed():
            loop.call_soon_threadsafe(_end, loop, lease)


def _end(loop: asyncio.AbstractEventLoop, lease: _Lease) -> None:
    loop.create_task(_ended(lease))


async def _ended(lease: _Lease) -> None:
    """Close all of its connections, also where the loop ends meanwhile and cancels its tasks."""
    await to_its_end(lease.aclose())
