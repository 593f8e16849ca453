"""What grows in an answer: its other fields, its calls and its content, each out of fragments.

Before them stands what is said several times over and counts once. `GrowingCalls` tells which fragment
belongs to which call, whatever the server says of it.

A fragment should name its call's place by `index`. Servers leave it out, say 0 for every call or count
fragments by it, and leave ids out, use them twice or make a new one for each fragment. So the place is
believed where it is new and a name or a new id comes with it, and where it is known and nothing speaks
against it. An id that is known and comes with its call's name is believed before the place. These speak for
another call: another id with a name; a name once the arguments are closed; a
second name in one delta; another name once arguments have begun, or where neither place nor id ties it to
the call. A fragment without name and id never begins a call, nor does a name behind a call that has none,
where the call's id or nothing else comes with it.

Arguments that come as all so far, again and again, are the last of them. A call without arguments is none
where another of its name begins at its place or by its id, or where others are torn and places tell nothing:
it may be the beginning of one of them, and would run with its defaults.

Four things cannot be told apart then and are taken as what is more common: the name said again is the name
repeated and no piece of it; another name at the same place before any arguments is a piece of the name, and
no call without arguments before it; without places and ids, the same name said again with nothing
behind it, once the arguments are closed, is no further call; and two open calls of one name and one id, each
at its place, are one that counts its fragments.
"""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar

from agentloop._plumbing.strict_json import Nesting, json_at, lenient_value, mapping_or_empty
from agentloop.bounds import MOST_CALLS
from agentloop.errors import BadAnswerError
from agentloop.messages import Json
from agentloop.models import OutputPart
from agentloop.prompts import FINAL_ANSWER
from agentloop.providers.openai.fields import SEALED_PARTS, SEALS, TOLD_PARTS

C = TypeVar("C")

_SAID = re.compile(r"\S")


def dedupe_arguments(arguments: str) -> str:
    """The arguments; an object said several times over counts once, and null is no argument.

    Some servers send all of the arguments once more in the last chunk, others an empty object in the first.

    >>> dedupe_arguments('{"x": 1}{"x": 1}'), dedupe_arguments('{"x": 1}{"x": 2}')
    ('{"x": 1}', '{"x": 1}{"x": 2}')
    """
    text = arguments.strip()
    if text == "null":
        return "{}"
    values: list[tuple[Any, str]] = []
    end = 0
    while begins := _SAID.search(text, end):
        if (found := json_at(text, begins.start())) is None:
            return arguments
        value, end = found
        values.append((value, text[begins.start() : end]))
    said = [each for each in values[:-1] if each[0] != {}] + values[-1:]
    if len(values) < 2 or not isinstance(said[0][0], dict) or any(value != said[0][0] for value, _ in said):
        return arguments
    return said[0][1]


def dedupe_calls(calls: Sequence[C], told: Callable[[C], tuple[Hashable, Hashable]]) -> list[C]:
    """The calls without those that are said again.

    `told` gives the id of a call, false where it has none, and what the call says. Calls of one id that say
    the same are one. Where they differ the server gives one id to several calls, and it tells nothing.

    >>> dedupe_calls([("a", "1"), ("a", "1"), ("b", "1"), ("", "1"), ("", "1")], lambda call: call)
    [('a', '1'), ('b', '1'), ('', '1'), ('', '1')]
    >>> dedupe_calls([("a", "1"), ("a", "2"), ("a", "1")], lambda call: call)
    [('a', '1'), ('a', '2'), ('a', '1')]
    """
    sayings: dict[Hashable, set[Hashable]] = {}
    for its_id, says in map(told, calls):
        sayings.setdefault(its_id, set()).add(says)
    kept: list[C] = []
    seen: set[Hashable] = set()
    for call in calls:
        its_id, _ = told(call)
        if not (its_id and its_id in seen and len(sayings[its_id]) == 1):
            kept.append(call)
        seen.add(its_id)
    return kept


_SAID_ONCE = frozenset({"id", "type", "role", "name", "format", "index", "status", "channel"})
_SIGNATURES = SEALS | {"encrypted_content"}
_GROWING = TOLD_PARTS - {"reasoning"}
"""Items of lists that come in pieces, with no word of what belongs together."""

