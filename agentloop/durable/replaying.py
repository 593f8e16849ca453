"""What a run has used so far, read from its records: so limits hold whatever worker goes on with it."""

import time
from collections.abc import Sequence

from agentloop.compaction import took
from agentloop.durable.behind import of_run
from agentloop.events import Compacted, MessageAdded, ModelCalled, Record
from agentloop.models import Answer
from agentloop.run import Run, came_to_nothing


def spend_again(run: Run, records: Sequence[Record]) -> None:
    """Add what the run's requests in these records used; the first record is its beginning.

    Its seconds are counted from there too, by the clock on the wall, also those that others had the session.
    """
    if records:
        run.spending.started -= max(0.0, time.time() - records[0].event.time)
    asked: ModelCalled | None = None
    beside: list[ModelCalled] = []
    for record in of_run(records, run.id):
        match record.event:
            case ModelCalled(purpose="agent") as called:
                asked = called
            case ModelCalled() as called:
                beside.append(called)
            case Compacted(tokens=tokens):
                run.spending.add_beside(took(beside, tokens))
                beside = []
            case MessageAdded() as said if asked and said.message.role == "assistant":
                run.spend(_answer(said, asked), asked.counted)
                run.in_vain = run.in_vain + 1 if came_to_nothing(said.message, said.finish) else 0
                asked = None
    run.spending.add_beside(took(beside, 0))


def _answer(said: MessageAdded, called: ModelCalled) -> Answer:
    return Answer(message=said.message, usage=called.usage, finish=said.finish, cost=called.cost)
