"""What still holds of what one was about to write though others wrote meanwhile.

What the log's length refused may be written at its end as it stands now, where the records that came between
begin, say and end nothing.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from agentloop.errors import ConflictError, TakenOverError
from agentloop.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Cleared,
    Compacted,
    Described,
    Event,
    MessageRecord,
    ModelCalled,
    NotCompacted,
    Noted,
    Record,
    Restored,
    RunEndRecord,
    RunStartRecord,
)
from agentloop.sessions.session import Session

Rebase: TypeAlias = Callable[[Session, ConflictError], Awaitable[Session]]
"""The session as it stands after this conflict; raises it where what was to be written does not hold."""


class MovedOnError(ConflictError):
    """The log says more than its writer knew: it is to look again at what is still to be done."""


_BESIDE = (Cleared, Compacted, Described, ModelCalled, NotCompacted, Noted, Restored)


async def append_rebased(session: Session, events: Iterable[Event], rebase: Rebase) -> Session:
    """The session with these events at its end, wherever that is by then.

    Raises:
        StoreError: it could not be written, or what `rebase` raises.
    """
    events = tuple(events)
    while True:
        try:
            return await session.append(*events)
        except ConflictError as conflict:
            session = await rebase(session, conflict)


async def rebase_any(session: Session, conflict: ConflictError) -> Session:
    """The session with all that others wrote meanwhile.

    Raises:
        ConflictError: nobody did; the session may have been deleted, and its id be another's now.
    """
    return await session.with_newer(await _newer(session, conflict))


def rebase_beside(run_id: str) -> Rebase:
    """For what a run writes: the session with what others wrote beside that run.

    It raises `TakenOverError` where another run began, and the conflict where something was said, the session
    is gone, or it was still to begin.
    """

    async def rebase(session: Session, conflict: ConflictError) -> Session:
        newer = await _newer(session, conflict)
        if has_begun(newer, other_than=run_id):
            raise TakenOverError(session.id) from conflict
        if not session.context.length or not all(_is_beside(each.event, run_id) for each in newer):
            raise conflict
        return await session.with_newer(newer)

    return rebase


async def rebase_same_run(session: Session, conflict: ConflictError) -> Session:
    """For a run that several workers may have: the session with what begins, says and ends nothing.

    What has the run's own id may be another worker's, so it is not taken for one's own.

    Raises:
        MovedOnError: something else was written.
        ConflictError: nothing was; the session may have been deleted.
    """
    newer = await _newer(session, conflict)
    if not session.context.length or not all(_is_beside(each.event, "") for each in newer):
        raise MovedOnError(session.id, expected=conflict.expected, actual=conflict.actual) from conflict
    return await session.with_newer(newer)


def has_begun(records: Sequence[Record], *, other_than: str) -> bool:
    """Whether a run begins in these records that is not the one named."""
    return any(isinstance(each.event, RunStartRecord) and each.event.run_id != other_than for each in records)


async def _newer(session: Session, conflict: ConflictError) -> Sequence[Record]:
    newer = await session.newer()
    if not newer:
        raise conflict
    return newer


def _is_beside(event: Event, run_id: str) -> bool:
    """Whether it begins, says and ends nothing, or is the run's own, of a write that was cut off."""
    match event:
        case (
            MessageRecord(branch=None)
            | RunStartRecord()
            | RunEndRecord()
            | ApprovalAsked()
            | ApprovalAnswered()
        ):
            return bool(run_id) and event.run_id == run_id
        case MessageRecord():
            return True
        case _:
            return isinstance(event, _BESIDE)
