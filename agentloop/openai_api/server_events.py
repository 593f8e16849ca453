"""Server-sent events out of the bytes of a response, and the JSON in them.

The format of events: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from agentloop.errors import BadAnswerError, ModelUnavailableError
from agentloop.messages import Json

BROKEN_OFF = "the connection broke off in the middle of an answer: try again later"

DONE = b"[DONE]"
"""The data of the event behind the last one of a stream."""

_JSON = json.JSONDecoder(parse_constant=lambda _: None, strict=False)
_LINE_ENDS = b"\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DRAIN_SECONDS = 0.1


class ServerSaidError(Exception):
    """A server that had said 200 sent an error in place of an answer; `body` is what it said."""

    def __init__(self, body: object) -> None:
        super().__init__("the server sent an error in place of an answer")
        self.body = body


class ServerEvent(NamedTuple):
    """One server-sent event: its type, empty where none was named, and its data."""

    type: str
    data: bytes


class EventParser:
    """Server-sent events out of bytes that may be split anywhere.

    Lines end with CRLF, LF or CR. An event's several data lines are joined by LF; comments, other fields
    and events without data are passed over. `foreign` has the lines that are none of an event stream, but for
    `error: …`, in which some servers tell of an error: it stands for an event of that type.
    """

    def __init__(self) -> None:
        self.foreign: list[bytes] = []
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._type = ""
        self._started = False
        self._after_cr = False

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """The events that these bytes complete."""
        if not data:
            return
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        lines = data.splitlines()
        rest = lines.pop() if data and data[-1] not in _LINE_ENDS else b""
        if lines and self._pieces:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._pieces.clear()
        for line in lines:
            if (event := self._take(line)) is not None:
                yield event
        if rest:
            self._pieces.append(rest)

    def finish(self) -> Iterator[ServerEvent]:
        """The event left open where the stream ends without its blank line."""
        for line in (b"".join(self._pieces), b""):
            if (event := self._take(line)) is not None:
                yield event

    def _take(self, line: bytes) -> ServerEvent | None:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif not line:
            return self._dispatched()
        elif line.startswith(b"event:"):
            self._type = line[6:].strip().decode("utf-8", "replace")
        elif line.startswith(b"error:"):
            return ServerEvent("error", line[6:].strip())
        elif not line.startswith((b":", b"id:", b"retry:")):
            self.foreign.append(line)
        return None

    def _dispatched(self) -> ServerEvent | None:
        event = ServerEvent(self._type, b"\n".join(self._data)) if any(self._data) else None
        self._data.clear()
        self._type = ""
        return event


async def events_in(
    parser: EventParser, data: AsyncIterator[bytes], answered: Callable[[], bool]
) -> AsyncGenerator[ServerEvent, None]:
    """The events of a stream; a connection lost once it has `answered` loses nothing."""
    try:
        async for piece in data:
            for event in parser.feed(piece):
                yield event
    except ModelUnavailableError:
        if not answered():
            raise
    for event in parser.finish():
        if event.data.strip() == DONE or is_json(event.data):
            yield event


async def drain(data: AsyncIterator[bytes]) -> None:
    """Read the few bytes behind the last event, so that the connection can serve the next request."""
    with suppress(TimeoutError, ModelUnavailableError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in data:
                pass


def decoded(data: bytes) -> Json:
    """The JSON object, or the only one of a list; no UTF-8 becomes U+FFFD, NaN and Infinity null.

    Raises:
        BadAnswerError: it is no JSON object.
    """
    try:
        value = _JSON.decode(text(data))
    except (ValueError, RecursionError) as error:
        raise BadAnswerError(f"the server's answer is no JSON: {text(data)[:80]!r}") from error
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        raise BadAnswerError(f"the server's answer is no JSON object: {text(data)[:80]!r}")
    return value


def is_json(data: bytes) -> bool:
    """Whether it is a JSON object."""
    try:
        decoded(data)
    except BadAnswerError:
        return False
    return True


def text(data: bytes) -> str:
    """The bytes as text; halves of a surrogate pair stay, what else is no UTF-8 becomes U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")
