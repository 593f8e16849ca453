"""From the bytes of a response to an `Answer`: the chunks of a chat completion, in events or in one piece."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
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
    is_object,
    said_in,
)
from agentloop.openai_chat.deltas import GrowingAnswer, check_no_error

_NO_CHOICES = "the server's answer holds no choices: check that the base URL is a chat API's"
_TYPES = frozenset({"", "message", "error"})


async def streamed(data: AsyncIterator[bytes]) -> AsyncGenerator[ModelPart, None]:
    """The parts of an answer that comes as events, the whole `Answer` last.

    Raises:
        ModelUnavailableError: the stream ended before the answer did, or the server gave up.
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
    answer, rest = _ended(growing, parser.foreign, done=done)
    if rest:
        yield TextPart(text=rest)
    yield answer


def whole(body: bytes) -> Answer:
    """The answer that comes in one piece.

    Raises:
        ModelUnavailableError: the server gave up.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    growing = GrowingAnswer()
    growing.add_whole(decoded(body))
    if not growing.begun:
        raise BadAnswerError(_NO_CHOICES)
    return growing.answer()


def _ended(growing: GrowingAnswer, foreign: Sequence[bytes], *, done: bool) -> tuple[Answer, str]:
    """The answer of a stream that has ended, and what of its text was not shown."""
    if growing.begun and (growing.finish is not None or (done and growing.calls.are_whole())):
        return growing.answer(), growing.rest()
    if growing.begun or not (done or foreign):
        raise ModelUnavailableError(BROKEN_OFF)
    # Some servers say that they send a stream and send one piece, an error as a rule.
    answer = whole(b"\n".join(foreign) or b"{}")
    return answer, answer.message.text


def _add(growing: GrowingAnswer, event: ServerEvent) -> str:
    if event.type not in _TYPES and not is_object(event.data):
        return ""
    said = said_in(event, begun=growing.begun)
    if event.type == "error":
        check_no_error(said)
        raise ServerSaidError(said)
    return growing.add(said)
