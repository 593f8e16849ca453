"""Who is dead: a worker whose sign of life, the lock that it holds, stays away."""

from collections.abc import Sequence
from dataclasses import replace

from agentloop.durable.orders import QueuedRun
from agentloop.stores.postgres import held_among

LOOKS = 3
"""A living worker that lost its connection takes its lock again within one look: it is dead where the lock is
free in so many looks in a row, which this worker made on one and the same connection. A server that restarts
frees the locks of all."""


class Missing:
    """In how many looks in a row each worker was missing.

    >>> missing = Missing()
    >>> [missing.is_dead("w", is_free=is_free) for is_free in (True, True, False, True, True, True)]
    [False, False, False, False, False, True]
    """

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}

    def is_dead(self, worker: str, *, is_free: bool) -> bool:
        """Whether that makes the worker a dead one; `is_free` is what this look says of its lock."""
        looks = self._looks.pop(worker, 0) + 1
        if is_free and looks < LOOKS:
            self._looks[worker] = looks
        return is_free and looks >= LOOKS

    def forget(self) -> None:
        """Begin anew: looks from before one's own connection was lost tell nothing."""
        self._looks.clear()


def sign_of(worker: str) -> str:
    """The name of the lock that a worker holds for as long as it lives."""
    return f"agentloop worker {worker}"


async def with_missing(url: str, runs: Sequence[QueuedRun]) -> Sequence[QueuedRun]:
    """These runs; the error of one that goes on nowhere, since its worker is missing, says that.

    Raises:
        StoreError: the database cannot be reached.
    """
    signs = {sign_of(run.worker) for run in runs if run.state == "running" and run.worker}
    missing = signs - await held_among(url, signs) if signs else signs
    why = "its worker gives no sign of life: one of the same version is to go on with it"
    return [replace(run, error=why) if run.worker and sign_of(run.worker) in missing else run for run in runs]
