"""The process around the program: signals, standard descriptors, and leaving in an orderly way."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import NoReturn, TypeAlias

OnSignal: TypeAlias = Callable[[int, FrameType | None], None]

INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_LAST_WORDS_SECONDS = 0.5


def leave_at_once(number: int, frame: FrameType | None) -> None:
    """The answer to a signal while nothing is under way that could be lost, or to a second one: the end."""
    with suppress(OSError):
        os.write(2, _SHOW_CURSOR * os.isatty(2) + b"agentloop: interrupted\n")
    os._exit(INTERRUPTED)


@contextmanager
def on_signals(react: OnSignal, numbers: Iterable[int] = _SIGNALS) -> Iterator[None]:
    """Let `react` answer Ctrl-C, SIGTERM and SIGHUP within the block; what was ignored stays ignored."""
    before = {number: signal.getsignal(number) for number in numbers}
    taken = [number for number, handler in before.items() if handler not in (None, signal.SIG_IGN)]
    for number in taken:
        signal.signal(number, react)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def on_interrupt(react: OnSignal) -> AbstractContextManager[None]:
    """Let `react` answer Ctrl-C alone within the block."""
    return on_signals(react, (signal.SIGINT,))


def fill_closed_descriptors() -> frozenset[int]:
    """Put the null device where a standard descriptor is closed; returns which were.

    Else the next file or connection opened would get that number, and what is meant for the reader would
    be written into it.
    """
    closed = frozenset(number for number in (0, 1, 2) if not _is_open(number))
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)
    return closed


def leave(status: int) -> NoReturn:
    """End the process with `status`, whatever the streams and left-over threads say."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    if _stragglers():
        os._exit(status)
    sys.exit(status)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _stragglers() -> bool:
    threads = [
        thread
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and not thread.daemon
    ]
    for thread in threads:
        thread.join(_LAST_WORDS_SECONDS / len(threads))
    return any(thread.is_alive() for thread in threads)