_TEXTS = frozenset({"text"})
_SAYS_TEXT = ("thinking", "text", "summary")
_HOLD_TEXTS = frozenset({"thinking", "reasoning"})


class GrowingFields:
    """The fields of an object that comes in fragments, those aside that somebody else joins."""

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}

    def add(self, key: str, value: object) -> bool:
        """Take one more value of a field in; returns whether it says anything."""
        if value is None or value == [] or value == {}:
            return False
        self._values.setdefault(key, []).append(value)
        return value != ""

    def joined(self) -> dict[str, Any]:
        return {key: _joined(key, values) for key, values in self._values.items()}


def _joined(key: str, values: list[Any]) -> Any:
    """One value from its fragments: texts end to end, items of lists by their `index`, else the last.

    A signature that is said whole with each fragment is said once.
    """
    if len(values) == 1 or key in _SAID_ONCE:
        return values[-1]
    if key in _SIGNATURES:
        values = _once(values)
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        growing = _GROWING | _TEXTS if key in _HOLD_TEXTS else _GROWING
        return _joined_items((item for value in values for item in value), growing)
    if all(isinstance(value, Mapping) for value in values):
        return _joined_mapping(values)
    return values[-1]


def _joined_items(items: Iterable[Any], growing: Set[str]) -> list[Any]:
    found: list[GrowingItem] = []
    newest: dict[object, GrowingItem] = {}
    for item in items:
        index = item.get("index") if isinstance(item, Mapping) else None
        known = newest.get(index) if isinstance(index, int | None) else None
        if known is None or not known.goes_on_with(item):
            found.append(known := GrowingItem(growing))
            newest[index if isinstance(index, int) else None] = known
        known.add(item)
    return [item.joined() for item in found]


class GrowingItem:
    """The fragments of one item of a list, as far as they have come.

    Without an index only items of the types that are `growing` have several.
    """

    def __init__(self, growing: Set[str]) -> None:
        self._growing = growing
        self._fragments: list[Any] = []
        self._said: dict[str, Any] = {}
        self._has_text = False

    def goes_on_with(self, item: Any) -> bool:
        """Whether it is a further fragment of this item: no other type or id stands against it.

        Without an index it goes on up to its signature, and on with that where it has a text: a block that
        is a signature alone is whole.
        """
        if not isinstance(item, Mapping) or any(
            item.get(key) not in (None, self._said.get(key, item.get(key))) for key in ("type", "id")
        ):
            return False
        if isinstance(item.get("index"), int):
            return True
        kind = item.get("type")
        is_open = not self._said.get("signature") or (self._has_text and not _says_text(item))
        return isinstance(kind, str) and kind in self._growing and is_open

    def add(self, item: Any) -> None:
        self._fragments.append(item)
        self._has_text = self._has_text or _says_text(item)
        if isinstance(item, Mapping):
            self._said.update({key: item[key] for key in ("type", "id", "signature") if item.get(key)})

    def joined(self) -> Any:
        return _joined("", self._fragments)


def _joined_mapping(mappings: Iterable[Json]) -> dict[str, Any]:
    fields: dict[str, list[Any]] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            fields.setdefault(key, []).append(value)
    if not SEALED_PARTS.isdisjoint(map(str, fields.get("type", ()))):
        fields["data"] = _once(fields.get("data", []))
    return {
        key: _joined(key, [v for v in values if v is not None] or [None]) for key, values in fields.items()
    }


def _once(values: list[Any]) -> list[Any]:
    """One value where all that say something are the same, else all: equal pieces among others are pieces."""
    said = [value for value in values if value]
    return said[:1] if said and all(value == said[0] for value in said) else values


def _says_text(fragment: Any) -> bool:
    return isinstance(fragment, Mapping) and any(fragment.get(key) for key in _SAYS_TEXT)


def check_count(calls: Sequence[object]) -> None:
    """Refuse an answer with more than `MOST_CALLS` calls, or items.

    Raises:
        BadAnswerError: it has more.
    """
    if len(calls) > MOST_CALLS:
        raise BadAnswerError(f"the server's answer asks for more than {MOST_CALLS:,} calls")


