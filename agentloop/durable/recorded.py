"""The steps of a run as DBOS does them: each has its place in its tables."""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

from dbos import DBOS, StepReservation
from dbos import error as dbos_error

from agentloop.durable import engine
from agentloop.durable.execution import Todo
from agentloop.durable.flow import Deed
from agentloop.durable.orders import RunCancelledError


def recorded_steps(name: str, deed: Deed, /) -> Coroutine[Any, Any, Todo]:
    """A step of the workflow that calls: its result, from DBOS's tables where it stands there."""
    return _done(DBOS.reserve_step(), name, deed)


async def _done(place: StepReservation, name: str, deed: Deed) -> Todo:
    async def work() -> Todo:
        return await deed()

    try:
        return await place.run_async({"name": name, "preemptible": name != "end"}, work)
    except dbos_error.DBOSWorkflowCancelledError as error:
        raise RunCancelledError from error
    except dbos_error.DBOSWorkflowConflictIDError as error:
        # So a step ends that was done before DBOS saw that the run is cancelled, or that another has it now.
        if await _is_cancelled():
            raise RunCancelledError from error
        raise


async def _is_cancelled() -> bool:
    """Asked outside of the workflow, in which the question would be a step of its own."""
    run_id = DBOS.workflow_id
    assert run_id is not None
    asking = contextvars.Context().run(asyncio.create_task, engine.cancelled(run_id))
    return await asking
