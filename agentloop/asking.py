"""One step of the loop: ask the model, and put its answer into the log."""

from agentloop.budget import overflow
from agentloop.calling import call
from agentloop.errors import BadAnswerError, ContextTooLongError
from agentloop.events import ModelCalled
from agentloop.messages import Message
from agentloop.models import Answer, ModelRequest, Retry, TextPart
from agentloop.prompts import NOT_RUN_CUT_OFF
from agentloop.run import Run
from agentloop.sessions import Session
from agentloop.stream import TextDelta
from agentloop.wire import wire_messages, wire_tools

SMALLER_TRIES = 2
"""So often a request that the server found too long is made smaller and sent again."""

CUT_OFF_TRIES = 3
"""So many answers in a row whose calls were cut off by the output limit end the run."""


async def ask(run: Run, session: Session) -> Session:
    """The session with the model's answer to it.

    Raises:
        ModelError: the model gave none.
        ContextOverflowError: the server refused the request as too long, and smaller ones too.
    """
    for _ in range(SMALLER_TRIES):
        try:
            return await _asked(run, session)
        except ContextTooLongError as error:
            session = await run.room.shrink(session, error)
    try:
        return await _asked(run, session)
    except ContextTooLongError as error:
        raise overflow(error, run.room.budget, session.context) from error


def request_for(run: Run, session: Session) -> ModelRequest:
    """The request that the context stands for."""
    messages = wire_messages(session.context.messages, instructions=run.agent.instructions)
    return ModelRequest(
        messages=messages,
        tools=wire_tools(run.agent.schemas, messages),
        max_output_tokens=run.agent.model.max_output_tokens,
    )


async def _asked(run: Run, session: Session) -> Session:
    async def show(part: TextPart | Retry) -> None:
        if isinstance(part, TextPart):
            await run.watch.say(TextDelta(text=part.text))
        else:
            await run.watch.retrying(part)

    counted = run.room.budget.counted(session.context)
    answer, called = await call(run.agent.model, request_for(run, session), counted=counted, on_part=show)
    return await _take(run, session, answer, called)


async def _take(run: Run, session: Session, answer: Answer, called: ModelCalled) -> Session:
    """Store the answer; calls that the output limit cut off are answered as not run, with it."""
    run.spend(answer, called.counted)
    said = [run.added(answer.message, finish=answer.finish)]
    cut_off = answer.finish == "length" and bool(answer.message.tool_calls)
    run.cut_off = run.cut_off + 1 if cut_off else 0
    if cut_off:
        said += [run.added(Message.tool(call.id, NOT_RUN_CUT_OFF)) for call in answer.message.tool_calls]
    session = await run.record(session, called, *said, usage=answer.usage, cost=answer.cost)
    if run.cut_off >= CUT_OFF_TRIES:
        raise BadAnswerError(
            f"{CUT_OFF_TRIES} answers in a row were cut off by the output limit: raise max_output_tokens"
        )
    return session