class GrowingCalls:
    """The calls of a message, as far as they have come."""

    def __init__(self) -> None:
        self._calls: list[_GrowingCall] = []
        self._at: dict[object, _GrowingCall] = {}
        self._named: dict[str, _GrowingCall] = {}
        self.given: list[OutputPart] = []
        self._places_recur = False
        """Whether a place was named again, or several calls came at once: places do not count fragments."""
        self._places_mislead = False
        """Whether a fragment began a call at no place, or at one that another had."""

    def add_deltas(self, fragments: object) -> None:
        touched: set[_GrowingCall] = set()
        for at, fragment in enumerate(_objects(fragments)):
            call = self._call_of(fragment, touched)
            call.add(fragment)
            touched.add(call)
            if call.name.startswith(FINAL_ANSWER):
                self.given += _piece_in(call.name, fragment)
            self._places_recur = self._places_recur or at > 0
            if its_id := _id(fragment):
                self._named[its_id] = call

    def add_whole(self, calls: object) -> None:
        self._places_recur = True
        for call in _objects(calls):
            self._begun(None).add(call)

    def are_whole(self) -> bool:
        return all(call.is_whole() for call in self._calls)

    def are_whole_or_bare(self) -> bool:
        """Whether the arguments of every call decode to a JSON object, or none has come."""
        return all(call.is_whole() or not call.is_begun() for call in self._calls)

    def are_begun(self) -> bool:
        return all(call.is_begun() for call in self._calls)

    def to_openai(self) -> list[dict[str, Any]]:
        """The calls in wire form, each once, without those that say nothing or may be a piece of another."""
        said = [call for call in self._calls if not call.says_nothing()]
        places_tell = self._places_recur and not self._places_mislead
        if not places_tell and any(call.is_torn() for call in said):
            said = [call for call in said if not call.is_bare()]
        return dedupe_calls([call.to_openai() for call in said], _told)

    def __bool__(self) -> bool:
        return not all(call.says_nothing() for call in self._calls)

    def _call_of(self, fragment: Json, touched: "set[_GrowingCall]") -> "_GrowingCall":
        index, its_id, name = fragment.get("index"), _id(fragment), _name(fragment)
        index = index if isinstance(index, int | str) else None
        call = self._meant(index, fragment)
        if call is not None and not (name and call in touched) and not call.ends_before(index, fragment):
            self._places_recur = self._places_recur or self._at.get(index) is call
            return call
        older = call or self._named.get(its_id)
        again = False
        if older is not None and older not in touched:
            again = call is older and older.is_named_again(its_id, name)
            older.doubt_before(name)
        self._places_mislead = self._places_mislead or index is None or index in self._at
        return self._begun(index, in_doubt=again)

    def _meant(self, index: int | str | None, fragment: Json) -> "_GrowingCall | None":
        """The call that place or id point at, else the newest; None where they say that it is a new one."""
        its_id, name = _id(fragment), _name(fragment)
        by_place, by_id = self._at.get(index), self._named.get(its_id)
        if by_place is not None:
            elsewhere = by_id is not None and by_place.id != its_id and by_id.may_be_named(name)
            return by_id if elsewhere else by_place
        if index is not None and (name or (its_id and by_id is None)):
            return by_id if by_id is not None and by_id.is_open_by(name) else None
        return by_id or (self._calls[-1] if self._calls else None)

    def _begun(self, index: object, *, in_doubt: bool = False) -> "_GrowingCall":
        call = _GrowingCall(in_doubt=in_doubt)
        self._calls.append(call)
        check_count(self._calls)
        if index is not None:
            self._at[index] = call
        return call


