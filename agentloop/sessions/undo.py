"""The newest compaction, or the newest turns, taken back: by a record, so that nothing is erased."""

from agentloop.context import Context
from agentloop.errors import ConflictError
from agentloop.events import Compacted, Restored, ranges_between
from agentloop.sessions.conflicts import rebase_any
from agentloop.sessions.session import Session


async def undo_newest(session: Session) -> int | None:
    """Take the newest compaction back, with all its steps; the position of its newest record, None for none.

    What is the newest is looked up anew where somebody wrote to the log meanwhile. No lease is held for it: a
    log of the same length may be another's.

    Raises:
        ConflictError: the session was deleted meanwhile; `BegunAnewError` where its id is another's now.
    """
    while session.context.compactions:
        session = await session.whole()
        steps = _newest(session.context)
        await session.newer()
        try:
            await session.append(*(Restored(seq=seq) for seq in steps))
        except ConflictError as conflict:
            session = await rebase_any(session, conflict)
        else:
            return steps[0]
    return None


async def rewind_turns(session: Session, turns: int) -> int | None:
    """Take the newest turns back; the position of the record that does it, None where no turn is in sight.

    It is a compaction with nothing in the place of what it covers, so that `undo_newest` gives them back. The
    session's lease is to be held.

    Raises:
        ConflictError: the session was deleted meanwhile; `BegunAnewError` where its id is another's now.
    """
    while begins := [at for at, entry in enumerate(session.context.visible) if entry.is_user][-turns:]:
        seqs = [entry.seq for entry in session.context.visible]
        kept, gone = seqs[: begins[0]], seqs[begins[0] :]
        event = Compacted(
            covers=ranges_between(gone, kept),
            replacement="",
            at=gone[0],
            tokens=0,
            made="note",
            reason="rewound",
            strategy="rewind",
        )
        try:
            return (await session.append(event)).context.length
        except ConflictError as conflict:
            session = await rebase_any(session, conflict)
    return None


def _newest(context: Context) -> list[int]:
    """The positions of all steps of the newest compaction, the newest first."""
    seq, newest = context.compactions[-1]
    groups = ((at, event.group) for at, event in context.compactions)
    return [at for at, group in reversed(list(groups)) if group and group == newest.group] or [seq]
