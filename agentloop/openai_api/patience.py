"""How long more of a stream is waited for, by how much it said and by what it said of its end.

A server can be silent, send signs of life alone (comments, pings, empty chunks), never close what it has
ended, and say of each piece that it is the last. So the clock runs while an answer does not grow, and a word
of the end is believed at once only where it can be true.
"""

import asyncio
from collections.abc import AsyncIterator
from enum import Enum, auto
from typing import Protocol

from agentloop.errors import ModelUnavailableError

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


class Growing(Protocol):
    """An answer that grows: `size` is larger after each event that added to it."""

    @property
    def size(self) -> int: ...

    @property
    def ending(self) -> Ending: ...


class Patience:
    """Waits for the next bytes of a growing answer, in each state of it so long and no longer.

    A silent connection fails by itself after `silence_seconds`; None is no limit.
    """

    def __init__(self, growing: Growing, silence_seconds: float | None) -> None:
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
