"""An answer out of the server-sent events in the bytes of a response, and how long more is waited for.

A server can be silent, send signs of life alone (comments, pings, empty chunks), never close what it has
ended, and say of each piece that it is the last. So the clock runs while an answer does not grow, and a word
of the end is believed at once only where it can be true.

The format of events: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from enum import Enum, auto
from typing import NamedTuple, Protocol

from agentloop._plumbing.strict_json import Nesting
from agentloop.errors import BadAnswerError, ModelUnavailableError
from agentloop.messages import Json
from agentloop.models import Answer, ModelPart, OutputPart, TextPart

SIGNS_OF_LIFE_FACTOR = 4
"""So many times the longest silence a server may say that it lives, and nothing more: it works, maybe."""

_AFTER_END_SECONDS = 1.0
"""So long the usage and the end of the stream are waited for, once an answer has surely said its end."""

_IN_DOUBT_SECONDS = 15.0
"""So long where it may not be the end: gaps between two pieces of an answer are far shorter as a rule."""


class Ending(Enum):
    """What a stream has said of its end so far.

    `IN_DOUBT` is a word of the end that may have come early: more may follow, and a lost connection has lost
    something.
    """

    OPEN = auto()
    IN_DOUBT = auto()
    SURE = auto()


class GrowingAnswer(Protocol):
    """An answer that grows by the events of a stream."""

    @property
    def size(self) -> int:
        """Larger after each event that added to it."""
        ...

    @property
    def ending(self) -> Ending:
        """What was said of its end."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the event has come that ends the stream, too."""
        ...

    def add(self, event: "ServerEvent") -> str:
        """Take one event in; returns the text that came with it."""
        ...

    def given(self) -> Sequence[OutputPart]:
        """The pieces of answers of a type that came since they were last asked for."""
        ...

    def ended(self, foreign: Sequence[bytes], *, done: bool) -> tuple[Answer, str]:
        """The answer of a stream that has ended, and what of its text was not shown.

        `foreign` are the lines that are no events, `done` says that the stream said its end.
        """
        ...


class Patience:
    """Waits for the next bytes of a growing answer, in each state of it so long and no longer.

    A silent connection fails by itself after `silence_seconds`; None is no limit.
    """

    def __init__(self, growing: GrowingAnswer, silence_seconds: float | None) -> None:
        self._growing = growing
        self._silence_seconds = silence_seconds
        self._state = growing.size, growing.ending
        self._waited = 0.0

    async def next_of(self, data: AsyncIterator[bytes]) -> bytes | None:
        """The next bytes; None where none come, or none in time behind a word of the end.

        Raises:
            ModelUnavailableError: nothing but signs of life came for too long.
        """
        if (state := (self._growing.size, self._growing.ending)) != self._state:
            self._state, self._waited = state, 0.0
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            return await (self._any(data) if state[1] is Ending.OPEN else self._last(data, state[1]))
        finally:
            self._waited += clock() - started

    async def _any(self, data: AsyncIterator[bytes]) -> bytes | None:
        """The next bytes of an answer that goes on."""
        longest = self._silence_seconds
        if longest is not None and self._waited > longest * SIGNS_OF_LIFE_FACTOR:
            raise too_silent(self._waited)
        return await anext(data, None)

    async def _last(self, data: AsyncIterator[bytes], ending: Ending) -> bytes | None:
        """The next bytes behind a word of the end."""
        longest = _AFTER_END_SECONDS
        if ending is Ending.IN_DOUBT:
            # Sooner than the connection fails.
            longest = min(_IN_DOUBT_SECONDS, (self._silence_seconds or _IN_DOUBT_SECONDS * 2) / 2)
        try:
            async with asyncio.timeout(max(0.0, longest - self._waited)):
                return await anext(data, None)
        except TimeoutError:
            return None


def too_silent(seconds: float) -> ModelUnavailableError:
    """The error for a server of which nothing but signs of life came for so long."""
    return ModelUnavailableError(
        f"nothing but signs of life came for {seconds:.3g} seconds: try again later, or allow it more seconds"
    )


