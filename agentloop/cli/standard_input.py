"""Reading standard input: only when it is asked for, and never waiting for a pipe that says nothing."""

import os
import queue
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

from agentloop.cli.process import interrupt, on_signals
from agentloop.errors import UsageError

_PIECE = 65_536
FIRST_WORD_SECONDS = 2.0
"""How long a pipe beside a prompt may take to say its first word."""
MOST_MEGABYTES = 10
_MOST_BYTES = MOST_MEGABYTES * 1_000_000
_LOOK_UP_SECONDS = 0.25
"""How late a signal is answered at most while nothing comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What was read, and what the user should know about it."""

    text: str
    notice: str | None = None


class SilentInputError(Exception):
    """The pipe is open and has said nothing so far."""


def is_terminal() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and os.isatty(0)


def read_all() -> Heard:
    """Everything up to the end of standard input, however long that takes; a signal ends the wait.

    Raises:
        UsageError: it holds more than `MOST_MEGABYTES`.
        KeyboardInterrupt: a signal came.
    """
    return _heard(read_bytes())


def read_bytes() -> bytes:
    """The same, as it came.

    Raises:
        UsageError: it holds more than `MOST_MEGABYTES`.
        KeyboardInterrupt: a signal came.
    """
    return _Pump().rest(None)


def read_if_it_speaks() -> Heard:
    """Everything up to its end, if it begins or ends in time.

    Raises:
        SilentInputError: it did neither within `FIRST_WORD_SECONDS`.
        UsageError: it holds more than `MOST_MEGABYTES`.
        KeyboardInterrupt: a signal came.
    """
    return _heard(_Pump().rest(FIRST_WORD_SECONDS))


class _Pump:
    """Reads in a thread of its own, which nobody waits for; an empty piece is the end."""

    def __init__(self) -> None:
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def rest(self, first_word_seconds: float | None) -> bytes:
        with on_signals(interrupt):
            return self._rest(first_word_seconds)

    def _rest(self, first_word_seconds: float | None) -> bytes:
        data = bytearray()
        try:
            piece = self._pieces.get(timeout=first_word_seconds) if first_word_seconds else self._next()
        except queue.Empty:
            raise SilentInputError from None
        while piece:
            data += piece
            piece = self._next()
        if len(data) > _MOST_BYTES:
            raise UsageError(f"standard input holds more than {MOST_MEGABYTES} MB: name a file instead")
        return bytes(data)

    def _next(self) -> bytes:
        """A signal that comes just before a wait does not end that wait, so none is for ever."""
        while True:
            with suppress(queue.Empty):
                return self._pieces.get(timeout=_LOOK_UP_SECONDS)

    def _read(self) -> None:
        room = _MOST_BYTES
        try:
            while room >= 0 and (piece := os.read(0, _PIECE)):
                room -= len(piece)
                self._pieces.put(piece)
        except OSError:
            pass  # what cannot be read has ended
        finally:
            self._pieces.put(b"")


def _heard(data: bytes) -> Heard:
    try:
        return Heard(text=data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        notice = f"line {line} of standard input is not in UTF-8: � stands for each byte that cannot be read"
        return Heard(text=data.decode("utf-8-sig", "replace"), notice=notice)
