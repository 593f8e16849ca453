"""Standard error: progress, warnings and hints, in colour only where a terminal shows it."""

import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from agentloop.cli.output import printable

PROGRAM = "agentloop"


class PatientStream:
    """A text stream whose reader may go away: what nobody reads is dropped, and the run goes on."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", "utf-8")

    def write(self, text: str) -> int:
        """Hand over the text, or drop it."""
        try:
            return 0 if self._stream is None else self._stream.write(text)
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


def error_console() -> Console:
    """Standard error; honours `NO_COLOR`, and never wraps, cuts or interprets what it prints."""
    file: object = PatientStream(sys.stderr)
    return Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)  # type: ignore[arg-type]


def say(console: Console, text: str, style: str = "") -> None:
    """One line, under the program's name."""
    console.print(Text(f"{PROGRAM}: {printable(text)}", style=style))
