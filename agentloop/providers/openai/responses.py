"""`OpenAIResponses`, a model behind the Responses API: the events of an answer merged, and its requests.

The event that ends a stream holds the whole response as a rule. Some servers leave out of it what came before
it, or send it empty: then what came counts. An answer in one piece ends here in the same way.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from openai import AsyncOpenAI

from agentloop._plumbing.checks import shown
from agentloop._plumbing.strict_json import cleaned
from agentloop.errors import BadAnswerError, ModelUnavailableError, UsageError
from agentloop.messages import Json, Usage
from agentloop.models import CUT_SHORT, Answer, ModelRequest, OutputPart
from agentloop.prompts import FINAL_ANSWER
from agentloop.providers.openai.chat_parts import check_count, dedupe_calls
from agentloop.providers.openai.dialect import Dialect
from agentloop.providers.openai.endpoint import Body, Posted, ServedModel
from agentloop.providers.openai.fields import ENCRYPTED_REASONING, fields_for
from agentloop.providers.openai.items import (
    BETWEEN_MESSAGES,
    INPUT_FIELDS,
    TEXT_FIELDS,
    inputs_of,
    instructions_of,
    message_of,
)
from agentloop.providers.openai.schemas import answer_format
from agentloop.providers.openai.sse import (
    BROKEN_OFF,
    Ending,
    ServerEvent,
    ServerSaidError,
    decoded,
    said_in,
)

_NO_OUTPUT = "the server's answer holds no output: check that the base URL is a Responses API's"

_UNFINISHED = frozenset({"queued", "in_progress"})
_NO_END = "the server answers in the background, later: take `background` out of extra_body"


def _answer_of(response: Json, items: list[Any]) -> Answer:
    """The answer that a response gives with these items of output.

    Raises:
        BadAnswerError: it is no finished response, or has too many items.
        ServerSaidError: it failed.
    """
    _check_not_failed(response)
    if str(response.get("status")) in _UNFINISHED:
        raise BadAnswerError(_NO_END)
    check_count(items)
    try:
        objects = [item for item in cleaned(items) if isinstance(item, Mapping)]
        message = message_of([_in_api_shape(item) for item in dedupe_calls(objects, _id_and_words)])
    except (UsageError, RecursionError) as error:
        raise BadAnswerError("the server's answer is nested too deep") from error
    finish = _finish(response, items) or ("tool_calls" if message.tool_calls else "stop")
    return Answer(message=message, usage=_usage(response.get("usage")), finish=finish)


def _check_not_failed(response: Json) -> None:
    """Refuse what is an error in place of a response."""
    if error := response.get("error"):
        raise ServerSaidError(error)
    if response.get("object") == "error" or response.get("type") == "error":
        raise ServerSaidError({key: value for key, value in response.items() if value != "error"})
    if str(response.get("status")) in ("failed", "cancelled"):
        raise ServerSaidError({"code": "server_error", "message": f"the response was {response['status']}"})


def _finish(response: Json, items: list[Any]) -> str | None:
    """Why the answer is cut short, in the words of chat completions; None where it is whole.

    A call that says of itself that it is not whole was cut short too.
    """
    if response.get("status") != "incomplete":
        return "length" if any(map(_is_cut_call, items)) else None
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    return "content_filter" if reason == "content_filter" else "length"


def _is_cut_call(item: object) -> bool:
    if not isinstance(item, Mapping) or str(item.get("type")) not in INPUT_FIELDS:
        return False
    return item.get("status") == "incomplete"


def _id_and_words(item: Json) -> tuple[Hashable, Hashable]:
    """Both ids of a call, none of another item, and what the call says where it is for us to answer."""
    kind, call_id = str(item.get("type")), item.get("call_id")
    if not (isinstance(call_id, str) and call_id):
        return (), ()
    given = item.get(INPUT_FIELDS.get(kind, ""))
    return (kind, call_id, str(item.get("id"))), (str(item.get("name")), str(given))


def _in_api_shape(item: Json) -> Json:
    """The item, a message whose text some servers send in a shape of their own in the API's shape."""
    content = item.get("content")
    if item.get("type") != "message" or not isinstance(content, str | list):
        return item
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**item, "content": [_output_text(part) for part in parts]}


