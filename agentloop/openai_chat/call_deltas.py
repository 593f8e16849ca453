"""The tool calls of one message out of their fragments, whatever a server says of which belongs to which.

A fragment should name its call's place by `index`. Servers leave it out, say 0 for every call or count
fragments by it, and leave ids out, use them twice or make a new one for each fragment. So the place is
believed where it is new and a name or a new id comes with it, and where it is known and nothing speaks
against it. These speak for another call: another id with a name; a name once the arguments are closed; a
second name in one delta; another name once arguments have begun, or where neither place nor id ties it to
the call. A fragment without name and id never begins a call, nor does a name behind a call that has none,
where the call's id or nothing else comes with it.

Three things cannot be told apart then and are taken as what is more common: the name said again is the name
repeated and no piece of it; another name at the same place before any arguments is a piece of the name, and
no call without arguments before it; and without places and ids, the same name said again with nothing
behind it, once the arguments are closed, is no further call.
"""

import json
from typing import Any

from agentloop.messages import Json
from agentloop.openai_api.brackets import Brackets
from agentloop.openai_api.said_once import arguments_once, calls_once
from agentloop.openai_chat.joining import GrowingFields


class GrowingCalls:
    """The calls of a message, as far as they have come."""

    def __init__(self) -> None:
        self._calls: list[_GrowingCall] = []
        self._at: dict[object, _GrowingCall] = {}
        self._named: dict[str, _GrowingCall] = {}

    def add_deltas(self, fragments: object) -> None:
        """Take the fragments of one delta in."""
        touched: list[_GrowingCall] = []
        for fragment in _objects(fragments):
            call = self._call_of(fragment, touched)
            call.add(fragment)
            touched.append(call)
            if its_id := _id(fragment):
                self._named[its_id] = call

    def add_whole(self, calls: object) -> None:
        """Take in calls each of which comes in one piece."""
        for call in _objects(calls):
            self._begun(None).add(call)

    def are_whole(self) -> bool:
        """Whether the arguments of every call decode to a JSON object."""
        return all(call.is_whole() for call in self._calls)

    def are_whole_or_bare(self) -> bool:
        """Whether the arguments of every call decode to a JSON object, or none has come."""
        return all(call.is_whole() or not call.is_begun() for call in self._calls)

    def are_begun(self) -> bool:
        """Whether something came of the arguments of every call."""
        return all(call.is_begun() for call in self._calls)

    def to_openai(self) -> list[dict[str, Any]]:
        """The calls in wire form, each once, without those that say nothing."""
        calls = [call.to_openai() for call in self._calls if not call.says_nothing()]
        return calls_once(calls, _told)

    def __bool__(self) -> bool:
        return not all(call.says_nothing() for call in self._calls)

    def _call_of(self, fragment: Json, touched: "list[_GrowingCall]") -> "_GrowingCall":
        """The call that a fragment goes on with, or a new one."""
        index, its_id, name = fragment.get("index"), _id(fragment), _name(fragment)
        index = index if isinstance(index, int | str) else None
        call = self._meant(index, its_id, name)
        if call is None or (name and call in touched) or call.ends_before(index, fragment):
            again = call is not None and call not in touched and call.is_named_again(its_id, name)
            return self._begun(index, in_doubt=again)
        return call

    def _meant(self, index: int | str | None, its_id: str, name: str) -> "_GrowingCall | None":
        """The call that place or id point at, else the newest; None where they say that it is a new one."""
        by_place, by_id = self._at.get(index), self._named.get(its_id)
        if by_place is not None:
            elsewhere = by_id is not None and not name and by_place.id != its_id
            return by_id if elsewhere else by_place
        if index is not None and (name or (its_id and by_id is None)):
            return None
        return by_id or (self._calls[-1] if self._calls else None)

    def _begun(self, index: object, *, in_doubt: bool = False) -> "_GrowingCall":
        call = _GrowingCall(in_doubt=in_doubt)
        self._calls.append(call)
        if index is not None:
            self._at[index] = call
        return call


