"""How a run begins: its first records, and what an earlier run left in flight."""

from collections.abc import Iterator, Sequence

from agentloop.answering import settle
from agentloop.errors import ConflictError, TakenOverError
from agentloop.events import Event, MessageAdded, RunStarted
from agentloop.messages import Message, ToolCall
from agentloop.openings import check_prompt, first_description
from agentloop.run import Run, Stored
from agentloop.sessions import Session
from agentloop.setting import Setting
from agentloop.steps import RunTools, next_step
from agentloop.stream import RunStarted as RunStartedShown


async def begin(setting: Setting, run: Run, session: Session, message: Message | None) -> Session:
    """Store that the run began, with its prompt, before anybody is told; settle what was in flight.

    The results of that come after the prompt, which is thus kept however long they take.

    Raises:
        ContextOverflowError: the prompt can never fit; nothing is stored.
        StoreError: it could not be stored, or another run has the session.
    """
    said = run.added(message) if message else None
    try:
        check_prompt(run.room.budget, said)
        begun, pending = await _begun(setting, run, session, said)
    finally:
        await run.watch.say(RunStartedShown(model=setting.agent.model.name))
    await run.show(begun)
    return await settle(run, begun.session, pending) if pending else begun.session


async def _begun(
    setting: Setting, run: Run, session: Session, said: MessageAdded | None
) -> tuple[Stored, Sequence[ToolCall]]:
    """The run's first records stored, and the calls in flight.

    A run that was put out may have written until now; then they are written behind what it wrote.
    """
    while True:
        step = next_step(session.context.messages)
        pending = step.calls if isinstance(step, RunTools) else ()
        try:
            return await run.stored(session, *_first(setting, run, session, said)), pending
        except (ConflictError, TakenOverError):
            now = await session.reload()
            is_there = 0 < session.context.length < now.context.length
            if not (is_there and run.hold and await run.hold.is_sure()):
                raise
            session = now


def _first(setting: Setting, run: Run, session: Session, said: MessageAdded | None) -> Iterator[Event]:
    yield RunStarted(run_id=run.id, model=setting.agent.model.name)
    yield from first_description(
        session,
        said.message if said else None,
        folder=setting.folder,
        owner=setting.owner,
        ttl_seconds=setting.ttl_seconds,
    )
    if said:
        yield said
