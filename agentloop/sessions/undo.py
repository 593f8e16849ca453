"""The newest compaction, or the newest turns, taken back: by a record, so that nothing is erased."""

from agentloop.context import Context, originals_of
from agentloop.errors import ConflictError, UsageError
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


async def rewind_turns(session: Session, turns: int) -> int:
    """Take the newest turns back; how many went: fewer where there are no more.

    It is a compaction with nothing in the place of what it covers, so that `undo_newest` gives them back. The
    session's lease is to be held.

    Raises:
        UsageError: a compaction covers a part of these turns: its summary would still tell of it.
        ConflictError: the session was deleted meanwhile; `BegunAnewError` where its id is another's now.
    """
    session = await session.whole()
    while begins := _begins(session.context, turns):
        context = session.context
        gone = [entry.seq for entry in context.visible if entry.kind == "said" and entry.seq >= begins[0]]
        left = {entry.seq for entry in (*context.visible, *context.said)}.difference(gone)
        event = Compacted(
            covers=ranges_between(gone, left),
            replacement="",
            at=gone[0],
            tokens=0,
            made="note",
            reason="rewound",
            tier=0,
            strategy="rewind",
        )
        try:
            await session.append(event)
        except ConflictError as conflict:
            session = await rebase_any(session, conflict)
        else:
            return len(begins)
    return 0


def _begins(context: Context, turns: int) -> list[int]:
    """Where the newest turns begin that were not taken back, the oldest first.

    Raises:
        UsageError: something stands for a part of them.
    """
    stand_ins = [entry for entry in context.visible if entry.kind != "said"]
    behind = max((entry.seq for entry in originals_of(context, stand_ins)), default=0)
    users = [entry.seq for entry in originals_of(context, context.visible) if entry.is_user][-turns:]
    if users and users[0] <= behind:
        whole = sum(seq > behind for seq in users)
        newest = f"the newest {whole} turns" if whole > 1 else "the newest turn"
        most = f"{newest} alone can be taken back, not {len(users)}" if whole else "no turn can be taken back"
        raise UsageError(
            f"{most}: a compaction covers a part of these turns, and what stands instead would "
            "still tell of it; undo it first"
        )
    return users


def _newest(context: Context) -> list[int]:
    """The positions of all steps of the newest compaction, the newest first."""
    seq, newest = context.compactions[-1]
    groups = ((at, event.group) for at, event in context.compactions)
    return [at for at, group in reversed(list(groups)) if group and group == newest.group] or [seq]
