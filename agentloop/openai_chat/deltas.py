"""An answer that grows: the chunks of a chat completion merged into one message.

An answer in one piece is one chunk here, so that both ways give the same message.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentloop.messages import Json, Message, Usage
from agentloop.models import Answer
from agentloop.openai_api.server_events import ServerSaidError

_SAID_ONCE = frozenset({"id", "type", "role", "name", "format", "index", "status"})


class GrowingAnswer:
    """The first choice of a completion, as far as it has come.

    `begun` says that there was a choice at all, `finish` is the server's finish reason. Text is whole at
    every point: half of a surrogate pair waits for the other half.
    """

    def __init__(self) -> None:
        self.begun = False
        self.finish: str | None = None
        self._usage: Usage | None = None
        self._text: list[str] = []
        self._half = ""
        self._parts: list[Json] = []
        self._calls: list[_GrowingCall] = []
        self._fields: dict[str, list[Any]] = {}

    def add(self, chunk: Json) -> str:
        """Take one chunk in; returns the text that came with it.

        Raises:
            ServerSaidError: the chunk is an error.
        """
        if chunk.get("error"):
            raise ServerSaidError(chunk["error"])
        if chunk.get("object") == "error":
            raise ServerSaidError(chunk)
        if isinstance(usage := chunk.get("usage"), Mapping):
            self._usage = Usage.from_openai(usage)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, Mapping) and not choice.get("index"):
                return self._add_choice(choice)
        return ""

    def calls_are_whole(self) -> bool:
        """Whether the arguments of every call decode to a JSON object."""
        return all(call.is_whole() for call in self._calls)

    def answer(self) -> Answer:
        """What has come, as one answer."""
        fields = {key: _joined(key, values) for key, values in self._fields.items()}
        calls = {"tool_calls": [call.to_openai() for call in self._calls]} if self._calls else {}
        message = {"role": "assistant", "content": self._content()} | calls | fields
        return Answer(message=Message.from_openai(_clean(message)), usage=self._usage, finish=self.finish)

    def _add_choice(self, choice: Json) -> str:
        if choice.get("error"):
            raise ServerSaidError(choice["error"])
        self.begun = True
        if isinstance(finish := choice.get("finish_reason"), str):
            self.finish = finish
        delta = choice.get("message") if choice.get("delta") is None else choice["delta"]
        return self._add_delta(delta) if isinstance(delta, Mapping) else ""

    def _add_delta(self, delta: Json) -> str:
        text = ""
        for key, value in delta.items():
            if key == "content":
                text = self._add_content(value)
            elif key == "tool_calls":
                self._add_calls(value)
            elif key != "role" and not _says_nothing(value):
                self._fields.setdefault(key, []).append(value)
        return text

    def _add_content(self, content: object) -> str:
        if isinstance(content, list):
            parts = [part for part in content if isinstance(part, Mapping)]
            self._parts += [part for part in parts if part.get("type") != "text"]
            content = "".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
        if not isinstance(content, str) or not content:
            return ""
        text, self._half = _without_half(self._half + content)
        self._text.append(text)
        return text

    def _add_calls(self, fragments: object) -> None:
        for fragment in fragments if isinstance(fragments, list) else (fragments,):
            if isinstance(fragment, Mapping):
                self._call_of(fragment).add(fragment)

    def _call_of(self, fragment: Json) -> "_GrowingCall":
        """The call that a fragment goes on with, or a new one."""
        index = fragment.get("index")
        for call in reversed(self._calls):
            if index is None or call.index == index:
                if call.goes_on_with(fragment):
                    return call
                break
        self._calls.append(_GrowingCall(index))
        return self._calls[-1]

    def _content(self) -> str | list[Json] | None:
        text = "".join((*self._text, self._half))
        if self._parts:
            return [*self._parts, {"type": "text", "text": text}] if text else self._parts
        return text if text or not self._calls else None


class _GrowingCall:
    """One tool call, as far as it has come."""

    def __init__(self, index: object) -> None:
        self.index = index
        self._id = ""
        self._name = ""
        self._arguments: list[str] = []
        self._fields: dict[str, list[Any]] = {}
        self._function_fields: dict[str, list[Any]] = {}

    def goes_on_with(self, fragment: Json) -> bool:
        """Whether a fragment at this call's place belongs to it; some servers put every call at place 0.

        Another id begins another call; so does a name after arguments that are whole already.
        """
        if (its_id := fragment.get("id")) and self._id:
            return bool(its_id == self._id)
        names = _function(fragment).get("name")
        return not (names and self.is_whole())

    def add(self, fragment: Json) -> None:
        """Take one fragment in."""
        for key, value in fragment.items():
            if key == "id":
                self._id = self._id or (value if isinstance(value, str) else "")
            elif key not in ("index", "function") and not _says_nothing(value):
                self._fields.setdefault(key, []).append(value)
        for key, value in _function(fragment).items():
            if key == "name":
                self._add_name(value)
            elif key == "arguments":
                self._add_arguments(value)
            elif not _says_nothing(value):
                self._function_fields.setdefault(key, []).append(value)

    def is_whole(self) -> bool:
        """Whether the arguments decode to a JSON object."""
        if not self._arguments or not self._arguments[-1].rstrip().endswith("}"):
            return False  # without decoding all of it at each of its fragments
        try:
            return isinstance(json.loads("".join(self._arguments)), dict)
        except (ValueError, RecursionError):
            return False

    def to_openai(self) -> dict[str, Any]:
        """The call in wire form."""
        function = {"name": self._name, "arguments": "".join(self._arguments)}
        function |= _all_joined(self._function_fields)
        return {"id": self._id, "type": "function", "function": function} | _all_joined(self._fields)

    def _add_name(self, name: object) -> None:
        """A name comes whole as a rule; some servers repeat it, few send it in pieces."""
        if isinstance(name, str) and name != self._name:
            self._name += name

    def _add_arguments(self, arguments: object) -> None:
        if isinstance(arguments, str):
            self._arguments.append(arguments)
        elif arguments is not None:
            self._arguments.append(json.dumps(arguments, ensure_ascii=False))


def _function(fragment: Json) -> Json:
    function = fragment.get("function")
    return function if isinstance(function, Mapping) else {}


def _says_nothing(value: object) -> bool:
    return value is None or value == [] or value == {}


def _all_joined(fields: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {key: _joined(key, values) for key, values in fields.items()}


def _joined(key: str, values: list[Any]) -> Any:
    """One value from its fragments: texts end to end, items of lists by their `index`, else the last."""
    if len(values) == 1 or key in _SAID_ONCE:
        return values[-1]
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        return _joined_items(item for value in values for item in value)
    if all(isinstance(value, Mapping) for value in values):
        return _joined_mapping(values)
    return values[-1]


def _joined_items(items: Iterable[Any]) -> list[Any]:
    groups: dict[object, list[Any]] = {}
    for place, item in enumerate(items):
        index = item.get("index") if isinstance(item, Mapping) else None
        groups.setdefault(("index", index) if isinstance(index, int) else place, []).append(item)
    return [_joined("", group) for group in groups.values()]


def _joined_mapping(mappings: Iterable[Json]) -> dict[str, Any]:
    fields: dict[str, list[Any]] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            fields.setdefault(key, []).append(value)
    return {
        key: _joined(key, [v for v in values if v is not None] or [None]) for key, values in fields.items()
    }


def _without_half(text: str) -> tuple[str, str]:
    """The text as far as it is whole, and the first half of a surrogate pair at its end."""
    half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
    return _whole_text(text[: len(text) - len(half)]), half


def _whole_text(text: str) -> str:
    """The text with surrogate pairs joined and lone ones replaced, since UTF-8 cannot carry them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _clean(value: Any) -> Any:
    """The same value with every text in it whole."""
    if isinstance(value, str):
        return _whole_text(value)
    if isinstance(value, Mapping):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value
