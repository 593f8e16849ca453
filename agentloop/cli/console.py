"""Standard error: progress, warnings and hints, in colour only where a terminal shows it."""

import os
import stat
import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from agentloop.cli.output import printable
from agentloop.cli.process import can_be_written

PROGRAM = "agentloop"
_PATIENCE_SECONDS = 1.0
_PIECE_CHARS = 128
"""What is written at a time: as UTF-8 within the 512 bytes that POSIX lets a ready pipe take at least."""


class PatientStream:
    """A text stream whose reader may go away or stop reading: what nobody reads is dropped.

    A reader that has kept it waiting once is not waited for again until it reads on.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._waits_on = _descriptor_that_may_wait(stream)
        self._patience = _PATIENCE_SECONDS
        self.encoding = getattr(stream, "encoding", "utf-8")

    def write(self, text: str) -> int:
        """Hand over the text, or drop it."""
        try:
            return 0 if self._stream is None else self._written(self._stream, text)
        except OSError:
            self._stream = None
            return 0

    def flush(self) -> None:
        """Hand over what is held back, or drop it."""
        try:
            if self._stream is not None:
                self._stream.flush()
        except OSError:
            self._stream = None

    def isatty(self) -> bool:
        """Whether a terminal shows it."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor, for the terminal's size."""
        return 2 if self._stream is None else self._stream.fileno()

    def _written(self, stream: TextIO, text: str) -> int:
        if self._waits_on is None:
            return stream.write(text)
        for start in range(0, len(text), _PIECE_CHARS):
            if not can_be_written(self._waits_on, wait_seconds=self._patience):
                self._patience = 0.0
                return start
            self._patience = _PATIENCE_SECONDS
            stream.write(text[start : start + _PIECE_CHARS])
            stream.flush()
        return len(text)


def _descriptor_that_may_wait(stream: TextIO | None) -> int | None:
    try:
        descriptor = -1 if stream is None else stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)
    return descriptor if waits else None


def error_console() -> Console:
    """Standard error; honours `NO_COLOR`, and never wraps, cuts or interprets what it prints."""
    file: object = PatientStream(sys.stderr)
    return Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)  # type: ignore[arg-type]


def show(console: Console, text: str, style: str = "") -> None:
    """The text as it stands, but for what could steer a terminal."""
    console.print(Text(printable(text), style=style))


def say(console: Console, text: str, style: str = "") -> None:
    """One line, under the program's name."""
    show(console, f"{PROGRAM}: {text}", style)