def _output_text(part: Any) -> Any:
    if isinstance(part, Mapping) and part.get("type") == "text":
        return {"annotations": [], **part, "type": "output_text"}
    return part


def _usage(data: object) -> Usage | None:
    if not isinstance(data, Mapping):
        return None
    if "input_tokens" not in data and "output_tokens" not in data:
        return Usage.from_openai(data)
    return Usage.from_openai(
        {
            "prompt_tokens": data.get("input_tokens"),
            "completion_tokens": data.get("output_tokens"),
            "prompt_tokens_details": data.get("input_tokens_details"),
        }
    )


_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_TEXT_DELTAS = {"response.output_text.delta": "output_text", "response.refusal.delta": "refusal"}


class GrowingResponse:
    """A response as far as its events have come; `end` is what the last of them says of the whole.

    `size` is how many events came that are a response's.
    """

    def __init__(self) -> None:
        self.items = GrowingItems()
        self._speaking: _GrowingItem | None = None
        self.end: Json | None = None
        self.size = 0
        self._others = 0
        self.given: list[OutputPart] = []

    @property
    def begun(self) -> bool:
        return bool(self.items)

    @property
    def ending(self) -> Ending:
        return Ending.OPEN if self.end is None else Ending.CLOSED

    def add(self, event: ServerEvent) -> str:
        said = said_in(event)
        kind = str(said.get("type") or event.type)
        if kind in ("error", "response.error") or said.get("error"):
            raise ServerSaidError({**said, "type": None})
        self._count(kind)
        return self._take(kind, said)

    @staticmethod
    def whole(body: bytes) -> Answer:
        """The answer that comes in one piece; a response without output is an answer that says nothing."""
        response = decoded(body)
        _check_not_failed(response)
        output = response.get("output")
        if output is None and response.get("object") == "response":
            output = []
        if not isinstance(output, list):
            raise BadAnswerError(_NO_OUTPUT)
        return _answer_of(response, output)

    def ended(self, foreign: bytes, *, done: bool) -> Answer:
        if self.end is not None or (done and self.items.are_whole()):
            return self.answer()
        if foreign and not self.items:
            return self.whole(foreign)
        if done and self._others and not self.size:
            raise BadAnswerError(_NO_OUTPUT)
        if done and not self.size:
            return self.answer()
        raise ModelUnavailableError(BROKEN_OFF)

    def answer(self) -> Answer:
        """What has come, as one answer: what the end says of it, unless more than that came before."""
        end = self.end or {}
        output = end.get("output")
        if isinstance(output, list) and output:
            came = self.items.said()
            return _answer_of(end, came if _size(came) > _size(output) else output)
        answer = _answer_of(end, self.items.output())
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
        if not isinstance(delta, str) or not delta:
            return ""
        item = self.items.of(event)
        item.add_text(_index(event), kind, delta)
        between = BETWEEN_MESSAGES if self._speaking not in (None, item) else ""
        self._speaking = item
        return between + delta

    def _add_piece(self, kind: str, event: Json) -> None:
        match kind, event:
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta", {
                "delta": str(delta)
            }:
                item = self.items.of(event)
                item.add_arguments(delta)
                if item.name.startswith(FINAL_ANSWER):
                    self.given.append(OutputPart(tool=item.name, text=delta))
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