BROKEN_OFF = "the connection broke off in the middle of an answer: try again later"

DONE = b"[DONE]"
"""The data of the event behind the last one of a stream."""

_LINE_BEGINNINGS = (b":", b"data:", b"event:", b"id:", b"retry:", b"error:")
"""How lines of an event stream begin; no standard has `error:`, in which some servers tell of one."""

_JSON = json.JSONDecoder(parse_constant=lambda _: None, strict=False)
_LINE_ENDS = b"\r\n"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_QUOTED_CHARS = 80
"""So much of what is no answer is quoted in the error, on one line."""

_DRAIN_SECONDS = 0.1
"""The last bytes come with the last event; a server that takes longer costs a new connection, not a wait."""


PAGE_HINT = "check the base URL, which often ends in /v1; a proxy on the way may answer in its place"
"""What to do where a web page comes in place of an answer."""


class ServerSaidError(Exception):
    """A server said an error: in place of an answer, though it had said 200, or with a status of its own.

    `body` is what it said. Where that was a bare 500, `unexplained_bytes` is the length of the request.
    `begun` says that a part of an answer had come before it.
    """

    begun = False

    def __init__(self, body: object, *, unexplained_bytes: int | None = None) -> None:
        super().__init__("the server sent an error in place of an answer")
        self.body = body
        self.unexplained_bytes = unexplained_bytes


@contextmanager
def noting(*, begun: bool) -> Iterator[None]:
    """Of an error that a server says within the block it is known whether an answer had `begun`."""
    try:
        yield
    except ServerSaidError as error:
        error.begun = begun
        raise


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
        """The event left open where the stream ends without its blank line.

        The beginning of a line of an event stream is nothing, and nothing foreign.
        """
        rest = b"".join(self._pieces).removeprefix(BYTE_ORDER_MARK)
        if any(each.startswith(rest) for each in (*_LINE_BEGINNINGS, BYTE_ORDER_MARK)):
            rest = b""
        for line in (rest, b""):
            if (event := self._take(line)) is not None:
                yield event

    def _take(self, line: bytes) -> ServerEvent | None:
        if not self._started:
            self._started = True
            line = line.removeprefix(BYTE_ORDER_MARK)
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif not line:
            return self._dispatched()
        elif line.startswith(b"event:"):
            self._type = line[6:].strip().decode("utf-8", "replace")
        elif line.startswith(b"error:"):
            return ServerEvent("error", line[6:].strip())
        elif not line.startswith(_LINE_BEGINNINGS):
            self.foreign.append(line)
        return None

    def _dispatched(self) -> ServerEvent | None:
        event = ServerEvent(self._type, b"\n".join(self._data)) if any(self._data) else None
        self._data.clear()
        self._type = ""
        return event


