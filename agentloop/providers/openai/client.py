"""The server, its connections, its key kept out of words; the door to openai.

A `Server` is where requests go. `LoopClients` holds one client for each event loop. Bodies of responses that
nobody streams are read as far as is believed, of any length, in any coding: an error keeps its status
whatever its body, one that is broken off, packed wrongly, or said to be in a charset that is none.
"""

import asyncio
import os
import re
import weakref
import zlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

import httpx2
import openai

from agentloop._plumbing.aio import to_its_end
from agentloop._plumbing.checks import shown, text_or_none
from agentloop.errors import UsageError
from agentloop.redaction import secrets_in_address, without_credentials

MOST_ERROR_BYTES = 1_000_000
"""Far more than any error says; 25 MB of it would keep the event loop busy for seconds."""

CODINGS = "gzip, deflate"
"""The codings that are asked for: those that can be undone bit by bit, up to a bound."""

_MOST_SECONDS = 10.0
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_EITHER_PACKING = zlib.MAX_WBITS | 32
_KEPT = frozenset({b"retry-after", b"retry-after-ms", b"location", b"x-request-id"})


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


WIPED = "***"
_LEAST_PART = 8
"""So many characters of a key in a row are a part of it: prefixes such as `sk-proj-` are no longer."""

_LEAST_SECRET = 3
"""What is shorter than this stands in too many words to be wiped."""

_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_MASK = re.compile(r"\*{2,}|\.{3,}|…|•{2,}|[xX]{4,}")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@\"'<>]{1,300}@")
_EDGE = re.compile(r"[\s\"'`<>:=]")
_MOST_EDGE = 300
"""So far to each side of a mask is looked: longer than keys in use are, and linear in the text."""


def wipe_secrets(text: str, key: str, url: str) -> str:
    """The text with three stars for the key, for longer parts of it, and for credentials of the URL.

    Each goes in any case of its letters, and as it stands in a URL; so does what `secrets_in_address` finds.
    A key that a server masked in the middle, as in `sk-ab***yz`, goes whole.
    """
    text = _CREDENTIALS.sub(f"{WIPED}@", text)
    for secret in _secrets(key, url):
        text = _without(text, secret)
    return _without_masked(text, key)


def _secrets(key: str, url: str) -> Iterator[str]:
    forms = {form for each in (key, *secrets_in_address(url)) for form in _forms(each)}
    yield from sorted((form for form in forms if len(form) >= _LEAST_SECRET), key=len, reverse=True)


def _forms(secret: str) -> tuple[str, ...]:
    return secret, unquote(secret), quote(secret), quote(secret, safe=""), quote_plus(secret)


def _without(text: str, secret: str) -> str:
    """Without each run of the secret's characters that is long enough to be no chance."""
    width = min(_LEAST_PART, len(secret))
    lowered, secret = _lower(text), _lower(secret)
    parts = {secret[at : at + width] for at in range(len(secret) - width + 1)}
    found = sorted(at for part in parts for at in _places(lowered, part))
    pieces: list[str] = []
    end = 0
    for at in found:
        if at > end or not pieces:
            pieces += (text[end:at], WIPED)
        end = at + width
    return "".join((*pieces, text[end:]))


def _lower(text: str) -> str:
    """The text with its letters A to Z small, as long as it was; other alphabets have no keys."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _without_masked(text: str, key: str) -> str:
    pieces: list[str] = []
    end = 0
    for mask in _MASK.finditer(text):
        before = text[max(end, mask.start() - _MOST_EDGE) : mask.start()]
        after = text[mask.end() : mask.end() + _MOST_EDGE]
        head, tail = _EDGE.split(before)[-1], _EDGE.split(after)[0].rstrip(".,;)]}")
        if len(head) + len(tail) >= _LEAST_SECRET and key.startswith(head) and key.endswith(tail):
            pieces += (text[end : mask.start() - len(head)], WIPED)
            end = mask.end() + len(tail)
    return "".join((*pieces, text[end:])) if pieces else text


_OPENAI_URL = "https://api.openai.com/v1"
_PLACEHOLDER_KEY = "no-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where requests go, and to which model there; the key is kept out of every text."""

    model: str
    base_url: str = field(repr=False)
    key: str = field(repr=False)

    @property
    def place(self) -> str:
        """The base URL without any credentials in it."""
        return place_of(self.base_url)

    def wipe_secrets(self, text: str) -> str:
        """The text without the key, parts of it, and the credentials in the base URL."""
        return wipe_secrets(text, self.key, self.base_url)


def _checked_url(url: str) -> str:
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
        raise UsageError(
            f"bad base URL {without_credentials(url)!r}: write one such as http://localhost:8080/v1"
        )
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
        UsageError: the model's name, the base URL or the key is none.
    """

    model: str
    base_url: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        text_or_none("base_url", self.base_url)
        text_or_none("api_key", self.api_key)
        if not isinstance(self.model, str):
            raise UsageError(f"model must be the name of a model, a text, not {shown(self.model)}")
        if not self.model.strip() or not self.model.isprintable():
            raise UsageError(f"bad model name {self.model!r}: name one that the server offers")
        object.__setattr__(self, "base_url", _checked_url(self.base_url) if self.base_url else None)

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
        address = _checked_url(url or _OPENAI_URL)
        return Server(model=self.model, base_url=address, key=key or _PLACEHOLDER_KEY)


def place_of(url: str) -> str:
    """The URL without credentials, query and fragment; so is one that is none, as far as that can be told."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return without_credentials(url)


def split_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    """The URL without credentials and query, and the user and password that stand in it."""
    parts = urlsplit(url)
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
    if parts.username is None and parts.password is None:
        return address, None
    return address, (unquote(parts.username or ""), unquote(parts.password or ""))


def query_of(url: str) -> dict[str, str]:
    """The query of a base URL, such as `api-version`: it goes behind the path of each request."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


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
        address, login = split_credentials(server.base_url)
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
