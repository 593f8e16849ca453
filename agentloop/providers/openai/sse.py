"""An answer out of the bytes of a response, as events or in one piece, and how long more is waited for.

A server can be silent, send signs of life alone (comments, pings, empty chunks), never close what it has
ended, and say of each piece that it is the last. So the clock runs while an answer does not grow, and a word
of the end is believed at once only where it can be true.

The format of events: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, suppress
from enum import Enum, auto
from typing import NamedTuple, Protocol

from agentloop._plumbing.strict_json import Nesting, without_half
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
    something. `CLOSED` is the event behind which nothing comes.
    """

    OPEN = auto()
    IN_DOUBT = auto()
    SURE = auto()
    CLOSED = auto()


class GrowingAnswer(Protocol):
    """An answer that grows by the events of a stream.

    `given` are the pieces of answers of a type that came with the newest event: who shows them clears it.
    """

    given: list[OutputPart]

    @property
    def begun(self) -> bool:
        """Whether a part of it has come."""
        ...

    @property
    def size(self) -> int:
        """Larger after each event that added to it."""
        ...

    @property
    def ending(self) -> Ending:
        """What was said of its end."""
        ...

    def add(self, event: "ServerEvent") -> str:
        """Take one event in; returns the text that came with it. Events of unknown types say nothing.

        Raises:
            ModelUnavailableError: its end is missing.
            ServerSaidError: it is an error.
        """
        ...

    def ended(self, foreign: bytes, *, done: bool) -> Answer:
        """The answer of a stream that has ended.

        `foreign` is what came that is no event, as an answer in one piece is none; `done` says that the
        stream said its end.

        Raises:
            ModelUnavailableError: it ended before the answer did, or the server gave up.
            ServerSaidError: it failed, or nothing fitted into the window any more.
            BadAnswerError: what came is no answer.
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
            async with asyncio.timeout(self._longest(state[1])):
                return await anext(data, None)
        except TimeoutError:
            return None
        finally:
            self._waited += clock() - started

    def _longest(self, ending: Ending) -> float | None:
        """So many seconds more are waited for, None for as long as the connection lives."""
        if ending is Ending.OPEN:
            most = self._silence_seconds
            if most is not None and self._waited > most * SIGNS_OF_LIFE_FACTOR:
                raise ModelUnavailableError(
                    f"nothing but signs of life came for {self._waited:.3g} seconds: try again later, or "
                    "allow it more seconds"
                )
            return None
        longest = _AFTER_END_SECONDS
        if ending is Ending.IN_DOUBT:
            # Sooner than the connection fails.
            longest = min(_IN_DOUBT_SECONDS, (self._silence_seconds or _IN_DOUBT_SECONDS * 2) / 2)
        return max(0.0, longest - self._waited)


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


class ServerEvent(NamedTuple):
    """One server-sent event: its type, empty where none was named, and its data."""

    type: str
    data: bytes


class EventParser:
    """Server-sent events out of bytes that may be split anywhere.

    Lines end with CRLF, LF or CR. An event's several data lines are joined by LF; comments, other fields
    and events without data are passed over. `error: …`, in which some servers tell of an error, stands for an
    event of that type.
    """

    def __init__(self) -> None:
        self._foreign: list[bytes] = []
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._type = ""
        self._started = False
        self._after_cr = False

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        if not data:
            return
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        lines = data.splitlines(keepends=True)
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

    @property
    def foreign(self) -> bytes:
        """The lines that are none of an event stream, and all line ends between and behind them."""
        return b"".join(self._foreign)

    def _take(self, whole: bytes) -> ServerEvent | None:
        if not self._started:
            whole = whole.removeprefix(BYTE_ORDER_MARK).lstrip()
            self._started = bool(whole)
        line = whole.rstrip(_LINE_ENDS)
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif not line:
            if self._foreign:
                self._foreign.append(whole)
            return self._dispatched()
        elif line.startswith(b"event:"):
            self._type = line[6:].strip().decode("utf-8", "replace")
        elif line.startswith(b"error:"):
            return ServerEvent("error", line[6:].strip())
        elif not line.startswith(_LINE_BEGINNINGS):
            self._foreign.append(whole)
        return None

    def _dispatched(self) -> ServerEvent | None:
        event = ServerEvent(self._type, b"\n".join(self._data)) if any(self._data) else None
        self._data.clear()
        self._type = ""
        return event


async def streamed(
    growing: GrowingAnswer, data: AsyncIterator[bytes], silence_seconds: float | None = None
) -> AsyncGenerator[ModelPart, None]:
    """The parts of an answer that comes as events or in one piece, the whole `Answer` last.

    It begins as `growing`. `silence_seconds` is the longest silence of the server, None for no limit. Half of
    a surrogate pair waits for the other half.

    Raises:
        ModelUnavailableError: the stream ended before the answer did or was silent for too long, or the
            server gave up.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    parser, done = EventParser(), False
    shown: list[str] = []
    half = ""
    try:
        async with aclosing(_events_in(parser, data, growing, silence_seconds)) as events:
            async for event in events:
                if event.data.strip() == DONE:
                    done = True
                    break
                text, half = without_half(half + growing.add(event))
                if text:
                    shown.append(text)
                    yield TextPart(text=text)
                for part in growing.given:
                    yield part
                growing.given.clear()
                if growing.ending is Ending.CLOSED:
                    break
        if done or growing.ending is Ending.CLOSED:
            await _drain(data)
        answer = growing.ended(parser.foreign, done=done)
    except ServerSaidError as error:
        error.begun = growing.begun
        raise
    said, whole = "".join(shown), answer.message.text
    if whole.startswith(said) and whole != said:
        yield TextPart(text=whole[len(said) :])
    yield answer


async def _events_in(
    parser: EventParser,
    data: AsyncIterator[bytes],
    growing: GrowingAnswer,
    silence_seconds: float | None,
) -> AsyncGenerator[ServerEvent, None]:
    """The events of a stream; a connection lost behind the sure end of the answer loses nothing.

    What ends without its blank line is an event where it is whole.

    Raises:
        ModelUnavailableError: the connection was lost, or nothing but signs of life came for too long.
    """
    wait = Patience(growing, silence_seconds)
    try:
        while (piece := await wait.next_of(data)) is not None:
            for event in parser.feed(piece):
                yield event
    except ModelUnavailableError:
        if growing.ending in (Ending.OPEN, Ending.IN_DOUBT):
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


def said_in(event: ServerEvent) -> Json:
    """The object in an event of an answer.

    Raises:
        ModelUnavailableError: its end is missing.
        ServerSaidError: it holds none, but the words of somebody on the way as a rule.
    """
    try:
        return decoded(event.data)
    except BadAnswerError:
        raise ServerSaidError({"message": utf8_text(event.data)}) from None


def is_object(data: bytes) -> bool:
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
