"""Calling a tool that is named: "use word_count on README.md", "call add with 2 and 3", "add(2, b=3)"."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agentloop.messages import Json, Message
from agentloop.offline.view import Done, View

_VALUE = re.compile(
    r"`(?P<tick>[^`\n]+)`|\"(?P<double>[^\"\n]+)\"|(?<!\w)'(?P<single>[^'\n]+)'(?!\w)"
    r"|(?<![\w./-])(?P<number>-?\d+(?:\.\d+)?)(?![\w/-]|\.\d)|(?P<glob>[\w./-]*\*[\w.*/-]*)"
    r"|(?P<path>(?:[\w.-]+/)+[\w.-]*\w|[\w-]+\.[A-Za-z]\w{0,7}\b)|(?<!\w)(?P<flag>true|false)(?!\w)",
    re.IGNORECASE,
)
_KINDS = {"integer": ("number",), "number": ("number",), "boolean": ("flag",)}
_TEXTS = ("tick", "double", "single", "path", "glob")
_CONNECTING = re.compile(
    r"^(?:\W|\b(?:on|with|for|of|about|to|the|tool|now|please|and|then)\b)+", re.IGNORECASE
)
_ORDER = r"(?:^\W*(?:please\s+)?|\b(?:call|use|run|try|invoke)\s+(?:the\s+)?(?:tool\s+)?)"
_LONGEST_CALL, _MOST_CLOSINGS = 2_000, 20
"""A call that is written out ends within so many characters, at one of so many brackets."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A tool that the request names, and the text that follows up to the next one."""

    name: str
    function: Json
    start: int
    end: int


def named_tool_step(view: View) -> Message | None:
    """The calls of the tools that the request names, or their results in words; None where it names none."""
    named = sorted(_named(view), key=lambda each: each.start)
    if not named:
        return None
    if done := list(view.done()):
        return Message.assistant("\n".join(map(_report, done)))
    stops = [each.start for each in named[1:]] + [len(view.asked)]
    wanted = [
        (each.name, arguments)
        for each, stop in zip(named, stops, strict=True)
        for arguments in _arguments(each.function, view.asked[each.end : stop])
    ]
    calls = [view.call(name, arguments, number) for number, (name, arguments) in enumerate(wanted, 1)]
    names = ", ".join(dict.fromkeys(name for name, _ in wanted))
    return Message.assistant(f"I call {names}.", calls)


def _named(view: View) -> Iterator[_Named]:
    for name, function in view.tool_functions():
        found = name and re.search(_pattern(name, view.asked), view.asked, re.IGNORECASE)
        if found and ("_" in name or "`" in found.group() or _is_enough(function, view.asked[found.end() :])):
            yield _Named(name, function, found.start(), found.end())


def _pattern(name: str, asked: str) -> str:
    """How a text names the tool: as a word with an underscore, in backticks, or as an order."""
    word = re.escape(name)
    ways = [f"`{word}`", rf"{_ORDER}{word}\b"]
    if "_" in name:
        ways.append(rf"(?<![\w./-]){word}(?![\w/-]|\.\w)")
    if not any(kind == "path" for kind, _ in _values(asked)):
        ways.append(_ORDER + r"\b(?:\s+\w+){0,2}\s+".join(map(re.escape, name.split("_"))) + r"\b")
    return "|".join(ways)


def _is_enough(function: Json, text: str) -> bool:
    """Whether the text holds a value for each argument that the tool needs."""
    parameters = function.get("parameters") or {}
    filled = next(_arguments(function, text))
    needed = parameters.get("required") or []
    numbers = all(_property(parameters, name).get("type") != "string" for name in needed)
    return all(name in filled for name in needed) and (numbers or bool(_values(text)))


def _arguments(function: Json, text: str) -> Iterator[dict[str, Any]]:
    """The arguments of each call: one call, or one for each value where the tool takes a single text."""
    parameters = function.get("parameters") or {}
    properties: Json = parameters.get("properties") or {}
    required = list(parameters.get("required") or [])
    if (written := _written_out(properties, text)) is not None:
        yield written
        return
    texts = [value for kind, value in _values(text) if kind in _TEXTS]
    single = (
        len(required) == len(properties) == 1 and _property(parameters, required[0]).get("type") == "string"
    )
    if single and len(texts) > 1:
        yield from ({required[0]: value} for value in texts)
    else:
        yield _filled(properties, required, text)


def _written_out(properties: Json, text: str) -> dict[str, Any] | None:
    """The arguments of a call that is written out, as `("a.py", lines=[1, 2])`; None where none is."""
    if not text.lstrip("`").startswith("("):
        return None
    start = text.index("(")
    for closing in islice(re.finditer(r"\)", text[: start + _LONGEST_CALL]), _MOST_CLOSINGS):
        try:
            call = ast.parse(f"f{text[start : closing.end()]}", mode="eval").body
            if not isinstance(call, ast.Call) or any(each.arg is None for each in call.keywords):
                return None
            given = dict(zip(properties, map(ast.literal_eval, call.args), strict=False))
            given |= {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
            json.dumps(given, allow_nan=False)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            continue
        return given
    return None


def _filled(properties: Json, required: list[str], text: str) -> dict[str, Any]:
    """Each property in order: the next value of its kind; for text that is needed, what is said at all."""
    left, rest = _values(text), _CONNECTING.sub("", text).strip(" .!?")
    filled: dict[str, Any] = {}
    for name, schema in properties.items():
        kind = schema.get("type")
        value = _array(schema, left) if kind == "array" else _taken(kind, left)
        if value is None and kind in ("string", None):
            asked_for = re.search(
                rf"\b{re.escape(name)}\b\W*(?:on|is|with)?\s+(.+?)[.!?]*$", text, re.IGNORECASE
            )
            value = asked_for[1] if asked_for else (rest if name in required else None)
        if value not in (None, ""):
            filled[name] = value
    return filled


def _values(text: str) -> list[tuple[str, str]]:
    return [(str(found.lastgroup), found[found.lastgroup or 0]) for found in _VALUE.finditer(text)]


def _taken(kind: object, left: list[tuple[str, str]]) -> Any:
    """The first value left that is of the kind, taken out; None where there is none."""
    wanted = _KINDS.get(str(kind), _TEXTS)
    for at, (found, text) in enumerate(left):
        if found in wanted and not (kind == "integer" and "." in text):
            del left[at]
            return json.loads(text.lower()) if found in ("number", "flag") else text
    return None


def _array(schema: Json, left: list[tuple[str, str]]) -> list[Any] | None:
    kind = (schema.get("items") or {}).get("type")
    return list(iter(lambda: _taken(kind, left), None)) or None


def _property(parameters: Json, name: str) -> Json:
    found: Json = (parameters.get("properties") or {}).get(name) or {}
    return found


def _report(done: Done) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in done.arguments.items())
    return f"{done.name}({arguments}) says: {(done.result or 'nothing that I can see').strip()}"
