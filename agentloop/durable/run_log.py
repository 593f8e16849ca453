"""One run's part of a log, also where others had the session since the run began.

Others come in where the run was cancelled, or where nobody went on with it before its lease ran out. What
they left stands; who goes on with the run does so behind them.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentloop.context import Finish, next_step, partial_answer
from agentloop.events import Event, MessageRecord, Record, RunEndRecord, RunStartRecord
from agentloop.messages import Message
from agentloop.stores.base import SessionStore
from agentloop.stream import RunStatus

_BLOCK = 256

_SLACK_SECONDS = 86_400.0
"""How far the clocks of two machines may be apart."""


async def records_of_run(
    store: SessionStore, session_id: str, run_id: str, *, submitted: float
) -> Sequence[Record]:
    """The log from that run's beginning to its end; none where it has not begun since it was submitted.

    It is read from its end, in pieces.
    """
    info = await store.info(session_id)
    upto, found = info.length if info else 0, deque[Record]()
    while upto > 0:
        after = max(0, upto - _BLOCK)
        for record in reversed(await store.read(session_id, after=after, most=upto - after)):
            found.appendleft(record)
            if begins(record, run_id):
                return list(found)
            if record.event.time < submitted - _SLACK_SECONDS:
                return ()
        upto = after
    return ()


def begins(record: Record, run_id: str) -> bool:
    """Whether it is that run's beginning."""
    return isinstance(record.event, RunStartRecord) and record.event.run_id == run_id


def says_prompt(records: Iterable[Record], run_id: str) -> bool:
    """Whether the run's prompt is said in these records."""
    said = (record.event for record in records if isinstance(record.event, MessageRecord))
    return any(event.run_id == run_id and event.message.role == "user" for event in said)


def said_for(events: Iterable[Event], run_id: str) -> tuple[Sequence[Message], bool]:
    """What was said in that run and in those that went on with what it asked for, and whether that is being
    done at the end of these events, which begin with the run's own.

    It is until another run has a prompt of its own. One that has none goes on with what it finds.
    """
    said, others, is_its_turn = list[Message](), set[str](), True
    for event in events:
        match event:
            case RunStartRecord(prompt=prompt) if event.run_id != run_id:
                others.add(event.run_id)
                is_its_turn = is_its_turn and prompt is None
            case MessageRecord(message=message):
                if message.role == "user" and event.run_id in (run_id, *others):
                    is_its_turn = event.run_id == run_id
                if event.run_id == run_id or (is_its_turn and event.run_id in others):
                    said.append(message)
    return said, is_its_turn


def has_ended(records: Sequence[Record], run_id: str, status: RunStatus) -> bool:
    """Whether the run ended so by these records, and nothing of it stands behind that."""
    for event in (record.event for record in reversed(records)):
        if isinstance(event, RunEndRecord | MessageRecord) and event.run_id == run_id:
            return isinstance(event, RunEndRecord) and event.status == status
    return False


def answer_in(records: Sequence[Record], run_id: str) -> str:
    """What the model answered in that run; empty where it has not."""
    said = _by_model(records, run_id)
    return said[-1].text if said and not said[-1].tool_calls else ""


def partial_in(records: Sequence[Record], run_id: str) -> str:
    """What there is of an answer in that run: all that the model said, hidden by a compaction or not."""
    return partial_answer(_by_model(records, run_id))


def _by_model(records: Sequence[Record], run_id: str) -> Sequence[Message]:
    """What the model said in that run until its end."""
    events = [record.event for record in records]
    named = (RunStartRecord, RunEndRecord, MessageRecord)
    while events and not (isinstance(events[-1], named) and events[-1].run_id == run_id):
        events.pop()
    said, _ = said_for(events, run_id)
    return [message for message in said if message.role == "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OvertakenRun:
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


def found_overtaken(records: Sequence[Record], run_id: str) -> OvertakenRun:
    """How the run stands by its records, from its beginning to the log's end."""
    said, is_its_turn = said_for((record.event for record in records), run_id)
    if is_its_turn:
        return OvertakenRun()
    step = next_step(said)
    return OvertakenRun(passed=True, answer=step if isinstance(step, Finish) else None)


def of_run(records: Iterable[Record], run_id: str) -> Iterator[Record]:
    """The records from where the run has the session to where another begins, each time it has it."""
    is_its = False
    for record in records:
        if isinstance(record.event, RunStartRecord):
            is_its = record.event.run_id == run_id
        elif isinstance(record.event, MessageRecord):
            is_its = is_its or record.event.run_id == run_id
        if is_its:
            yield record
