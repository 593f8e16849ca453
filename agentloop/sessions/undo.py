"""The newest compaction taken back: what it hid is seen again."""

from agentloop.context import Context
from agentloop.errors import ConflictError
from agentloop.events import Restored
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


def _newest(context: Context) -> list[int]:
    """The positions of all steps of the newest compaction, the newest first."""
    seq, newest = context.compactions[-1]
    groups = ((at, event.group) for at, event in context.compactions)
    return [at for at, group in reversed(list(groups)) if group and group == newest.group] or [seq]
