"""A run whose session others had since it began: what of the log is its own, and whether it speaks again.

Others come in where the run was cancelled, or where nobody went on with it before its lease ran out. What
they left stands; who goes on with the run does so behind them.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentloop.context import Finish, next_step
from agentloop.durable.backwards import is_prompt, said_for, turns_of
from agentloop.events import Event, MessageAdded, Record, RunStarted


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """Whether other runs spoke since this one said its prompt, and what it had answered before they came.

    Without both nobody did, or they only went on with what it had asked for: the log's end says what is to be
    done next. Where they `passed` it, it says its prompt again behind them, unless it had its `answer` by
    then, which stands.
    """

    passed: bool = False
    answer: Finish | None = None

    @property
    def speaks_again(self) -> bool:
        """Whether the prompt is to be said once more."""
        return self.passed and self.answer is None


def found_behind(records: Sequence[Record], run_id: str) -> Behind:
    """How the run stands by its records, from its beginning to the log's end."""
    events = [record.event for record in records]
    is_its_turn = all(mine for _, mine in deque(turns_of(events, run_id), maxlen=1))
    return Behind() if is_its_turn else Behind(passed=True, answer=_answer_of(events, run_id))


def says_prompt(records: Iterable[Record], run_id: str) -> bool:
    """Whether the run's prompt is said in these records."""
    return any(is_prompt(record.event, run_id) for record in records)


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


def _answer_of(events: Iterable[Event], run_id: str) -> Finish | None:
    """What was answered to the run's prompt in these events; None where that is not done."""
    step = next_step(list(said_for(events, run_id)))
    return step if isinstance(step, Finish) else None
