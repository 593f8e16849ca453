"""From the bytes of a response to an `Answer`: the events of the Responses API, or one piece."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing

from agentloop.errors import BadAnswerError, ModelUnavailableError
from agentloop.messages import Json
from agentloop.models import CUT_SHORT, Answer, ModelPart, TextPart
from agentloop.openai_api.patience import Ending
from agentloop.openai_api.server_events import (
    BROKEN_OFF,
    DONE,
    EventParser,
    ServerEvent,
    ServerSaidError,
    decoded,
    drain,
    events_in,
    noting,
    said_in,
)
from agentloop.openai_responses.answers import NO_OUTPUT, answer_of, check_not_failed
from agentloop.openai_responses.growing_items import GrowingItems
from agentloop.openai_responses.shown import ShownText

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_TEXT_DELTAS = {"response.output_text.delta": "output_text", "response.refusal.delta": "refusal"}


async def streamed(
    data: AsyncIterator[bytes], silence_seconds: float | None = None
) -> AsyncGenerator[ModelPart, None]:
    """The parts of an answer that comes as events, the whole `Answer` last.

    `silence_seconds` is the longest silence of the server, None for no limit.

    Raises:
        ModelUnavailableError: the stream ended before the answer did, or was silent for too long.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    parser, growing, done = EventParser(), _GrowingResponse(), False
    async with aclosing(events_in(parser, data, growing, silence_seconds)) as events:
        async for event in events:
            if event.data.strip() == DONE:
                done = True
                break
            if said := growing.add(event):
                yield TextPart(text=said)
            if growing.end is not None:
                break
    if done or growing.end is not None:
        await drain(data)
    answer = _ended(growing, parser.foreign, done=done)
    if rest := growing.shown.rest(answer.message.text):
        yield TextPart(text=rest)
    yield answer


def whole(body: bytes) -> Answer:
    """The answer that comes in one piece; a response without output is an answer that says nothing.

    Raises:
        ModelUnavailableError: its end is missing.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    response = decoded(body)
    check_not_failed(response)
    output = response.get("output")
    if output is None and response.get("object") == "response":
        output = []
    if not isinstance(output, list):
        raise BadAnswerError(NO_OUTPUT)
    return answer_of(response, output)


def _ended(growing: "_GrowingResponse", foreign: Sequence[bytes], *, done: bool) -> Answer:
    """The answer of a stream that has ended."""
    if growing.end is not None or (done and growing.items.are_whole()):
        return growing.answer()
    if foreign and not growing.items:
        # Some servers say that they send a stream and send one piece, an error as a rule.
        return whole(b"\n".join(foreign))
    if done and growing.is_other:
        raise BadAnswerError(NO_OUTPUT)
    if done and not growing.size:
        return growing.answer()
    raise ModelUnavailableError(BROKEN_OFF)


class _GrowingResponse:
    """A response as far as its events have come; `end` is what the last of them says of the whole.

    `size` is how many events came that are a response's, and `is_other` says that only others came.
    """

    def __init__(self) -> None:
        self.items = GrowingItems()
        self.shown = ShownText()
        self.end: Json | None = None
        self.size = 0
        self._others = 0

    @property
    def ending(self) -> Ending:
        """Whether the last event has come, which comes once."""
        return Ending.OPEN if self.end is None else Ending.SURE

    @property
    def is_other(self) -> bool:
        """Whether events came, and none of a response."""
        return self._others > 0 and not self.size

    def add(self, event: ServerEvent) -> str:
        """Take one event in; returns the text that came with it. Events of unknown types say nothing.

        Raises:
            ServerSaidError: it is an error.
        """
        with noting(begun=bool(self.items)):
            said = said_in(event, begun=bool(self.items))
            kind = str(said.get("type") or event.type)
            if kind in ("error", "response.error") or said.get("error"):
                raise ServerSaidError({**said, "type": None})
            self._count(kind)
            return self._take(kind, said)

    def answer(self) -> Answer:
        """What has come, as one answer; what came whole is in it also where the end leaves it out.

        Raises:
            ModelUnavailableError: nothing of a call's arguments came, nor that it is whole.
            ServerSaidError: it failed.
            BadAnswerError: it is no finished response.
        """
        end = self.end or {}
        output = end.get("output")
        with noting(begun=bool(self.items)):
            if isinstance(output, list) and output:
                return answer_of(end, self.items.completing(output))
            answer = answer_of(end, self.items.output())
        if answer.finish not in CUT_SHORT and self.items.has_a_bare_call():
            raise ModelUnavailableError(BROKEN_OFF)
        return answer

    def _count(self, kind: str) -> None:
        if kind.startswith("response."):
            self.size += 1
        else:
            self._others += 1

    def _take(self, kind: str, event: Json) -> str:
        if kind in _ENDS:
            response = event.get("response")
            self.end = {"status": kind.removeprefix("response.")} | dict(
                response if isinstance(response, Mapping) else {}
            )
        elif kind == "response.output_item.added":
            self.items.begin(event)
        elif kind == "response.output_item.done":
            self.items.end(event)
        elif kind in _TEXT_DELTAS:
            return self._add_text(_TEXT_DELTAS[kind], event)
        else:
            self._add_piece(kind, event)
        return ""

    def _add_text(self, kind: str, event: Json) -> str:
        delta = event.get("delta")
        if not isinstance(delta, str):
            return ""
        item = self.items.of(event)
        item.add_text(_index(event), kind, delta)
        return self.shown.add(item, delta)

    def _add_piece(self, kind: str, event: Json) -> None:
        match kind, event:
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta", {
                "delta": str(delta)
            }:
                self.items.of(event).add_arguments(delta)
            case "response.function_call_arguments.done", _:
                self.items.of(event).end_arguments(event.get("arguments"))
            case "response.custom_tool_call_input.done", _:
                self.items.of(event).end_arguments(event.get("input"))
            case "response.output_text.done", {"text": str(text)}:
                self.items.of(event).end_text(_index(event), "output_text", text)
            case "response.refusal.done", {"refusal": str(text)}:
                self.items.of(event).end_text(_index(event), "refusal", text)
            case "response.content_part.added" | "response.content_part.done", {"part": Mapping() as part}:
                self.items.of(event).add_part(_index(event), part)


def _index(event: Json) -> int:
    index = event.get("content_index")
    return index if isinstance(index, int) else 0
