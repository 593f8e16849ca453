"""What is said (Message, ToolCall), to and from chat-completions dicts, losing nothing; what it took (Usage).

`from_openai` and `to_openai` are inverses for every chat-completions dict: fields not known here, and
known fields of an unusual shape, travel in `extra`; fields the original left out are named in `omits`.
What an unusual shape says is in the typed fields all the same: a refusal as text, a dict of arguments as
JSON, a number as an id; in the form before tool calls a `function_call` is a call, and what the role
`function` says the result of one, both with an empty id.

How `extra` and `omits` come about stands at the end: `difference` holds the original against what the typed
fields alone make (its plain form), and `merged` makes it of both again.
"""

import copy
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any, Self, TypeAlias, TypedDict, TypeGuard

from agentloop._plumbing.strict_json import cleaned, mapping_or_empty, strict_value
from agentloop.bounds import MOST_NESTED
from agentloop.errors import UsageError
from agentloop.media import label_of
from agentloop.prompts import MEDIA_SHOWN

Json: TypeAlias = Mapping[str, Any]
Content: TypeAlias = str | tuple[Json, ...] | None
INLINE_REASONING = "inline_reasoning"
"""The field of a message that holds a thought out of its text; it is kept, and sent to no server."""
MOST_REPORTED_TOKENS = 100_000_000
"""A report of more tokens for one request is none: ten times the largest window offered (10 million)."""


