"""The process around the program: signals, standard descriptors, and leaving in an orderly way."""

import atexit
import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TypeAlias

OnSignal: TypeAlias = Callable[[int, FrameType | None], object]

INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_LAST_WORDS_SECONDS = 0.5
_ONE_END_SECONDS = 1.0
"""How long after a first signal others still belong to it: a closing terminal, the shell in it and
`timeout` send SIGHUP and SIGTERM in pairs. Only Ctrl-C is pressed by somebody who means it each time."""
_before_leaving: list[Callable[[], object]] = []


def leave_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """The answer to a signal while nothing is under way that could be lost, or to a second one: the end.

    It waits for nobody, also not for a reader of standard error.
    """
    for act in _before_leaving:
        with suppress(Exception):  # whatever it is, it must not keep the process from ending
            act()
    with suppress(OSError):
        if can_be_written(2):
            os.write(2, _SHOW_CURSOR * os.isatty(2) + b"agentloop: interrupted\n")
    os._exit(INTERRUPTED)


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """The answer to a signal where somebody above has last words to write: KeyboardInterrupt."""
    raise KeyboardInterrupt


def leave_on_second(react: OnSignal) -> OnSignal:
    """Let `react` answer the first signal; a second one ends the process, whatever is stuck."""
    first: list[float] = []

    def answer(number: int, frame: FrameType | None) -> None:
        if not first:
            first.append(time.monotonic())
            react(number, frame)
        elif number == signal.SIGINT or time.monotonic() - first[0] > _ONE_END_SECONDS:
            leave_at_once(number, frame)

    return answer


@contextmanager
def before_leaving(act: Callable[[], object]) -> Iterator[None]:
    """Have `act` done, too, where the process leaves at once within the block."""
    _before_leaving.append(act)
    try:
        yield
    finally:
        _before_leaving.remove(act)


def take_signals(react: OnSignal, numbers: Iterable[int] = _SIGNALS) -> Mapping[int, Any]:
    """Let `react` answer Ctrl-C, SIGTERM and SIGHUP from now on, and return what answered them before.

    What was ignored stays ignored.
    """
    before = {number: signal.getsignal(number) for number in numbers}
    taken = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}
    for number in taken:
        signal.signal(number, react)
    return taken


@contextmanager
def on_signals(react: OnSignal, numbers: Iterable[int] = _SIGNALS) -> Iterator[None]:
    """Let `react` answer Ctrl-C, SIGTERM and SIGHUP within the block; what was ignored stays ignored."""
    before = take_signals(react, numbers)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def on_interrupt(react: OnSignal) -> AbstractContextManager[None]:
    """Let `react` answer Ctrl-C alone within the block."""
    return on_signals(react, (signal.SIGINT,))


def can_block(descriptor: int) -> bool:
    """Whether what reads there may keep a write waiting."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


def can_be_written(descriptor: int, *, wait_seconds: float = 0.0) -> bool:
    """Whether a write of up to `select.PIPE_BUF` bytes would not block, now or within that time."""
    watch = select.poll()
    watch.register(descriptor, select.POLLOUT)
    return bool(watch.poll(wait_seconds * 1000))


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
    """End the process with `status`, whatever the streams and left-over threads say.

    What is registered with `atexit` is done, unless threads are left over. Then the process ends without
    taking Python down: meanwhile a signal would kill it, and where an interrupt has struck an import that
    ran text, as each data class does, Python would end by SIGINT in place of `status`.
    """
    if not _stragglers():
        atexit._run_exitfuncs()
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    os._exit(status)


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