class _GrowingCall:
    """One tool call, as far as it has come; one `in_doubt` is none unless arguments follow."""

    def __init__(self, *, in_doubt: bool) -> None:
        self._in_doubt = in_doubt
        self.id = ""
        self.name = ""
        self._arguments: list[str] = []
        self._repeats = True
        """Whether each piece of the arguments began with the whole one before it."""
        self._nesting = Nesting()
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
        if not self.name:
            return (
                self._is_closed()
                and not by_id
                and bool(mapping_or_empty(fragment.get("function")).get("arguments"))
            )
        if name == self.name:
            return self._is_closed()
        return not (index is not None or by_id) or bool(self._arguments)

    def may_be_named(self, name: str) -> bool:
        """Whether this may be this call's name or a piece of it; so may no name."""
        return not name or name == self.name or not self._arguments

    def is_open_by(self, name: str) -> bool:
        """Whether this is its name, and the arguments are still to come or not closed yet."""
        return name == self.name and not self._is_closed()

    def doubt_before(self, name: str) -> None:
        """Take this call for none unless arguments follow, where one of its name begins in its place."""
        self._in_doubt = self._in_doubt or (name == self.name and not self._arguments)

    def is_named_again(self, its_id: str, name: str) -> bool:
        """Whether a fragment says nothing but this call's name, and no id but this call's."""
        return name == self.name and (not its_id or its_id == self.id)

    def add(self, fragment: Json) -> None:
        for key, value in fragment.items():
            if key == "id":
                self.id = self.id or _id(fragment)
            elif key not in ("index", "function"):
                self._fields.add(key, value)
        for key, value in mapping_or_empty(fragment.get("function")).items():
            if key == "name":
                self._add_name(value)
            elif key == "arguments":
                self._add_arguments(value)
            else:
                self._function_fields.add(key, value)

    def is_begun(self) -> bool:
        return bool(self._arguments)

    def is_bare(self) -> bool:
        """Whether the arguments are blank, as those of a tool that takes none."""
        return not any(map(str.strip, self._arguments))

    def is_torn(self) -> bool:
        """Whether it lacks a name, or an end of its arguments."""
        return not self.name or not (self.is_bare() or self.is_whole())

    def is_whole(self) -> bool:
        return _is_object(self._text())

    def says_nothing(self) -> bool:
        """Whether there is neither a name nor an argument, or a name that may be another call's."""
        return not (self._arguments or (self.name and not self._in_doubt))

    def to_openai(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self._text()}
        function |= self._function_fields.joined()
        return {"id": self.id, "type": "function", "function": function} | self._fields.joined()

    def _is_closed(self) -> bool:
        """Whether the brackets of the arguments are closed; each piece is looked at once."""
        for piece in self._arguments[self._scanned :]:
            self._nesting.feed(piece)
        self._scanned = len(self._arguments)
        return self._nesting.closed or (self._is_said_again() and _is_object(self._arguments[-1]))

    def _text(self) -> str:
        """The arguments; the last piece of them where each is all so far."""
        text = dedupe_arguments("".join(self._arguments))
        return self._arguments[-1] if self._is_said_again() and not _is_object(text) else text

    def _is_said_again(self) -> bool:
        return self._repeats and len(self._arguments) > 1

    def _add_name(self, name: object) -> None:
        """A name comes whole as a rule; some servers repeat it, few send it in pieces or all so far of it."""
        if isinstance(name, str) and name != self.name:
            self.name = name if name.startswith(self.name) else self.name + name

    def _add_arguments(self, arguments: object) -> None:
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if arguments:
            newest = self._arguments[-1] if self._arguments else ""
            self._repeats = self._repeats and arguments.startswith(newest)
            self._arguments.append(arguments)


def _piece_in(name: str, fragment: Json) -> Iterator[OutputPart]:
    arguments = mapping_or_empty(fragment.get("function")).get("arguments")
    if arguments and isinstance(arguments, str):
        yield OutputPart(tool=name, text=arguments)


def _told(call: Json) -> tuple[str, tuple[str, str]]:
    function = call["function"]
    return call["id"], (function["name"], function["arguments"].strip())


def _is_object(arguments: str) -> bool:
    return isinstance(lenient_value(arguments), dict)


def _objects(values: object) -> list[Json]:
    values = values if isinstance(values, list) else [values]
    return [value for value in values if isinstance(value, dict)]


def _name(fragment: Json) -> str:
    name = mapping_or_empty(fragment.get("function")).get("name")
    return name if isinstance(name, str) else ""


def _id(fragment: Json) -> str:
    its_id = fragment.get("id")
    return its_id if isinstance(its_id, str) else "" if its_id is None else str(its_id)


_TEXT_TYPES = frozenset({None, "", "text", "output_text"})
_THOUGHT, _THOUGHT_ENDS = "<think>", "</think>"
_BETWEEN = "\n"
"""Stands between two texts that something else parts, as in the text of a whole message."""


