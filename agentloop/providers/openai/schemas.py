"""The schemas of tools: their keys, and fewer words for servers that know no references and no choices.

What is sent says less then, or says it to the model in words; what a tool takes stays what it was, since
arguments are held to its own schema.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from agentloop._plumbing.truncate import beginning
from agentloop.messages import Json

REFERENCES = frozenset({"$ref", "$defs", "definitions"})
CHOICES = ("anyOf", "oneOf")
WORDS = REFERENCES | {*CHOICES, "allOf"}
"""What can be said otherwise, and not be left out."""

NAMED_BY_USERS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""What holds schemas by names that users gave."""

_ANSWER = "answer"
"""The name of the format that an agent's answers are held to."""

_DATA = frozenset({"default", "const", "enum", "examples", "required"})
_NULL = {"type": "null"}
_MOST_UNFOLDED = 1_000
"""So many schemas stand in a tool at the places of references: each may hold two of the next."""

_MOST_TOLD_CHARS = 4_000
"""Choices inside of choices are texts inside of texts, whose signs of escape double each time."""


def without_words(tools: Sequence[Any], words: Set[str]) -> list[Any]:
    """The tools with schemas that have none of these words.

    Example:
        >>> tool = {"parameters": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}}
        >>> without_words([tool], {"$ref", "$defs"})
        [{'parameters': {'type': 'object'}}]
    """
    return [_of_tool(tool, words) for tool in tools]


def without_keys(schema: Any, keys: Set[str]) -> Any:
    """The schema without these keys, wherever they are keys of a schema."""
    if isinstance(schema, list | tuple):
        return [without_keys(each, keys) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: value for key, value in schema.items() if key not in keys}
    return _change_inside(kept, lambda inner: without_keys(inner, keys))


def keys_in(schema: object) -> Iterator[str]:
    """The keys of a schema and of all within it; names that users gave are none."""
    for value in schema if isinstance(schema, list | tuple) else [schema]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield key
                yield from keys_in(list(inner.values()) if _is_of_users(key, inner) else inner)


def _is_of_users(key: str, inner: object) -> bool:
    return key in NAMED_BY_USERS and isinstance(inner, Mapping)


def _change_inside(schema: Json, change: Callable[[Any], Any]) -> dict[str, Any]:
    """The schema with this change made to all that stands in it, but for data and names that users gave."""
    said: dict[str, Any] = {}
    for key, value in schema.items():
        if _is_of_users(key, value):
            said[key] = {name: change(each) for name, each in value.items()}
        else:
            said[key] = value if key in _DATA else change(value)
    return said


def _of_tool(tool: Any, words: Set[str]) -> Any:
    if not isinstance(tool, Mapping):
        return tool
    if isinstance(tool.get("function"), Mapping):
        return {**tool, "function": _of_tool(tool["function"], words)}
    schema = tool.get("parameters")
    return {**tool, "parameters": _Plain(schema, words).of(schema)} if isinstance(schema, Mapping) else tool


def answer_format(schema: Json) -> Json:
    """What holds an answer to this schema of an object, as both APIs name it.

    The servers are asked to be strict where the schema can be said in their strict form.

    Example:
        >>> answer_format({"type": "object", "properties": {"n": {"type": "integer"}}})["schema"]["required"]
        ['n']
    """
    try:
        return {"name": _ANSWER, "schema": _strict(schema), "strict": True}
    except _LooseError:
        return {"name": _ANSWER, "schema": schema, "strict": False}


def asks_for_answer(body: Json) -> bool:
    """Whether a body of either API has the format that `answer_format` gives."""
    match body:
        case {"response_format": {"json_schema": {"name": name}}} | {"text": {"format": {"name": name}}}:
            return bool(name == _ANSWER)
    return False


class _LooseError(Exception):
    """A schema has no strict form: it has members of any name."""


def _strict(schema: Any) -> Any:
    """The schema with all members required and no others.

    https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
    """
    if isinstance(schema, list | tuple):
        return [_strict(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    is_object = schema.get("type") == "object"
    others = schema.get("additionalProperties", "properties" in schema)
    if "patternProperties" in schema or (is_object and others not in (True, False)):
        raise _LooseError
    kept = {key: value for key, value in schema.items() if key not in ("default", "additionalProperties")}
    said = _change_inside(kept, _strict)
    if is_object:
        said |= {"required": [*schema.get("properties", {})], "additionalProperties": False}
    return said


class _Plain:
    """Says the schemas inside of a root without these words."""

    def __init__(self, root: Json, words: Set[str]) -> None:
        self._root, self._words = root, words
        self._open: list[str] = []
        self._left = _MOST_UNFOLDED

    def of(self, schema: Any) -> Any:
        """The schema; one that holds itself is not followed a second time, nor any once too much is said."""
        if isinstance(schema, list | tuple):
            return [self.of(each) for each in schema]
        if not isinstance(schema, Mapping):
            return schema
        self._left -= bool(self._open)
        said = {key: value for key, value in schema.items() if key not in self._words}
        plain = _change_inside(said, self.of)
        if "$ref" in schema and "$ref" not in said:
            plain = {**self._referred(schema["$ref"]), **plain}
        for each in schema.get("allOf", ()) if "allOf" not in said else ():
            plain = _both(self.of(each), plain)
        for choices in CHOICES:
            if choices in schema and choices not in said:
                plain = _one_of([self.of(each) for each in schema[choices] if each != _NULL], plain)
        return plain

    def _referred(self, reference: Any) -> dict[str, Any]:
        target: Any = self._root
        for part in str(reference).removeprefix("#").strip("/").split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        if not isinstance(target, Mapping):
            return {}
        if reference in self._open or self._left <= 0:
            return {key: target[key] for key in ("type", "description") if key in target}
        self._open.append(reference)
        try:
            return dict(self.of(target))
        finally:
            self._open.pop()


def _both(one: Any, other: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(one, Mapping):
        return other
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return both


def _one_of(options: list[Any], beside: dict[str, Any]) -> dict[str, Any]:
    """What takes each of the options; several are told to the model in words."""
    if len(options) == 1:
        return _both(options[0], beside)
    kinds = {json.dumps(each.get("type")) for each in options if isinstance(each, Mapping)}
    kind = json.loads(kinds.pop()) if len(kinds) == 1 else None
    choices = beginning(json.dumps(options, ensure_ascii=False), _MOST_TOLD_CHARS)
    told = f"{beside.get('description', '')} One of: {choices}".strip()
    return {**({"type": kind} if kind else {}), **beside, "description": told}
