"""Standard output, which holds the answer or the JSON alone, whole, also for a slow reader."""

import asyncio
import os
import re
import select
import stat
from collections import deque
from contextlib import suppress
from typing import Self

from agentloop.cli.process import can_be_written

_PIECE = getattr(select, "PIPE_BUF", 512)
"""Bytes at a time: POSIX promises that a pipe that is ready takes this much without blocking."""
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn the direction of writing for what follows: with them a title or a
command reads as another (https://www.unicode.org/reports/tr9/)."""


def printable(text: str) -> str:
    """The text without control characters, so that nothing a model or a tool says can steer a terminal.

    >>> printable("rm \u202etxt.exe")
    'rm �txt.exe'
    """
    return _UNSEEN.sub("�", text.replace("\r", ""))


class StandardOutput:
    """Where the answer goes; writing never blocks the event loop, so that Ctrl-C gets through."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest: deque[memoryview] = deque()
        self._is_writing = False
        self.is_terminal = os.isatty(descriptor)
        self._can_block = os.name == "posix" and _can_block(descriptor)

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
        """Write the next piece."""
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


def _can_block(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