class GrowingContent:
    """What a message says, as far as it has come.

    A refusal is text like any other. A thought in pieces is one part, as it is where it comes whole.

    A thought in tags that begins the text, as servers without a parser for it send, is none of it; one
    without its end is.
    """

    def __init__(self) -> None:
        self.thought = ""
        self._lead: list[str] | None = []
        """The text so far where it may be a thought, None once it is not."""
        self._newest = ""
        """Its end, in which the sign may have begun that is waited for."""
        self._is_thinking = False
        self._is_behind_thought = False
        self._parts: list[Json | GrowingItem] = []
        self._text: list[str] = []
        self._has_text_before = False
        self._refuses = False
        self._says = False

    def add(self, content: object) -> str:
        """Take in what a chunk has as content, text or parts; returns the text to show now."""
        if isinstance(content, str):
            return self._add_text(content)
        parts = content if isinstance(content, list) else [content]
        return "".join(self._add_part(part, goes_on=at == 0) for at, part in enumerate(parts))

    def add_refusal(self, refusal: object) -> str:
        """Take in a piece of a refusal; returns the text to show now."""
        if not isinstance(refusal, str) or not refusal:
            return ""
        between = _BETWEEN if self._text and self._says and not self._refuses else ""
        self._refuses = True
        return self._added(between + refusal)

    def rest(self) -> str:
        """The text that might have been a thought, once no more of it can come."""
        lead, self._lead = "".join(self._lead or ()), None
        return self._added(lead)

    def said(self, *, has_calls: bool) -> dict[str, Any]:
        """What stands for content: nothing but a refusal stands where servers put it."""
        text = "".join((*self._text, *(self._lead or ())))
        if self._parts:
            parts = [part.joined() if isinstance(part, GrowingItem) else part for part in self._parts]
            return {"content": [*parts, _text_part(text)] if text else parts}
        if self._refuses and not self._says:
            return {"content": None, "refusal": text}
        return {"content": text if text or not has_calls else None}

    def __bool__(self) -> bool:
        return bool(self._text or self._lead or self._parts)

    def _add_part(self, part: object, *, goes_on: bool) -> str:
        """Take in a part, which may go on with the one before where it begins a chunk."""
        if isinstance(part, str):
            return self._add_text(part)
        if not isinstance(part, dict):
            return ""
        kind = part.get("type")
        if kind == "refusal":
            return self.add_refusal(part.get("refusal"))
        if isinstance(kind, str | None) and kind in _TEXT_TYPES and isinstance(part.get("text"), str | None):
            return self._add_text(part.get("text") or "")
        return self._add_other(part, goes_on=goes_on)

    def _add_other(self, part: Json, *, goes_on: bool) -> str:
        shown = self.rest()
        if self._text:
            self._parts.append(_text_part("".join(self._text)))
            self._text, self._has_text_before = [], True
        newest = self._parts[-1] if self._parts else None
        if not (goes_on and isinstance(newest, GrowingItem) and newest.goes_on_with(part)):
            self._parts.append(newest := GrowingItem(TOLD_PARTS))
        newest.add(part)
        return shown

    def _add_text(self, text: str) -> str:
        if not text:
            return ""
        self._says = True
        return self._added(self._past_thought(text))

    def _past_thought(self, text: str) -> str:
        """What of the text stands behind a thought that begins all of it; nothing while that goes on."""
        if self._lead is None:
            text = text.lstrip() if self._is_behind_thought else text
            self._is_behind_thought = self._is_behind_thought and not text
            return text
        self._lead.append(text)
        newest = self._newest + text
        if not self._is_thinking:
            newest = newest.lstrip()
            self._is_thinking = newest.startswith(_THOUGHT)
            if not self._is_thinking and not _THOUGHT.startswith(newest):
                text, self._lead = "".join(self._lead), None
                return text
        if not self._is_thinking or _THOUGHT_ENDS not in newest:
            self._newest = newest[-len(_THOUGHT_ENDS) :]
            return ""
        thought, _, text = "".join(self._lead).partition(_THOUGHT)[2].partition(_THOUGHT_ENDS)
        self.thought, self._lead, self._is_behind_thought = thought.strip(), None, True
        return self._past_thought(text)

    def _added(self, text: str) -> str:
        """Put this behind what was said; what is shown of it stands apart from a text before it."""
        if not text:
            return ""
        between = _BETWEEN if self._has_text_before and not self._text else ""
        self._text.append(text)
        return between + text


def _text_part(text: str) -> Json:
    return {"type": "text", "text": text}
