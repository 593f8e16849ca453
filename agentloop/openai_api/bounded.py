"""Bodies of responses that nobody streams, read as far as is believed: of any length, in any coding.

An error keeps its status whatever its body: one that is broken off, packed wrongly, or said to be in a
charset that is none.
"""

import asyncio
import zlib
from contextlib import aclosing, suppress

import httpx2

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
