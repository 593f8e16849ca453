"""From the bytes of a response to an `Answer`: the chunks of a chat completion, in events or in one piece."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from agentloop.errors import BadAnswerError, ModelUnavailableError
from agentloop.models import CUT_SHORT, Answer, ModelPart, TextPart
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
    noting,
    said_in,
)
from agentloop.openai_chat.deltas import GrowingAnswer, check_no_error

_NO_CHOICES = "the server's answer holds no choices: check that the base URL is a chat API's"
_TYPES = frozenset({"", "message", "error"})


async def streamed(
    data: AsyncIterator[bytes], silence_seconds: float | None = None
) -> AsyncGenerator[ModelPart, None]:
    """The parts of an answer that comes as events, the whole `Answer` last.

    `silence_seconds` is the longest silence of the server, None for no limit.

    Raises:
        ModelUnavailableError: the stream ended before the answer did or was silent for too long, or the
            server gave up.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    parser, growing, done = EventParser(), GrowingAnswer(), False
    async with aclosing(events_in(parser, data, growing, silence_seconds)) as events:
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
    """The answer that comes in one piece; one without a choice is an answer that says nothing.

    Raises:
        ModelUnavailableError: its end is missing, or the server gave up.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    growing = GrowingAnswer()
    growing.add_whole(decoded(body))
    return _answer(growing)


def _ended(growing: GrowingAnswer, foreign: Sequence[bytes], *, done: bool) -> tuple[Answer, str]:
    """The answer of a stream that has ended, and what of its text was not shown."""
    if growing.begun and (_has_ended(growing) or (done and _may_be_done(growing))):
        return growing.answer(), growing.rest()
    if growing.begun or not (done or foreign):
        raise ModelUnavailableError(BROKEN_OFF)
    # Some servers say that they send a stream and send one piece, an error as a rule.
    answer = whole(b"\n".join(foreign)) if foreign else _answer(growing)
    return answer, answer.message.text


def _has_ended(growing: GrowingAnswer) -> bool:
    """Whether it says its end, and surely where a call's arguments may be still to come."""
    finish = growing.finish
    return finish.is_over and (finish.sure or finish.word in CUT_SHORT or growing.calls.are_begun())


def _may_be_done(growing: GrowingAnswer) -> bool:
    """Whether it may have ended where nothing but the stream's own end says so."""
    return growing.finish.word is not None or growing.calls.are_whole()


def _answer(growing: GrowingAnswer) -> Answer:
    """The answer; it says nothing where no choice came.

    Raises:
        BadAnswerError: what came is no completion.
    """
    if growing.is_no_answer:
        raise BadAnswerError(_NO_CHOICES)
    return growing.answer()


def _add(growing: GrowingAnswer, event: ServerEvent) -> str:
    if event.type not in _TYPES and not is_object(event.data):
        return ""
    with noting(begun=growing.begun):
        said = said_in(event, begun=growing.begun)
        if event.type == "error":
            check_no_error(said)
            raise ServerSaidError(said)
        return growing.add(said)