class _GrowingCall:
    """One tool call, as far as it has come; one `in_doubt` is none unless arguments follow."""

    def __init__(self, *, in_doubt: bool) -> None:
        self._in_doubt = in_doubt
        self.id = ""
        self._name = ""
        self._arguments: list[str] = []
        self._brackets = Brackets()
        self._scanned = 0
        self._fields = GrowingFields()
        self._function_fields = GrowingFields()

    def ends_before(self, index: object, fragment: Json) -> bool:
        """Whether a fragment that seems to go on with this call begins another one."""
        its_id, name = _id(fragment), _name(fragment)
        by_id = bool(its_id) and its_id == self.id
        if its_id and self.id and not by_id:
            return bool(name) or self._is_closed()
        if not name:
            return False
        if not self._name:
            return self._is_closed() and not by_id and bool(_function(fragment).get("arguments"))
        if name == self._name:
            return self._is_closed()
        return not (index is not None or by_id) or bool(self._arguments)

    def is_named_again(self, its_id: str, name: str) -> bool:
        """Whether a fragment says nothing but this call's name, and no id but this call's."""
        return name == self._name and (not its_id or its_id == self.id)

    def add(self, fragment: Json) -> None:
        """Take one fragment in."""
        for key, value in fragment.items():
            if key == "id":
                self.id = self.id or _id(fragment)
            elif key not in ("index", "function"):
                self._fields.add(key, value)
        for key, value in _function(fragment).items():
            if key == "name":
                self._add_name(value)
            elif key == "arguments":
                self._add_arguments(value)
            else:
                self._function_fields.add(key, value)

    def is_begun(self) -> bool:
        """Whether something came of the arguments."""
        return bool(self._arguments)

    def is_whole(self) -> bool:
        """Whether the arguments decode to a JSON object."""
        try:
            return isinstance(json.loads(arguments_once("".join(self._arguments))), dict)
        except (ValueError, RecursionError):
            return False

    def says_nothing(self) -> bool:
        """Whether there is neither a name nor an argument, or a name that may be another call's."""
        return not (self._arguments or (self._name and not self._in_doubt))

    def to_openai(self) -> dict[str, Any]:
        """The call in wire form."""
        function = {"name": self._name, "arguments": arguments_once("".join(self._arguments))}
        function |= self._function_fields.joined()
        return {"id": self.id, "type": "function", "function": function} | self._fields.joined()

    def _is_closed(self) -> bool:
        """Whether the brackets of the arguments are closed; each piece is looked at once."""
        for piece in self._arguments[self._scanned :]:
            self._brackets.feed(piece)
        self._scanned = len(self._arguments)
        return self._brackets.closed

    def _add_name(self, name: object) -> None:
        """A name comes whole as a rule; some servers repeat it, few send it in pieces or all so far of it."""
        if isinstance(name, str) and name != self._name:
            self._name = name if name.startswith(self._name) else self._name + name

    def _add_arguments(self, arguments: object) -> None:
        if isinstance(arguments, str):
            if arguments:
                self._arguments.append(arguments)
        elif arguments is not None:
            self._arguments.append(json.dumps(arguments, ensure_ascii=False))


def lone_call_in(said: Json) -> list[Json]:
    """The fragment of the lone call in a delta or a message, in the field that `tool_calls` replaced:
    https://platform.openai.com/docs/api-reference/chat/object."""
    function = said.get("function_call")
    is_call = isinstance(function, dict) and any(function.values())
    return [{"index": 0, "function": function}] if is_call else []


def _told(call: Json) -> tuple[str, tuple[str, str]]:
    """The id of a call, and what the call says."""
    function = call["function"]
    return call["id"], (function["name"], function["arguments"].strip())


def _objects(values: object) -> list[Json]:
    values = values if isinstance(values, list) else [values]
    return [value for value in values if isinstance(value, dict)]


def _function(fragment: Json) -> Json:
    function = fragment.get("function")
    return function if isinstance(function, dict) else {}


def _name(fragment: Json) -> str:
    name = _function(fragment).get("name")
    return name if isinstance(name, str) else ""


def _id(fragment: Json) -> str:
    its_id = fragment.get("id")
    return its_id if isinstance(its_id, str) else "" if its_id is None else str(its_id)
