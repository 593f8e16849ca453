"""One step of the loop: ask the model, and put its answer into the log."""

import hashlib
import json
import time
from contextlib import aclosing

from agentloop.errors import BadAnswerError, ContextOverflowError, ContextTooLongError
from agentloop.events import ModelCalled
from agentloop.messages import Message
from agentloop.models import Answer, ModelRequest, Retry, TextPart
from agentloop.prompts import NOT_RUN_CUT_OFF
from agentloop.run import Run
from agentloop.sessions import Session
from agentloop.stream import Retrying, TextDelta
from agentloop.wire import wire_messages

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
    for tries_left in reversed(range(SMALLER_TRIES + 1)):
        counted = run.room.budget.counted(session.context)
        request = request_for(run, session)
        started = time.monotonic()
        try:
            answer = await _answer(run, request)
        except ContextTooLongError as error:
            if not tries_left:
                window = error.window or run.room.budget.window
                raise ContextOverflowError(
                    str(error), tokens=error.tokens or counted, window=window
                ) from error
            session = await run.room.shrink(session, error)
        else:
            called = ModelCalled(
                purpose="agent",
                model=run.agent.model.name,
                counted=counted,
                request_hash=_hash(request),
                usage=answer.usage,
                seconds=time.monotonic() - started,
                cost=answer.cost,
            )
            return await _take(run, session, answer, called)
    raise AssertionError("the last try returns or raises")


def request_for(run: Run, session: Session) -> ModelRequest:
    """The request that the context stands for."""
    return ModelRequest(
        messages=wire_messages(session.context.messages, instructions=run.agent.instructions),
        tools=run.agent.schemas,
        max_output_tokens=run.agent.model.max_output_tokens,
    )


async def _answer(run: Run, request: ModelRequest) -> Answer:
    async with aclosing(run.agent.model.stream(request)) as parts:
        async for part in parts:
            match part:
                case TextPart(text=text):
                    await run.watch.say(TextDelta, text=text)
                case Retry(attempt=attempt, wait_seconds=wait, error=error):
                    await run.watch.say(Retrying, attempt=attempt, wait_seconds=wait, error=error)
                case Answer():
                    return part
    raise BadAnswerError("the model ended without an answer")


async def _take(run: Run, session: Session, answer: Answer, called: ModelCalled) -> Session:
    """Store the answer; calls that the output limit cut off are answered as not run, with it."""
    run.spend(answer.usage, answer.cost)
    said = [run.added(answer.message, finish=answer.finish)]
    if answer.finish == "length" and answer.message.tool_calls:
        run.cut_off += 1
        said += [run.added(Message.tool(call.id, NOT_RUN_CUT_OFF)) for call in answer.message.tool_calls]
    else:
        run.cut_off = 0
    session = await session.append(called, *said)
    await run.show(session, *said[:1], usage=answer.usage, cost=answer.cost)
    await run.show(session, *said[1:])
    if run.cut_off >= CUT_OFF_TRIES:
        raise BadAnswerError(
            f"{CUT_OFF_TRIES} answers in a row were cut off by the output limit: raise max_output_tokens"
        )
    return session


def _hash(request: ModelRequest) -> str:
    body = _ENCODER.encode((request.messages, request.tools))
    return hashlib.sha256(body.encode()).hexdigest()


_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