class GrowingItems:
    """All items of the output."""

    def __init__(self) -> None:
        self._items: list[_GrowingItem] = []

    def begin(self, event: Json) -> None:
        item = event.get("item")
        self._items.append(_GrowingItem(item if isinstance(item, Mapping) else {}, event.get("output_index")))
        check_count(self._items)

    def end(self, event: Json) -> None:
        """Take an item that is whole, in its own place."""
        item = event.get("item")
        if not isinstance(item, Mapping):
            return
        open_items = [each for each in self._items if not each.done]
        named = [each for each in self._items if each.id is not None and each.id == item.get("id")]
        index = event.get("output_index")
        placed = [each for each in open_items if index is not None and each.index == index]
        found = named or placed
        if not found:
            self.begin(event)
        (found or self._items)[-1].end(item)

    def of(self, event: Json) -> "_GrowingItem":
        """The item that an event goes on with; one that nobody has announced begins here."""
        name, index = event.get("item_id"), event.get("output_index")
        named = [each for each in self._items if name is not None and each.id == name]
        placed = [each for each in self._items if index is None or each.index == index]
        if not (found := named or placed):
            found = [_GrowingItem({"type": "message", "id": name, "role": "assistant"}, index)]
            self._items += found
            check_count(self._items)
        return found[-1]

    def are_whole(self) -> bool:
        return bool(self._items) and all(item.is_whole for item in self._items)

    def __bool__(self) -> bool:
        return bool(self._items)

    def said(self) -> list[Json]:
        return [each.item() for each in self._items if each.is_said]

    def has_a_bare_call(self) -> bool:
        """Whether a call has begun of whose arguments nothing came, nor that it is whole."""
        begun = [each.item() for each in self._items if not each.is_whole]
        return any(_is_call(item) and not item.get(INPUT_FIELDS[str(item["type"])]) for item in begun)

    def output(self) -> list[Json]:
        return [item.item() for item in self._items]


class _GrowingItem:
    """One item of the output; `done` says that it has come whole."""

    def __init__(self, item: Json, index: object) -> None:
        self.id = item.get("id")
        self.name = str(item.get("name"))
        self.index = index
        self.done = False
        self._item = item
        self._parts: dict[int, tuple[Json, list[str]]] = {}
        self._arguments: list[str] = []
        self._arguments_done = False

    @property
    def is_whole(self) -> bool:
        """Whether it has come whole, or is a call of which the arguments have."""
        return self.done or (self._arguments_done and _is_call(self._item))

    @property
    def is_said(self) -> bool:
        """Whether it is whole, or something came of its text or its arguments."""
        return self.is_whole or bool(self._parts or self._arguments)

    def end(self, item: Json) -> None:
        """Take the whole item; one that says nothing leaves what came before it."""
        says, _ = _size([item])
        came = {} if says else {name: said for name, said in self.item().items() if name in _SAYING}
        self._item, self.done = {**item, **came}, True

    def add_part(self, index: int, part: Json) -> None:
        """Take a part of a message; what it holds of its text stands in place of what came so far."""
        text = part.get(TEXT_FIELDS.get(str(part.get("type")), ""))
        _, texts = self._parts.get(index, (part, []))
        self._parts[index] = part, [text] if isinstance(text, str) and text else texts

    def add_text(self, index: int, kind: str, text: str) -> None:
        self._part(index, kind)[1].append(text)

    def end_text(self, index: int, kind: str, text: str) -> None:
        """Take a part's whole text; where the end does not say it, it is what came before it."""
        if text:
            self._part(index, kind)[1][:] = [text]

    def add_arguments(self, text: str) -> None:
        self._arguments.append(text)

    def end_arguments(self, text: object) -> None:
        """Take a call's whole arguments; where the end does not say them, they are what came before it."""
        self._arguments_done = True
        if isinstance(text, str) and text:
            self._arguments = [text]

    def item(self) -> Json:
        if self.done:
            return self._item
        if self._arguments:
            field = INPUT_FIELDS.get(str(self._item.get("type")), "arguments")
            return {**self._item, field: "".join(self._arguments)}
        if not self._parts:
            return self._item
        pieces = (self._parts[index] for index in sorted(self._parts))
        parts = [_holding(part, "".join(texts)) for part, texts in pieces]
        return {**self._item, "content": parts}

    def _part(self, index: int, kind: str) -> tuple[Json, list[str]]:
        empty: Json = {"type": kind, "annotations": []} if kind == "output_text" else {"type": kind}
        return self._parts.setdefault(index, (empty, []))


