"""Trying again: which failures, how often, and how long between.

Only `ModelUnavailableError` is tried again. The wait is what the server asked for, else it doubles each
time with jitter, as in https://cloud.google.com/storage/docs/retry-strategy.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from agentloop.checks import whole
from agentloop.errors import ModelUnavailableError, UsageError
from agentloop.models import ModelPart, Retry

Attempt: TypeAlias = Callable[[], AsyncGenerator[ModelPart, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How a request that failed for now is tried again.

    `attempts` counts the first one too: 5 by default, 1 means never again. The waits between them begin
    at `first_wait_seconds` (0.5), double each time, carry up to `jitter_seconds` (0.5) of chance on top and
    are never longer than `longest_wait_seconds` (60). A server's own Retry-After takes their place; where
    it is longer than `longest_wait_seconds` the request fails at once. `sleep` is how to wait.

    Raises:
        UsageError: `attempts` is no whole number of at least 1, or a wait is negative or no number.
    """

    attempts: int = 5
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 60.0
    jitter_seconds: float = 0.5
    sleep: Callable[[float], Awaitable[object]] = field(default=asyncio.sleep, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole("attempts", self.attempts, 1)
        _check_wait("first_wait_seconds", self.first_wait_seconds)
        _check_wait("longest_wait_seconds", self.longest_wait_seconds)
        _check_wait("jitter_seconds", self.jitter_seconds)

    async def run(self, attempt: Attempt) -> AsyncGenerator[ModelPart, None]:
        """The parts of the first attempt that succeeds, with a `Retry` before each wait.

        Raises:
            ModelUnavailableError: the last attempt failed, or the server asked for too long a wait.
        """
        waits: list[float] = []
        errors: list[str] = []
        async for this_try in self._tenacity(waits):
            if errors:
                yield Retry(attempt=len(errors), wait_seconds=waits[-1], error=errors[-1])
                await self.sleep(waits[-1])
            try:
                async with aclosing(attempt()) as parts:
                    async for part in parts:
                        yield part
                return
            except ModelUnavailableError as error:
                errors.append(str(error))
                with this_try:
                    raise

    def _tenacity(self, waits: list[float]) -> AsyncRetrying:
        """Tenacity's loop; its waits are written down, since a `Retry` has to be yielded before each."""

        async def note(seconds: float) -> None:
            waits.append(seconds)

        return AsyncRetrying(
            sleep=note,
            stop=self._stop,
            wait=self._wait,
            retry=retry_if_exception_type(ModelUnavailableError),
            reraise=True,
        )

    def _stop(self, state: RetryCallState) -> bool:
        return state.attempt_number >= self.attempts or (_advice(state) or 0.0) > self.longest_wait_seconds

    def _wait(self, state: RetryCallState) -> float:
        doubling = wait_exponential_jitter(
            multiplier=self.first_wait_seconds, max=self.longest_wait_seconds, jitter=self.jitter_seconds
        )
        return _advice(state) or doubling(state)


def _advice(state: RetryCallState) -> float | None:
    error = state.outcome.exception() if state.outcome else None
    return error.retry_after_seconds if isinstance(error, ModelUnavailableError) else None


def _check_wait(name: str, seconds: float | None) -> None:
    if (
        seconds is None
        or isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not seconds >= 0
    ):
        raise UsageError(f"{name} must be at least 0 seconds, none of them negative, not {seconds!r}")
