"""How a run begins: its first records, and what an earlier run left in flight."""

from collections.abc import Sequence

from agentloop.answering import settle
from agentloop.context import RunTools, next_step
from agentloop.errors import ConflictError, TakenOverError
from agentloop.events import Described, Event, MessageAdded, RunStarted
from agentloop.given import check_prompt, title_of
from agentloop.messages import Message, ToolCall
from agentloop.run import Run, Stored
from agentloop.sessions import Session
from agentloop.setting import Setting
from agentloop.stream import RunStarted as RunStartedShown


async def begin(setting: Setting, run: Run, session: Session, message: Message | None) -> Session:
    """Store that the run began, with its prompt, before anybody is told; settle what was in flight.

    A prompt follows the results of calls in flight. Until it does it stands in the record of the run's
    beginning, so it is kept however long they take, and whoever goes on says it.

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
    return await settle_and_say(run, begun.session) if pending else begun.session


async def settle_and_say(run: Run, session: Session, *more: Message) -> Session:
    """The session with calls answered that were in flight, and with what was to be said behind their results.

    What `more` there is to be said follows in the same write.

    Raises:
        StoreError: it could not be read or written, or another run has the session.
    """
    if calls := _in_flight(session):
        session = await settle(run, session, calls)
    unsaid = [run.added(message) for message in (*await _unsaid(session), *more)]
    return await run.record(session, *unsaid) if unsaid else session


async def _begun(
    setting: Setting, run: Run, session: Session, said: MessageAdded | None
) -> tuple[Stored, Sequence[ToolCall]]:
    """The run's first records stored, and the calls in flight.

    A run that was put out may have written until now; then they are written behind what it wrote.
    """
    while True:
        calls = _in_flight(session)
        try:
            first = await _first(setting, run, session, said, calls)
            return await run.stored(session, *first), calls
        except (ConflictError, TakenOverError):
            now = await session.reload()
            is_there = 0 < session.context.length < now.context.length
            if not (is_there and run.hold and await run.hold.is_sure()):
                raise
            session = now


async def _first(
    setting: Setting, run: Run, session: Session, said: MessageAdded | None, calls: Sequence[ToolCall]
) -> Sequence[Event]:
    """The records that a run begins with; a prompt follows the results of these calls."""
    prompt = said.message if said and calls else None
    began: list[Event] = [RunStarted(run_id=run.id, model=setting.agent.model.name, prompt=prompt)]
    if said and not session.context.said:
        began.append(_first_description(setting, said.message))
    if calls:
        return began
    earlier = [run.added(message) for message in await _unsaid(session)]
    return [*began, *earlier, said] if said else [*began, *earlier]


def _in_flight(session: Session) -> tuple[ToolCall, ...]:
    step = next_step(session.context.messages)
    return step.calls if isinstance(step, RunTools) else ()


async def _unsaid(session: Session) -> tuple[Message, ...]:
    """The prompts of runs that ended before the results which they were to follow were there."""
    newest = next(
        (entry for entry in reversed(session.context.visible) if entry.message.role != "tool"), None
    )
    if newest is None or not newest.message.tool_calls:
        return ()
    records = await session.store.read(session.id, after=newest.seq, most=session.context.length - newest.seq)
    began = [record.event for record in records if isinstance(record.event, RunStarted)]
    return tuple(event.prompt for event in began if event.prompt)


def _first_description(setting: Setting, message: Message) -> Described:
    """What a session that begins with this message is called, and whose it is."""
    title = title_of(message) or None
    return Described(title=title, folder=setting.folder, owner=setting.owner, ttl_seconds=setting.ttl_seconds)
