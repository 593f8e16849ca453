"""From the bytes of a response to an `Answer`: the chunks of a chat completion, in events or in one piece."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from agentloop.errors import BadAnswerError, ModelUnavailableError
from agentloop.models import Answer, ModelPart, TextPart
from agentloop.openai_api.server_events import (
    BROKEN_OFF,
    DONE,
    EventParser,
    ServerEvent,
    ServerSaidError,
    decoded,
    drain,
    events_in,
    is_json,
    text,
)
from agentloop.openai_chat.deltas import GrowingAnswer

_NO_CHOICES = "the server's answer holds no choices: check that the base URL is a chat API's"


async def streamed(data: AsyncIterator[bytes]) -> AsyncGenerator[ModelPart, None]:
    """The parts of an answer that comes as events, the whole `Answer` last.

    Raises:
        ModelUnavailableError: the stream ended before the answer did.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    parser, growing, done = EventParser(), GrowingAnswer(), False
    async with aclosing(events_in(parser, data, lambda: growing.finish is not None)) as events:
        async for event in events:
            if event.data.strip() == DONE:
                done = True
                break
            if text := _add(growing, event):
                yield TextPart(text=text)
    if done:
        await drain(data)
    if growing.begun and (growing.finish is not None or (done and growing.calls_are_whole())):
        yield growing.answer()
    elif not growing.begun and (done or parser.foreign):
        raise BadAnswerError(_NO_CHOICES)
    else:
        raise ModelUnavailableError(BROKEN_OFF)


def whole(body: bytes) -> Answer:
    """The answer that comes in one piece.

    Raises:
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    growing = GrowingAnswer()
    growing.add(decoded(body))
    if not growing.begun:
        raise BadAnswerError(_NO_CHOICES)
    return growing.answer()


def _add(growing: GrowingAnswer, event: ServerEvent) -> str:
    if event.type == "error":
        said = decoded(event.data) if is_json(event.data) else {"message": text(event.data)}
        raise ServerSaidError(said.get("error") or said)
    return growing.add(decoded(event.data))
