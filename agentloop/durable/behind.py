"""A run whose session others had since it began: what of the log is its own, and whether it speaks again.

Others come in where the run was cancelled, or where nobody went on with it before its lease ran out. What
they left stands; who goes on with the run does so behind them.
"""

from collections.abc import Iterable, Iterator

from agentloop.durable.backwards import is_prompt
from agentloop.events import MessageAdded, Record, RunStarted
from agentloop.steps import Finish, next_step


def is_passed(records: Iterable[Record], run_id: str, *, before: bool = False) -> bool:
    """Whether another run began since this one said its prompt; `before`: whether one had until then."""
    passed = before
    for event in (record.event for record in records):
        if isinstance(event, RunStarted) and event.run_id != run_id:
            passed = True
        elif is_prompt(event, run_id):
            passed = False
    return passed


def answer_of(records: Iterable[Record], run_id: str) -> Finish | None:
    """What the run has answered in these records; None where it is not done."""
    events = [record.event for record in records]
    said = [each.message for each in events if isinstance(each, MessageAdded) and each.run_id == run_id]
    step = next_step(said)
    return step if isinstance(step, Finish) else None


def of_run(records: Iterable[Record], run_id: str) -> Iterator[Record]:
    """The records from where the run has the session to where another begins, each time it has it."""
    is_its = False
    for record in records:
        if isinstance(record.event, RunStarted):
            is_its = record.event.run_id == run_id
        elif isinstance(record.event, MessageAdded):
            is_its = is_its or record.event.run_id == run_id
        if is_its:
            yield record
