"""From the bytes of a response to an `Answer`: server-sent events, and the chunks of a completion in them.

The format of events: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, suppress
from typing import NamedTuple

from agentloop.errors import BadAnswerError, ModelUnavailableError
from agentloop.messages import Json
from agentloop.models import Answer, ModelPart, TextPart
from agentloop.openai_chat.deltas import GrowingAnswer, ServerSaidError

BROKEN_OFF = "the connection broke off in the middle of an answer: try again later"

_JSON = json.JSONDecoder(parse_constant=lambda _: None)
_LINE_ENDS = b"\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DONE = b"[DONE]"
_DRAIN_SECONDS = 0.1
_NO_CHOICES = "the server's answer holds no choices: check that the base URL is a chat API's"


class ServerEvent(NamedTuple):
    """One server-sent event: its type, empty where none was named, and its data."""

    type: str
    data: bytes


class EventParser:
    """Server-sent events out of bytes that may be split anywhere.

    Lines end with CRLF, LF or CR. An event's several data lines are joined by LF; comments, other fields
    and events without data are passed over. `foreign` says that a line was none of an event stream.
    """

    def __init__(self) -> None:
        self.foreign = False
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._type = ""
        self._started = False
        self._after_cr = False

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """The events that these bytes complete."""
        if self._after_cr and data:
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
        elif not line.startswith((b":", b"id:", b"retry:")):
            self.foreign = True
        return None

    def _dispatched(self) -> ServerEvent | None:
        event = ServerEvent(self._type, b"\n".join(self._data)) if any(self._data) else None
        self._data.clear()
        self._type = ""
        return event


async def streamed(data: AsyncIterator[bytes]) -> AsyncGenerator[ModelPart, None]:
    """The parts of an answer that comes as events, the whole `Answer` last.

    Raises:
        ModelUnavailableError: the stream ended before the answer did.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    parser, growing, done = EventParser(), GrowingAnswer(), False
    async with aclosing(_events(parser, data, growing)) as events:
        async for event in events:
            if event.data.strip() == _DONE:
                done = True
                break
            if text := _add(growing, event):
                yield TextPart(text=text)
    if done:
        await _drain(data)
    if growing.begun and (growing.finish is not None or (done and growing.calls_are_whole())):
        yield growing.answer()
    elif not growing.begun and (done or parser.foreign):
        raise BadAnswerError(_NO_CHOICES)
    else:
        raise ModelUnavailableError(BROKEN_OFF)


def whole(body: bytes) -> Answer:
    """The answer that comes in one piece.

    Raises:
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    growing = GrowingAnswer()
    growing.add(_decoded(body))
    if not growing.begun:
        raise BadAnswerError(_NO_CHOICES)
    return growing.answer()


async def _events(
    parser: EventParser, data: AsyncIterator[bytes], growing: GrowingAnswer
) -> AsyncGenerator[ServerEvent, None]:
    """The events of a stream; a connection lost after the finish reason loses nothing of the answer."""
    try:
        async for piece in data:
            for event in parser.feed(piece):
                yield event
    except ModelUnavailableError:
        if growing.finish is None:
            raise
    for event in parser.finish():
        if event.data.strip() == _DONE or _is_json(event.data):
            yield event


def _add(growing: GrowingAnswer, event: ServerEvent) -> str:
    if event.type == "error":
        said = _decoded(event.data) if _is_json(event.data) else {"message": _text(event.data)}
        raise ServerSaidError(said.get("error") or said)
    return growing.add(_decoded(event.data))


async def _drain(data: AsyncIterator[bytes]) -> None:
    """Read the few bytes behind the last event, so that the connection can serve the next request."""
    with suppress(TimeoutError, ModelUnavailableError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in data:
                pass


def _decoded(data: bytes) -> Json:
    """The JSON object; bytes that are no UTF-8 become U+FFFD, NaN and Infinity null.

    Raises:
        BadAnswerError: it is no JSON object.
    """
    try:
        value = _JSON.decode(_text(data))
    except (ValueError, RecursionError) as error:
        raise BadAnswerError(f"the server's answer is no JSON: {_text(data)[:80]!r}") from error
    if not isinstance(value, dict):
        raise BadAnswerError(f"the server's answer is no JSON object: {_text(data)[:80]!r}")
    return value


def _is_json(data: bytes) -> bool:
    try:
        _decoded(data)
    except BadAnswerError:
        return False
    return True


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
