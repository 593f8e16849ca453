"""How often a step is tried whose server or database is away, and how long it waits in between.

The waits are ours, within the step: those of DBOS notice neither that the run was cancelled nor that the
worker is asked to stop.
"""

from agentloop.errors import ConflictError, ModelUnavailableError, StoreError, TakenOverError

TRIES = 5
"""So often a step is tried, with waits that double from the first (2, 4, 8, 16 s), on top of the model's own
retries."""

RETRY_SECONDS = 2.0

LONGEST_ADVICE_SECONDS = 600.0
"""A server that asks for a longer wait ends the run, which keeps its place meanwhile. Our own figure."""

_FOR_GOOD = (ConflictError, TakenOverError)


def may_work_later(error: BaseException) -> bool:
    """Whether the same step may do when it is tried again."""
    return isinstance(error, ModelUnavailableError | StoreError) and not isinstance(error, _FOR_GOOD)


def pause_after(tries: int, error: BaseException, *, retry_seconds: float) -> float | None:
    """How long to wait after so many tries, in seconds, as the server asks; None where it was the last one.

    >>> [pause_after(tries, ModelUnavailableError("away"), retry_seconds=2.0) for tries in range(1, 6)]
    [2.0, 4.0, 8.0, 16.0, None]
    >>> pause_after(1, ModelUnavailableError("busy", retry_after_seconds=90), retry_seconds=2.0)
    90
    """
    advice = (error.retry_after_seconds if isinstance(error, ModelUnavailableError) else None) or 0.0
    if tries >= TRIES or advice > LONGEST_ADVICE_SECONDS:
        return None
    return max(retry_seconds * 2.0 ** (tries - 1), advice)
