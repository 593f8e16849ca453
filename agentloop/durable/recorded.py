"""The steps of a run as DBOS does them: each has its place in its tables, and is tried again for a while."""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from dbos import DBOS, StepReservation
from dbos import error as dbos_error

from agentloop.durable.execution import Todo
from agentloop.durable.flow import Deed, RunCancelledError, may_work_later

TRIES = 5
"""So often a step is tried whose server or database is away, with waits that double from the first (2, 4, 8,
16 s), on top of the model's own retries."""

RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSteps:
    """Steps of the workflow that calls; one that fails is first tried again after `retry_seconds`."""

    retry_seconds: float

    def __call__(self, name: str, deed: Deed, /) -> Coroutine[Any, Any, Todo]:
        """The step's result, from DBOS's tables where it stands there."""
        return self._done(DBOS.reserve_step(), name, deed)

    async def _done(self, place: StepReservation, name: str, deed: Deed) -> Todo:
        async def work() -> Todo:
            return await deed(_is_last_try())

        try:
            return await place.run_async(
                {
                    "name": name,
                    "preemptible": name != "end",
                    "retries_allowed": True,
                    "max_attempts": TRIES,
                    "interval_seconds": self.retry_seconds,
                    "should_retry": may_work_later,
                },
                work,
            )
        except dbos_error.DBOSWorkflowCancelledError as error:
            raise RunCancelledError from error


def _is_last_try() -> bool:
    status = DBOS.step_status
    if status is None or status.current_attempt is None or status.max_attempts is None:
        return True
    return status.current_attempt + 1 >= status.max_attempts
