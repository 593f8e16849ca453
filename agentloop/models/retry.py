"""Trying again: which failures, how often, how long between, and how long in all.

Only `ModelUnavailableError` is tried again. The wait is what the server asked for, else it doubles each
time; either carries some chance on top, so that not all come back at one instant:
https://cloud.google.com/storage/docs/retry-strategy.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from typing import TypeAlias

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from agentloop._plumbing.checks import above_zero, at_least, called, shown, whole
from agentloop.errors import ModelError, ModelUnavailableError, UsageError
from agentloop.models.model import ModelPart, Retry

Attempt: TypeAlias = Callable[[], AsyncGenerator[ModelPart, None]]

_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
_LONGEST_TOLD_SECONDS = 366 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How a request that failed for now is tried again.

    `attempts` counts the first one too: 5 by default, 1 means never again. The waits between them begin
    at `first_wait_seconds` (0.5) and double each time up to `longest_wait_seconds` (60). A server's own
    Retry-After takes their place. Each carries up to `jitter_seconds` (0.5) of chance on top.

    It fails at once where a server asks for longer than `longest_wait_seconds`, and where the next try
    would begin `longest_total_seconds` or more after the first began: 600 by default, so that a server
    that was silent for the 300 seconds it is waited for is asked once more, and four waits of 60 seconds
    have their place; infinity is no bound. A try that has begun is not cut off. What is raised then says
    when to come back, if the server did.

    `sleep` is how to wait, `clock` tells the seconds since some instant, `now` those since the epoch, and
    `chance` draws from 0 to 1.

    Example:
        >>> RetryPolicy(attempts=3, longest_total_seconds=30).longest_wait_seconds
        60.0

    Raises:
        UsageError: `attempts` is no whole number of at least 1, a time no number of its range, or one of the
            functions none.
    """

    attempts: int = 5
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 60.0
    jitter_seconds: float = 0.5
    longest_total_seconds: float = 600.0
    sleep: Callable[[float], Awaitable[object]] = field(default=asyncio.sleep, repr=False, compare=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)
    chance: Callable[[], float] = field(default=random.random, repr=False, compare=False)
    now: Callable[[], float] = field(default=time.time, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole("attempts", self.attempts, 1)
        at_least("first_wait_seconds", self.first_wait_seconds, 0)
        at_least("longest_wait_seconds", self.longest_wait_seconds, 0)
        at_least("jitter_seconds", self.jitter_seconds, 0)
        above_zero("longest_total_seconds", self.longest_total_seconds)
        if not callable(self.sleep) or isinstance(self.sleep, type):
            raise UsageError(f"sleep must be a function that waits so many seconds, not {shown(self.sleep)}")
        for name, function in (("clock", self.clock), ("chance", self.chance), ("now", self.now)):
            called(name, function, "a function that gives a number")

    async def run(
        self, attempt: Attempt, given_up: Callable[[ModelUnavailableError], ModelError]
    ) -> AsyncGenerator[ModelPart, None]:
        """The parts of the first attempt that succeeds, with a `Retry` before each wait.

        Raises:
            ModelError: what `given_up` makes of the failure of the last attempt; ModelUnavailableError as a
                rule.
        """
        waits: list[float] = []
        failures: list[str] = []
        try:
            async for this_try in self._tenacity(waits):
                if failures:
                    yield Retry(attempt=len(failures), wait_seconds=waits[-1], error=failures[-1])
                    await self.sleep(waits[-1])
                try:
                    async with aclosing(attempt()) as parts:
                        async for part in parts:
                            yield part
                    return
                except ModelUnavailableError as error:
                    failures.append(str(error))
                    with this_try:
                        raise
        except ModelUnavailableError as error:
            if (failure := given_up(error)) is not error:
                raise failure from error
            if not error.retry_after_seconds:
                raise
            text = f"{error}; {come_back(error.retry_after_seconds, self.now())}"
            raise ModelUnavailableError(text, retry_after_seconds=error.retry_after_seconds) from error

    def _tenacity(self, waits: list[float]) -> AsyncRetrying:
        """Tenacity's loop; its waits are written down, since a `Retry` has to be yielded before each."""
        started = self.clock()

        async def note(seconds: float) -> None:
            waits.append(seconds)

        def stop(state: RetryCallState) -> bool:
            return self._is_last(state) or (
                self.clock() - started + state.upcoming_sleep >= self.longest_total_seconds
            )

        return AsyncRetrying(
            sleep=note,
            stop=stop,
            wait=self._wait,
            retry=retry_if_exception_type(ModelUnavailableError),
            reraise=True,
        )

    def _is_last(self, state: RetryCallState) -> bool:
        return state.attempt_number >= self.attempts or (_advice(state) or 0.0) > self.longest_wait_seconds

    def _wait(self, state: RetryCallState) -> float:
        doubling = wait_exponential(multiplier=self.first_wait_seconds, max=self.longest_wait_seconds)
        return (_advice(state) or doubling(state)) + self.jitter_seconds * self.chance()


def come_back(seconds: float, now: float) -> str:
    """When to come back, in words and in local time, rounded up; `now` in seconds since the epoch.

    Example:
        >>> come_back(7_500, 0.0)[:25]
        'come back in 2 h 5 min at'
    """
    if seconds > _LONGEST_TOLD_SECONDS:
        return "come back in more than a year"
    at = datetime.fromtimestamp(ceil(now + seconds), UTC).astimezone()
    return f"come back in {_lasting(seconds)} at {at.isoformat()}"


def _lasting(seconds: float) -> str:
    """E.g. `1 d 2 h`, `2 h 5 min`, `5 min 3 s` or `45 s`, rounded up."""
    for unit, name, part, part_name in _UNITS:
        if seconds >= unit:
            parts = ceil(seconds / part)
            return f"{parts * part // unit} {name} {parts * part % unit // part} {part_name}"
    return f"{ceil(seconds)} s"


def _advice(state: RetryCallState) -> float | None:
    error = state.outcome.exception() if state.outcome else None
    return error.retry_after_seconds if isinstance(error, ModelUnavailableError) else None
