"""What a run has used so far, read from its records: so limits hold whatever worker goes on with it."""

import time
from collections.abc import Sequence

from agentloop.events import MessageAdded, ModelCalled, Record
from agentloop.limits import charge, total
from agentloop.messages import Message, Usage
from agentloop.models import CUT_SHORT, Answer
from agentloop.run import Run
from agentloop.unsaid import says_nothing


def spend_again(run: Run, records: Sequence[Record]) -> None:
    """Add what the requests in these records used; the first record is the run's beginning.

    Its seconds are counted from there too, by the clock on the wall.
    """
    if records:
        run.started -= max(0.0, time.time() - records[0].event.time)
    called: ModelCalled | None = None
    for record in records:
        event = record.event
        if isinstance(event, ModelCalled) and event.purpose == "agent":
            called = event
        elif isinstance(event, ModelCalled):
            _spend_beside(run, event)
        elif called and isinstance(event, MessageAdded) and event.message.role == "assistant":
            run.spend(_answer(event, called), called.counted)
            run.in_vain = run.in_vain + 1 if _in_vain(event.message, event.finish) else 0
            called = None


def _answer(event: MessageAdded, called: ModelCalled) -> Answer:
    return Answer(message=event.message, usage=called.usage, finish=event.finish, cost=called.cost)


def _spend_beside(run: Run, event: ModelCalled) -> None:
    """A summary's request: no step of the agent, but paid for all the same."""
    run.answered += event.usage or Usage()
    if event.cost is not None:
        run.paid = (run.paid or 0.0) + event.cost
    if run.limits.cost is not None:
        writer = run.room.ladder.policy.model or run.agent.model
        run.charged = total(run.charged, charge(writer, event.usage or Usage(), event.cost))


def _in_vain(message: Message, finish: str | None) -> bool:
    return says_nothing(message) or bool(message.tool_calls and finish in CUT_SHORT)
