"""From the bytes of a response to an `Answer`: the events of the Responses API, or one piece."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing

from agentloop.errors import BadAnswerError, ModelUnavailableError
from agentloop.messages import Json
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
    said_in,
)
from agentloop.openai_responses.answers import NO_OUTPUT, answer_of, check_not_failed
from agentloop.openai_responses.growing_items import GrowingItems
from agentloop.openai_responses.shown import ShownText

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_TEXT_DELTAS = {"response.output_text.delta": "output_text", "response.refusal.delta": "refusal"}


async def streamed(data: AsyncIterator[bytes]) -> AsyncGenerator[ModelPart, None]:
    """The parts of an answer that comes as events, the whole `Answer` last.

    Raises:
        ModelUnavailableError: the stream ended before the answer did.
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    parser, growing, done = EventParser(), _GrowingResponse(), False
    async with aclosing(events_in(parser, data, lambda: growing.end is not None)) as events:
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
    if growing.end is None and not growing.items and (done or parser.foreign):
        # Some servers say that they send a stream and send one piece, an error as a rule.
        answer = whole(b"\n".join(parser.foreign) or b"{}")
    elif growing.end is None and not (done and growing.items.are_whole()):
        raise ModelUnavailableError(BROKEN_OFF)
    else:
        answer = growing.answer()
    if rest := growing.shown.rest(answer.message.text):
        yield TextPart(text=rest)
    yield answer


def whole(body: bytes) -> Answer:
    """The answer that comes in one piece.

    Raises:
        BadAnswerError: what came is no answer.
        ServerSaidError: an error came in place of an answer.
    """
    response = decoded(body)
    check_not_failed(response)
    output = response.get("output")
    if not isinstance(output, list):
        raise BadAnswerError(NO_OUTPUT)
    return answer_of(response, output)


class _GrowingResponse:
    """A response as far as its events have come; `end` is what the last of them says of the whole."""

    def __init__(self) -> None:
        self.items = GrowingItems()
        self.shown = ShownText()
        self.end: Json | None = None

    def add(self, event: ServerEvent) -> str:
        """Take one event in; returns the text that came with it. Events of unknown types say nothing.

        Raises:
            ServerSaidError: it is an error.
        """
        said = said_in(event, begun=bool(self.items))
        kind = str(said.get("type") or event.type)
        if kind in ("error", "response.error") or said.get("error"):
            raise ServerSaidError(said.get("error") or {**said, "type": None})
        return self._take(kind, said)

    def answer(self) -> Answer:
        """What has come, as one answer."""
        end = self.end or {}
        output = end.get("output")
        return answer_of(end, output if isinstance(output, list) and output else self.items.output())

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
            case "response.function_call_arguments.done", {"arguments": str(arguments)}:
                self.items.of(event).end_arguments(arguments)
            case "response.content_part.added" | "response.content_part.done", {"part": Mapping() as part}:
                self.items.of(event).add_part(_index(event), part)


def _index(event: Json) -> int:
    index = event.get("content_index")
    return index if isinstance(index, int) else 0