def decoded(arguments: str) -> dict[str, Any] | None:
    """The arguments of a call as `ToolCall.decoded` has them."""
    if not arguments.strip():
        return {}
    try:
        value = strict_value(arguments)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call the model asks for; `arguments` is the JSON text as the model wrote it, unchecked."""

    id: str
    name: str
    arguments: str = "{}"
    extra: Json = field(default_factory=dict)
    omits: tuple[str, ...] = ()

    @classmethod
    def from_openai(cls, data: Json) -> Self:
        """Read one item of `tool_calls`, losing nothing."""
        function, custom = mapping_or_empty(data.get("function")), mapping_or_empty(data.get("custom"))
        arguments = function.get("arguments")
        if not arguments and "input" in custom:
            arguments = {"input": custom["input"]}
        typed = cls(
            id=_text(data.get("id")),
            name=_text(function.get("name") or custom.get("name")),
            arguments=_text(arguments),
        )
        return replace(typed, **difference(data, typed._typed_fields()))

    def to_openai(self) -> dict[str, Any]:
        """The dict this call came from, or the plain form of one made here."""
        return merged(self._typed_fields(), self.extra, self.omits)

    def with_id(self, call_id: str) -> Self:
        """The same call by another id, whatever the original said of its id."""
        return replace(self, id=call_id, **said_anew(self.extra, self.omits, "id"))

    def decoded(self) -> dict[str, Any] | None:
        """The arguments as a dict; None where the text is no JSON object, or one nested
        over `MOST_NESTED` levels deep. Blank text is no argument.

        Raw control characters in strings, which JSON has as escapes alone, are taken as they are.
        """
        return decoded(self.arguments)

    def _typed_fields(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat-completions message.

    `content` is text, a tuple of content parts, or None; a list of parts becomes one. `tool_calls` stands on
    assistant messages, `tool_call_id` on tool messages. `extra` holds every other field of the original, byte
    for byte.

    Raises:
        UsageError: the content or the calls are nothing of that kind.
    """

    role: str
    content: Content = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    extra: Json = field(default_factory=dict)
    omits: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.content, list | tuple):
            if isinstance(self.content, list) or not all(isinstance(part, Mapping) for part in self.content):
                object.__setattr__(self, "content", tuple(map(_part, self.content)))
        elif not isinstance(self.content, str | None):
            kind = type(self.content).__name__
            raise UsageError(f"the content of a message must be text, a list of parts, or None, not {kind}")
        if not isinstance(self.tool_calls, tuple):
            object.__setattr__(self, "tool_calls", _listed_calls(self.tool_calls))

    @classmethod
    def user(cls, text: str) -> Self:
        """What a user said."""
        return cls(role="user", content=text)

    @classmethod
    def assistant(cls, text: str | None = None, tool_calls: Sequence[ToolCall] = ()) -> Self:
        """What a model said, asked for, or both."""
        return cls(role="assistant", content=text, tool_calls=tuple(tool_calls))

    @classmethod
    def tool(cls, call_id: str, text: str) -> Self:
        """The result of the call with that id."""
        return cls(role="tool", content=text, tool_call_id=call_id)

    @classmethod
    def from_openai(cls, data: Json) -> Self:
        """Read a chat-completions message, losing nothing.

        Raises:
            UsageError: `data` is no mapping with a text `role`, or nested too deep.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("role"), str):
            raise UsageError("a message must be a JSON object with a text field 'role'")
        _check_nesting(data)
        is_function, name = data["role"] == "function", data.get("name")
        call_id = data.get("tool_call_id", "" if is_function else None)
        typed = cls(
            role="tool" if is_function else data["role"],
            content=_content(data),
            tool_calls=_calls(data),
            tool_call_id=None if call_id is None else _text(call_id),
            name=name if isinstance(name, str) else None,
        )
        return replace(typed, **difference(data, typed._typed_fields()))

    def to_openai(self) -> dict[str, Any]:
        """The dict this message came from, or the plain form of one made here."""
        return merged(self._typed_fields(), self.extra, self.omits)

    def with_calls(self, calls: Sequence[ToolCall]) -> Self:
        """The same message with other calls, whatever the original said of its calls."""
        return replace(self, tool_calls=tuple(calls), **said_anew(self.extra, self.omits, "tool_calls"))

    def answering(self, call_id: str) -> Self:
        """The same result for the call by that id, whatever the original said of its role and its call."""
        kept = said_anew(self.extra, self.omits, "tool_call_id", "role")
        return replace(self, tool_call_id=call_id, **kept)

    @property
    def parts(self) -> tuple[Json, ...]:
        """The parts of the content; none where it is text alone."""
        return self.content if isinstance(self.content, tuple) else ()

    @property
    def has_media(self) -> bool:
        """Whether it holds an image or a file."""
        return any(label_of(part) is not None for part in self.parts)

    @property
    def text(self) -> str:
        """The text of the content, texts and refusals joined by newlines.

        An image or a file is named, as in `[image shot.png 1280×720]`; other parts say nothing here.
        """
        return text_of(
            [labelled_part(part) or part for part in self.parts] if self.has_media else self.content
        )

    def _typed_fields(self) -> dict[str, Any]:
        content = copy.deepcopy(list(self.content)) if isinstance(self.content, tuple) else self.content
        plain: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            plain["tool_calls"] = [call.to_openai() for call in self.tool_calls]
        if self.tool_call_id is not None:
            plain["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            plain["name"] = self.name
        return plain


def text_of(content: object) -> str:
    """The text of a message's content, that of its parts one a line.

    Example:
        >>> text_of([{"type": "text", "text": "Hello"}, {"type": "refusal", "refusal": "No."}])
        'Hello\\nNo.'
    """
    if not isinstance(content, list | tuple):
        return content if isinstance(content, str) else ""
    texts = (part.get("text") or part.get("refusal") for part in content if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def labelled_part(part: Json, words: str = MEDIA_SHOWN, **more: object) -> Json | None:
    """The text part that names an image or a file in these words; None for any other part."""
    what = label_of(part)
    return None if what is None else {"type": "text", "text": words.format(what=what, **more)}


def _content(data: Json) -> Content:
    match data.get("content"):
        case str(text):
            return text
        case None:
            refusal = data.get("refusal")
            return refusal if isinstance(refusal, str) and refusal else None
        case list(parts):
            return tuple(_part(part) for part in parts)
        case {"type": str()} as part:
            return (_part(part),)
        case value:
            return _text(value)


def _part(value: object) -> Json:
    if isinstance(value, Mapping):
        return copy.deepcopy(value)
    return {"type": "text", "text": _text(value)}


def _listed_calls(value: object) -> tuple[ToolCall, ...]:
    if isinstance(value, list) and all(isinstance(call, ToolCall) for call in value):
        return tuple(value)
    raise UsageError(f"the calls of a message must be a list of ToolCalls, not {type(value).__name__}")


def _calls(data: Json) -> tuple[ToolCall, ...]:
    value = data.get("tool_calls") or _in_the_form_before(data)
    calls = value if isinstance(value, list) else [value]
    return tuple(ToolCall.from_openai(call) for call in calls if isinstance(call, Mapping))


def _in_the_form_before(data: Json) -> Json | None:
    """The call in the field that `tool_calls` replaced
    (https://platform.openai.com/docs/api-reference/chat/object)."""
    match data:
        case {"role": "assistant", "function_call": {"name": str(name)} as function} if name:
            return {"id": "", "type": "function", "function": function}
    return None


def _text(value: object) -> str:
    """The value itself where it is text, else as JSON; nothing is an empty text."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)


def _check_nesting(data: Json) -> None:
    waiting = [(value, 1) for value in data.values() if _holds_more(value)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MOST_NESTED:
            raise UsageError(f"a message is nested over {MOST_NESTED} levels deep: give deep data as text")
        inner = value.values() if isinstance(value, Mapping) else value
        waiting.extend((each, depth + 1) for each in inner if _holds_more(each))


def _holds_more(value: object) -> TypeGuard[Mapping[Any, Any] | Sequence[Any]]:
    return isinstance(value, Mapping | list | tuple)


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message of a session, as its log holds it, and whether the model sees the whole of it."""

    message: Message
    in_sight: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider reported them; `cached_tokens` is the part of the input read from its cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    @classmethod
    def from_openai(cls, data: Mapping[str, Any]) -> Self:
        """Read the `usage` object of chat completions.

        What is missing, no number, negative or above `MOST_REPORTED_TOKENS` was not reported and is 0; so is
        what is said to be cached where that is more than the whole input.
        """
        details = data.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens") if isinstance(details, Mapping) else 0)
        told = _count(data.get("prompt_tokens"))
        return cls(
            input_tokens=told,
            output_tokens=_count(data.get("completion_tokens")),
            cached_tokens=cached if cached <= told else 0,
        )

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MOST_REPORTED_TOKENS else 0


class CallIds:
    """Gives every call an id of its own among those that it has given and those that are `known`."""

    def __init__(self, known: Collection[str] = ()) -> None:
        self._known = known
        self._given: set[str] = set()
        self._times: dict[str, int] = {}

    def of_message(self, message: Message) -> Message:
        """The message with ids of their own for its calls; the message itself where they are already."""
        calls = tuple(map(self.of_call, message.tool_calls))
        same = all(map(is_, calls, message.tool_calls))
        return message if same else message.with_calls(calls)

    def of_call(self, call: ToolCall) -> ToolCall:
        """The call by its own id where that is free, else by the next free one made from it."""
        said = cleaned(call.id)
        name = said
        while not name or name in self._given or name in self._known:
            self._times[said] = self._times[said] + 1 if said in self._times else 2
            name = f"{said or 'call'}_{self._times[said]}"
        self._given.add(name)
        return call if name == call.id else call.with_id(name)


class Kept(TypedDict):
    """The two fields that a typed value keeps for it."""

    extra: Mapping[str, Any]
    omits: tuple[str, ...]


_NOTHING = object()


def difference(data: Mapping[str, Any], plain: Mapping[str, Any]) -> Kept:
    """What of the original the plain form does not say."""
    extra = {key: copy.deepcopy(value) for key, value in data.items() if plain.get(key, _NOTHING) != value}
    return Kept(extra=extra, omits=tuple(key for key in plain if key not in data))


def merged(plain: dict[str, Any], extra: Mapping[str, Any], omits: tuple[str, ...]) -> dict[str, Any]:
    """The original again, out of its plain form, which is used up."""
    for key in omits:
        plain.pop(key, None)
    return plain | copy.deepcopy(dict(extra)) if extra else plain


def said_anew(extra: Mapping[str, Any], omits: tuple[str, ...], *keys: str) -> Kept:
    """What is kept where the typed fields say other things behind these keys than the original did."""
    return Kept(
        extra={key: value for key, value in extra.items() if key not in keys},
        omits=tuple(key for key in omits if key not in keys),
    )