async def streamed(
    growing: GrowingAnswer,
    data: AsyncIterator[bytes],
    silence_seconds: float | None = None,
    begun: bytes = b"",
) -> AsyncGenerator[ModelPart, None]:
    """The parts of an answer that comes as events, the whole `Answer` last; it begins as `growing`.

    `silence_seconds` is the longest silence of the server, None for no limit; `begun` stands before
    the `data`.

    Raises:
        ModelUnavailableError: the stream ended before the answer did or was silent for too long, or the
            server gave up.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    parser, done = EventParser(), False
    async with aclosing(_events_in(parser, data, growing, silence_seconds, begun)) as events:
        async for event in events:
            if event.data.strip() == DONE:
                done = True
                break
            if text := growing.add(event):
                yield TextPart(text=text)
            for part in growing.given():
                yield part
            if growing.is_closed:
                break
    if done or growing.is_closed:
        await _drain(data)
    answer, rest = growing.ended(parser.foreign, done=done)
    if rest:
        yield TextPart(text=rest)
    yield answer


async def _events_in(
    parser: EventParser,
    data: AsyncIterator[bytes],
    growing: GrowingAnswer,
    silence_seconds: float | None,
    begun: bytes,
) -> AsyncGenerator[ServerEvent, None]:
    """The events of a stream; a connection lost behind the sure end of the answer loses nothing.

    What ends without its blank line is an event where it is whole.

    Raises:
        ModelUnavailableError: the connection was lost, or nothing but signs of life came for too long.
    """
    wait = Patience(growing, silence_seconds)
    piece: bytes | None = begun
    try:
        while piece is not None:
            for event in parser.feed(piece):
                yield event
            piece = await wait.next_of(data)
    except ModelUnavailableError:
        if growing.ending is not Ending.SURE:
            raise
    for event in parser.finish():
        if event.data.strip() == DONE or is_object(event.data):
            yield event


async def _drain(data: AsyncIterator[bytes]) -> None:
    """Read the few bytes behind the last event, so that the connection can serve the next request."""
    with suppress(TimeoutError, ModelUnavailableError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in data:
                pass


def decoded(data: bytes) -> Json:
    """The JSON object, or the only one of a list; no UTF-8 becomes U+FFFD, NaN and Infinity null.

    Raises:
        ModelUnavailableError: there is nothing, or its end is missing.
        BadAnswerError: it is no JSON object.
    """
    text = utf8_text(data).removeprefix("\ufeff")
    try:
        value = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ValueError) and _is_cut_off(text):
            raise ModelUnavailableError(BROKEN_OFF) from None
        if text.lstrip().startswith("<"):
            raise BadAnswerError(f"the server's answer is a web page: {PAGE_HINT}") from error
        raise BadAnswerError(f"the server's answer is no JSON: {text[:_QUOTED_CHARS]!r}") from error
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        raise BadAnswerError(f"the server's answer is no JSON object: {text[:_QUOTED_CHARS]!r}")
    return value


def _is_cut_off(text: str) -> bool:
    """Whether nothing is there, or the beginning of an object or a list whose end is missing."""
    text = text.lstrip()
    if not text.startswith(("{", "[")):
        return not text
    nesting = Nesting()
    nesting.feed(text)
    return not nesting.closed


def said_in(event: ServerEvent, *, begun: bool) -> Json:
    """The object in an event of an answer, which has `begun` or has not.

    Raises:
        ModelUnavailableError: its end is missing.
        ServerSaidError: it holds none; in the middle of an answer it is somebody on the way who says that
            this broke off.
    """
    try:
        return decoded(event.data)
    except BadAnswerError:
        later = {"type": "server_error"} if begun else {}
        raise ServerSaidError({"message": utf8_text(event.data)} | later) from None


def is_object(data: bytes) -> bool:
    """Whether it is a JSON object."""
    try:
        decoded(data)
    except (BadAnswerError, ModelUnavailableError):
        return False
    return True


def utf8_text(data: bytes) -> str:
    """The bytes as text; halves of a surrogate pair stay, what else is no UTF-8 becomes U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


_BLANKS = b" \t\r\n"
_OF_JSON = (b"{", b"[")
_ENOUGH_BYTES = max(map(len, (*_LINE_BEGINNINGS, BYTE_ORDER_MARK)))


async def opening(data: AsyncIterator[bytes], silence_seconds: float) -> bytes:
    """The first bytes behind all blanks, enough to tell what they begin; fewer where no more come.

    Blanks are signs of life: some servers send them for as long as they work.

    Raises:
        ModelUnavailableError: nothing but signs of life came for too long.
    """
    begun, longest = b"", silence_seconds * SIGNS_OF_LIFE_FACTOR
    try:
        async with asyncio.timeout(longest):
            async for piece in data:
                begun = (begun + piece).lstrip(_BLANKS)
                if len(begun) >= _ENOUGH_BYTES or begun.startswith((b":", *_OF_JSON)):
                    break
    except TimeoutError:
        raise too_silent(longest) from None
    return begun


def begins_events(begun: bytes, content_type: str, *, asked: bool) -> bool:
    """Whether an answer that begins so is a stream of events.

    What it is called counts only where its first bytes do not tell; `asked` is whether events were asked for.
    """
    if begun.removeprefix(BYTE_ORDER_MARK).startswith(_LINE_BEGINNINGS):
        return True
    return "event-stream" in content_type or (asked and "json" not in content_type)
