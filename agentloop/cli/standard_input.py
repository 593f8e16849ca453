"""Reading standard input: only when it is asked for, and never waiting for a pipe that says nothing."""

import os
import queue
import sys
import threading

_PIECE = 65_536
FIRST_WORD_SECONDS = 2.0
"""How long a pipe beside a prompt may take to say its first word."""


class SilentInputError(Exception):
    """The pipe is open and has said nothing so far."""


def is_terminal() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and os.isatty(0)


def read_all() -> str:
    """Everything up to the end of standard input, however long that takes."""
    return _decoded(_Pump().rest(None))


def read_if_it_speaks() -> str:
    """Everything up to its end, if it begins or ends in time.

    Raises:
        SilentInputError: it did neither within `FIRST_WORD_SECONDS`.
    """
    return _decoded(_Pump().rest(FIRST_WORD_SECONDS))


class _Pump:
    """Reads in a thread of its own, which nobody waits for; an empty piece is the end."""

    def __init__(self) -> None:
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def rest(self, first_word_seconds: float | None) -> bytes:
        pieces = []
        try:
            piece = self._pieces.get(timeout=first_word_seconds)
        except queue.Empty:
            raise SilentInputError from None
        while piece:
            pieces.append(piece)
            piece = self._pieces.get()
        return b"".join(pieces)

    def _read(self) -> None:
        piece = b"."
        while piece:
            try:
                piece = os.read(0, _PIECE)
            except OSError:
                piece = b""
            self._pieces.put(piece)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8-sig", "replace")