def _is_call(item: Json) -> bool:
    return str(item.get("type")) in INPUT_FIELDS


def _holding(part: Json, text: str) -> Json:
    field = TEXT_FIELDS.get(str(part.get("type")))
    return {**part, field: text} if field else part


_SAYING = ("content", *INPUT_FIELDS.values())
"""The fields of an item that say something."""


def _size(items: Sequence[Any]) -> tuple[int, int]:
    """How much is said in these items, in characters, and how many they are."""
    objects = [item for item in items if isinstance(item, Mapping)]
    contents = [item["content"] for item in objects if isinstance(item.get("content"), list)]
    parts = [part for content in contents for part in content if isinstance(part, Mapping)]
    names = {*_SAYING, *TEXT_FIELDS.values()}
    texts = (each.get(name) for each in (*objects, *parts) for name in names)
    return sum(len(text) for text in texts if isinstance(text, str)), len(objects)


def _flat(tool: Json) -> Json:
    """The tool as this API has it; it takes a schema for strict unless told otherwise."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        return tool
    return {"type": "function", "strict": False, **function}


class OpenAIResponses(ServedModel):
    """A model behind the Responses API.

    It takes the arguments of `OpenAIChat`. Of `extra_body`, such as `reasoning`, `tools` and `include` are
    joined with ours; `store`, which is false, may be set and is then never left out.

    The server stores nothing: each request carries the whole conversation, reasoning in encrypted form.
    One instance serves several event loops; connections are kept for each, for as long as it runs.

    Example:
        >>> model = OpenAIResponses("gpt-5-mini", extra_body={"reasoning": {"effort": "low"}}, window="400k")
        >>> model.name, model.window
        ('gpt-5-mini', 400000)

    Raises:
        UsageError: a size, a number, a header or the base URL makes no sense.
    """

    api = "responses"

    _growing = GrowingResponse
    _missing = "a server without the Responses API has chat completions: use OpenAIChat, or --api chat"
    _kept = frozenset({"store"})

    def _check_fields(self, fields: Body) -> None:
        for name, kind, what in (("include", str, "texts"), ("tools", Mapping, "objects")):
            value = fields.get(name, [])
            if not isinstance(value, list | tuple) or not all(isinstance(each, kind) for each in value):
                raise UsageError(f"extra_body: {name!r} must be a list of {what}, not {shown(value)}")

    def _body(self, request: ModelRequest, dialect: Dialect, streams: bool) -> dict[str, Any]:
        fields = fields_for(self._fields, request)
        asked = [name for name in fields.get("include", ()) if name != ENCRYPTED_REASONING]
        body: dict[str, Any] = {"store": False, **fields, "include": [ENCRYPTED_REASONING, *asked]}
        if (instructions := instructions_of(request.messages)) is not None:
            body["instructions"] = instructions
        body["input"] = inputs_of(request.messages, with_reasoning=dialect.reasoning != "none")
        if tools := [*fields.get("tools", ()), *map(_flat, request.tools)]:
            body["tools"] = tools
        if limit := request.max_output_tokens or self.max_output_tokens:
            body["max_output_tokens"] = limit
        if request.answer_schema is not None:
            wanted = {"type": "json_schema", **answer_format(request.answer_schema)}
            body["text"] = {**fields.get("text", {}), "format": wanted}
        return body

    def _post(self, client: AsyncOpenAI, streams: bool, body: Body) -> Posted:
        create = client.responses.with_streaming_response.create
        return create(model=self._choice.model, input=[], stream=streams, extra_body=body)
