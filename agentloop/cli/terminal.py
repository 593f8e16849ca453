"""Standard output and error: written without blocking, without what could steer a terminal, in columns.

Also the event loop of a call (`run_to_end`), which a signal ends, and where log lines go.
"""

import asyncio
import json
import logging
import os
import re
import select
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import Any, Self, TextIO, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from agentloop.cli.options import LOG_VARIABLE
from agentloop.cli.process import can_be_written, can_block, leave_on_second, on_signals
from agentloop.errors import UsageError

_PIECE = getattr(select, "PIPE_BUF", 512)
"""Bytes at a time: POSIX promises that a pipe that is ready takes this much without blocking."""
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn the direction of writing for what follows: with them a title or a
command reads as another (https://www.unicode.org/reports/tr9/)."""
T = TypeVar("T")
_THREADS = 32
PROGRAM = "agentloop"
_PATIENCE_SECONDS = 1.0
_PIECE_CHARS = 128
"""What is written at a time: as UTF-8 within the 512 bytes that POSIX lets a ready pipe take at least."""
_GAP = 2
_LEAST_WIDTH = 8
"""Between columns, and what each keeps where a line does not fit."""
NO_DATE = "-"
"""What is said for a time whose year is larger than that of any date."""


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on an event loop of its own.

    The first signal cancels it, a second one ends the process at once. Threads that a tool has left behind
    are not waited for.

    Raises:
        KeyboardInterrupt: a signal came, and `work` let the cancellation through.
    """
    loop = asyncio.new_event_loop()
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="agentloop")
    loop.set_default_executor(threads)
    task = loop.create_task(work)
    try:
        with on_signals(leave_on_second(lambda *_: loop.call_soon_threadsafe(task.cancel))):
            result = loop.run_until_complete(task)
        loop.run_until_complete(loop.shutdown_asyncgens())
        return result
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        loop.close()


class StandardOutput:
    """Where the answer goes; writing never blocks the event loop, so that Ctrl-C gets through."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest: deque[memoryview] = deque()
        self._is_writing = False
        self.is_terminal = os.isatty(descriptor)
        self._can_block = can_block(descriptor)

    @classmethod
    def claimed(cls) -> Self:
        """Standard output for the answer alone: whatever else is printed from now on goes to standard error.

        Tools, callbacks and their children print where they like; none of it may mix with the answer.
        """
        own = cls(os.dup(1))
        os.dup2(2, 1)
        return own

    async def write(self, text: str) -> None:
        """Hand over all of the text, after what a cancelled call before has left.

        Raises:
            BrokenPipeError: nobody reads any more.
            OSError: it cannot be written, for example on a full disc.
        """
        self._queue(text)
        while self._rest:
            await self._ready()
            self._hand_over()

    def write_at_once(self, text: str) -> None:
        """Hand over what is left and the text as far as nobody has to be waited for; raises nothing.

        Made for a process that leaves now, in a signal's handler: where that came in the middle of a write,
        nobody knows how much of it is done, and nothing is written.
        """
        if self._is_writing:
            return
        self._queue(text)
        with suppress(OSError):
            while self._rest and can_be_written(self._descriptor):
                self._hand_over()

    def _queue(self, text: str) -> None:
        data = (printable(text) if self.is_terminal else text).encode("utf-8", "replace")
        if data:
            self._rest.append(memoryview(data))

    def _hand_over(self) -> None:
        self._is_writing = True
        try:
            first = self._rest[0]
            written = os.write(self._descriptor, first[:_PIECE] if self._can_block else first)
            self._rest[0] = first[written:]
            if not self._rest[0]:
                self._rest.popleft()
        except BlockingIOError:
            pass
        finally:
            self._is_writing = False

    async def _ready(self) -> None:
        if not self._can_block or can_be_written(self._descriptor):
            return
        loop = asyncio.get_running_loop()
        writable = asyncio.Event()
        loop.add_writer(self._descriptor, writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(self._descriptor)


def error_console() -> Console:
    """Standard error; honours `NO_COLOR`, and never wraps, cuts or interprets what it prints."""
    file: object = PatientStream(sys.stderr)
    return Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)  # type: ignore[arg-type]


def show(console: Console, text: str, style: str = "") -> None:
    """The text as it stands, but for what could steer a terminal."""
    console.print(Text(printable(text), style=style))


def say(console: Console, text: str, style: str = "") -> None:
    """One line, under the program's name: what a file or a server calls itself begins none of its own."""
    show(console, f"{PROGRAM}: {' '.join(text.splitlines())}", style)


def warn(console: Console, *lines: str | None) -> None:
    """What the user should know, a line each; None is nothing to know."""
    for line in filter(None, lines):
        say(console, line, style="yellow")


def complain(console: Console, line: str) -> None:
    """What went wrong."""
    say(console, line, style="bold red")


class PatientStream:
    """A text stream whose reader may go away or stop reading: what nobody reads is dropped.

    A reader that has kept it waiting once is not waited for again until it reads on.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._waits_on: int | None = None
        with suppress(OSError, ValueError):
            self._waits_on = stream.fileno() if stream and can_block(stream.fileno()) else None
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


def printable(text: str) -> str:
    """The text without control characters, so that nothing a model or a tool says can steer a terminal.

    >>> printable("rm \u202etxt.exe")
    'rm �txt.exe'
    """
    return _UNSEEN.sub("�", text.replace("\r", ""))


def escaped(data: str) -> str:
    """JSON with those characters escaped, which can only stand in its strings."""
    return _UNSEEN.sub(lambda char: f"\\u{ord(char[0]):04x}", data)


def line_of(text: str) -> str:
    """The same on one line, with single blanks between words.

    >>> line_of("two\\u2028lines,\\r\\n  three")
    'two lines, three'
    """
    return printable(" ".join(text.split()))


def counted(number: int, noun: str) -> str:
    """E.g. `1 message`, `2 messages`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def columns(*fields: str) -> str:
    """One line of these fields, whatever they hold."""
    return "\t".join(map(line_of, fields)) + "\n"


def listing(heading: str, rows: Sequence[str], output: StandardOutput) -> str:
    """Lines of columns under their heading, nothing where there are none.

    In a terminal the columns stand one under the other, as many as say something, and each line fits;
    elsewhere tabs are between them.
    """
    lines = [heading, *rows] if rows else []
    width = shutil.get_terminal_size().columns
    return align(lines, width) if output.is_terminal and lines else "".join(lines)


async def write_list(
    output: StandardOutput,
    found: Sequence[T],
    heading: str,
    row: Callable[[T], str],
    data: Callable[[T], object],
    *,
    as_json: bool,
) -> None:
    """What was found as a JSON list, or as lines of columns under their heading."""
    if as_json:
        await output.write(json.dumps(list(map(data, found)), indent=2) + "\n")
    else:
        await output.write(listing(heading, list(map(row, found)), output))


def align(lines: Sequence[str], width: int) -> str:
    """Lines of columns, the first their heading, as a terminal of that width is to show them.

    Each column is as wide as its widest field; where that is too much in all, the widest are cut. A column
    that is `-` in each line is left out.

    >>> print(align([columns("run", "state", "error"), columns("3f", "waiting for", "-")], 14), end="")
    run  state
    3f   waiting …
    """
    rows = [line.rstrip("\n").split("\t") for line in lines]
    shown = [column for column in zip(*rows, strict=True) if any(field != "-" for field in column[1:])]
    widths = [max(map(cell_len, column)) for column in shown]
    while sum(widths) + _GAP * (len(widths) - 1) > width and max(widths) > _LEAST_WIDTH:
        widths[widths.index(max(widths))] -= 1
    fitted = ([_fitted(field, wide) for field in column] for column, wide in zip(shown, widths, strict=True))
    return "".join((" " * _GAP).join(fields).rstrip() + "\n" for fields in zip(*fitted, strict=True))


def _fitted(field: str, width: int) -> str:
    return set_cell_size(field, width) if cell_len(field) <= width else set_cell_size(field, width - 1) + "…"


def moment(seconds: float) -> str:
    """A time as people here write it, to the minute."""
    return _written("%Y-%m-%d %H:%M", seconds)


def exact_moment(seconds: float) -> str:
    """The same, to the second."""
    return _written("%Y-%m-%d %H:%M:%S", seconds)


def _written(shape: str, seconds: float) -> str:
    try:
        return time.strftime(shape, time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return NO_DATE


def configure_logs(*, verbose: bool) -> None:
    """Send log lines to standard error: from `AGENTLOOP_LOG`'s level on, else from info with `verbose`.

    Where neither asks for them there are none, since progress already says what happens.

    Raises:
        UsageError: the variable names no level.
    """
    name = os.environ.get(LOG_VARIABLE, "").strip() or ("info" if verbose else "")
    if not name:
        return
    level = logging.getLevelNamesMapping().get(name.upper())
    if level is None:
        raise UsageError(f"{LOG_VARIABLE}: {name!r} is no level: use debug, info, warning or error")
    # Logging loads only where somebody wants to read it: that takes longer than the rest of a short call.
    structlog = import_module("structlog")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=_colours(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(PatientStream(sys.stderr)),
        cache_logger_on_first_use=False,
    )


def _colours() -> bool:
    return not os.environ.get("NO_COLOR") and sys.stderr is not None and sys.stderr.isatty()


def is_verbose() -> bool:
    """Whether the user wants to see where an internal error arose."""
    return os.environ.get(LOG_VARIABLE, "").strip().lower() == "debug"
