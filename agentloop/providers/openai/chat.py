"""`OpenAIChat`, a model behind chat completions: its requests, and its answers, streamed and whole."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from agentloop.context import for_chat_completions
from agentloop.errors import BadAnswerError, ModelUnavailableError
from agentloop.models import CUT_SHORT, Answer, ModelPart, ModelRequest, TextPart
from agentloop.providers.openai.chat_answer import GrowingAnswer, check_no_error
from agentloop.providers.openai.dialect import Dialect
from agentloop.providers.openai.endpoint import Form, ServedModel, post_chat
from agentloop.providers.openai.fields import OWN_FIELDS, fields_for
from agentloop.providers.openai.sse import (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBodies:
    """Makes the bodies of one model's requests; `max_output_tokens` limits those that name no limit."""

    fields: Mapping[str, Any]
    max_output_tokens: int | None

    def of(self, request: ModelRequest, dialect: Dialect, streams: bool) -> dict[str, Any]:
        """The body of this request, without the model's name."""
        body: dict[str, Any] = {"messages": for_chat_completions(request.messages)}
        if request.tools:
            body["tools"] = request.tools
        if limit := request.max_output_tokens or self.max_output_tokens:
            body[dialect.limit_field] = limit
        if streams:
            body["stream_options"] = OWN_FIELDS["stream_options"]
        return {**fields_for(self.fields, request), **body}


_NO_CHOICES = "the server's answer holds no choices: check that the base URL is a chat API's"
_TYPES = frozenset({"", "message", "error"})


async def streamed(
    data: AsyncIterator[bytes], silence_seconds: float | None = None, begun: bytes = b""
) -> AsyncGenerator[ModelPart, None]:
    """The parts of an answer that comes as events, the whole `Answer` last.

    `silence_seconds` is the longest silence of the server, None for no limit; `begun` stands before
    the `data`.

    Raises:
        ModelUnavailableError: the stream ended before the answer did or was silent for too long, or the
            server gave up.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    parser, growing, done = EventParser(), GrowingAnswer(), False
    async with aclosing(events_in(parser, data, growing, silence_seconds, begun)) as events:
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


class OpenAIChat(ServedModel):
    """A model behind chat completions.

    Args:
        model: Its name, as the server knows it.
        base_url: The API's address; by default `OPENAI_BASE_URL` of the environment, else OpenAI's own.
        api_key: By default `OPENAI_API_KEY` of the environment; with a base URL and no key a placeholder
            is sent, as servers on one's own machine want none.
        headers: Sent with each request to that address, and to no other, such as a gateway's token. They are
            kept secret like the key; an `Authorization` among them is sent in its place.
        window: The most tokens a request and its answer may have together, such as 128000 or "128k".
        price: What it costs, where that is not what is published for a model of that name.
        max_output_tokens: The most tokens of an answer; no limit is sent where it is None.
        stream: Whether answers are asked for piece by piece.
        retry: How failures that may pass are tried again.
        timeout_seconds: The longest silence of the server: 300 by default. One that goes on saying that it
            lives, and nothing more, is waited for four times as long.
        temperature: Sent where it is not None.
        extra_body: Further fields of every request.

    One instance serves several event loops; connections are kept for each, for as long as it runs.

    Raises:
        UsageError: a size, a number, a header or the base URL makes no sense.
    """

    api = "chat"

    @staticmethod
    def _form_of(fields: Mapping[str, Any], limit: int | None) -> Form:
        bodies = ChatBodies(fields=fields, max_output_tokens=limit)
        return Form(post=post_chat, body=bodies.of, streamed=streamed, whole=whole)
