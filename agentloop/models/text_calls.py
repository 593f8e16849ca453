"""Calls that a model writes into its text, as servers pass them on that have no parser for its form.

They are taken as calls where they can mean only one thing: a tool that is offered, an object of arguments,
and nothing said behind them. What stands in code, in a quote, in a thought, behind words in its line, or as
JSON with other fields is text; a call with more text behind it may be quoted, and is not run.

| form | written by |
|---|---|
| `<tool_call>{"name": …, "arguments": {…}}</tool_call>` | Hermes, Qwen |
| `<tool_call>NAME<arg_key>…</arg_key><arg_value>…</arg_value></tool_call>` | GLM |
| `<function=NAME><parameter=KEY>…</parameter></function>`, within `<tool_call>` or alone | Qwen3-Coder |
| `<function=NAME>{…}</function>` | Llama 3.1 |
| `<|python_tag|>{"name": …, "parameters": {…}}`, several parted by `;` | Llama 3 |
| `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, `[TOOL_CALLS]NAME[ARGS]{…}` | Mistral |
| `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, then JSON in a fence | DeepSeek |
| `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>` | DeepSeek 3.1 |
| `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>` | Kimi |
| `<|tool_call|>[{"name": …, "arguments": {…}}]` | Granite, Phi |
| `{"name": …, "parameters": {…}}`, or a list of such, as the whole answer | where a server drops the marks |
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.strict_json import json_at, lenient_value
from agentloop.messages import Json, Message, ToolCall, said_anew
from agentloop.prompts import CALL_IN_TEXT_MIDST, CALL_IN_TEXT_TORN, CALL_IN_TEXT_UNKNOWN

_Tools: TypeAlias = Mapping[str, Any]
"""The tools that are offered, by name, and the schema of their arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A call out of a text; `fault` is what its result is to say where it cannot run, None where it can."""

    written: str
    name: str
    arguments: str
    fault: str | None = None


class TextCalls:
    """One answer's text as it comes: what of it can be shown, and which calls it turns out to hold."""

    def __init__(self, schemas: Sequence[Json]) -> None:
        self._tools = {each["function"]["name"]: each["function"].get("parameters") for each in schemas}
        self.clear()

    def clear(self) -> None:
        """Forget the text so far, since the answer is begun anew."""
        self._prose = _Prose() if self._tools else None
        self._shown: list[str] = []

    def add(self, text: str) -> str:
        """Take in the next piece of the text; returns what can be shown now."""
        shown = self._prose.add(text) if self._prose else text
        self._shown.append(shown)
        return shown

    def read(self, message: Message) -> "Sequence[str | WrittenCall]":
        """The text of the whole answer, and the calls in it where they stand; none beside calls in order."""
        if not self._tools or message.tool_calls:
            return [message.text]
        return list(_pieces(message.text, self._tools))

    def rest(self, message: Message) -> str:
        """What is still to be shown of the text that this message, made of the answer, has."""
        shown, held = "".join(self._shown), self._prose.rest() if self._prose else ""
        if not (held and message.text.startswith(shown)):
            return "" if message.tool_calls else held
        return message.text[len(shown) :]


def is_call(text: str) -> bool:
    """Whether the text is a call rather than one that speaks of calls, of whatever tools and whoever's form.

    A line of it begins with the mark of one, outside of code, or it is a call as a whole.
    """
    whole = _WHOLE_FENCE.sub(r"\1", text.strip())
    if _BARE_BEGUN.match(whole) or _EXPRESSION.fullmatch(whole):
        return True
    return _ANY_MARK.search(_CODE.sub("", text)) is not None


def with_calls(message: Message, pieces: Sequence[str | WrittenCall]) -> Message:
    """The message with its calls as calls; itself where there are none."""
    calls = [
        ToolCall(id="", name=each.name, arguments=each.arguments)
        for each in pieces
        if isinstance(each, WrittenCall)
    ]
    if not calls:
        return message
    text = "".join(each for each in pieces if isinstance(each, str))
    text = text if text.strip() else ""
    content: str | tuple[Json, ...] | None = text or None
    if isinstance(message.content, tuple):
        others = (part for part in message.content if part.get("type") not in ("text", "output_text"))
        content = (*others, *([{"type": "text", "text": text}] if text else []))
    kept = said_anew(message.extra, message.omits, "content")
    return replace(message, content=content, **kept).with_calls(calls)


def faulty_as_text(pieces: Sequence[str | WrittenCall]) -> Sequence[str | WrittenCall]:
    """The pieces with calls that cannot run left as the text that they are."""
    return [each.written if isinstance(each, WrittenCall) and each.fault else each for each in pieces]


def faults_in(pieces: Sequence[str | WrittenCall]) -> Sequence[str | None]:
    """What the result of each call among the pieces is to say instead of its run; None for those that run."""
    return [each.fault for each in pieces if isinstance(each, WrittenCall)]


_AROUND = {
    "<tool_call>": "</tool_call>",
    "<|python_tag|>": "<|eom_id|>",
    "[TOOL_CALLS]": "[/TOOL_CALLS]",
    "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",
    "<|tool_call|>": "<|/tool_call|>",
}
"""The marks around calls, each with the one that closes it."""
_BEFORE_NAME = {
    "<function=": "</function>",
    "<｜tool▁call▁begin｜>": "<｜tool▁call▁end｜>",
    "<|tool_call_begin|>": "<|tool_call_end|>",
}
"""The marks of one call, each with the one that closes it; the name follows."""
_MARKS = (*_AROUND, *_BEFORE_NAME)
_ENDS_ANSWER = ("<|im_end|>", "<|eot_id|>", "<|end|>")


def _any(marks: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, marks))})"


_BLANKS = r"\s{0,8}"
_BARE = rf'{_BLANKS}\[?{_BLANKS}\{{{_BLANKS}"(?:name|type)"'


def _beginnings(text: str, end: str) -> str:
    """An expression for the text as far as it has come, and what may follow it."""
    for char in reversed(text):
        end = f"(?:{re.escape(char)}{end})?"
    return end


_TOKEN = pattern(rf"`+|~{{3,}}|{_BLANKS}{_any(_MARKS)}(?:{_BLANKS}(?=[{{\[<])|(?=\w))|\n")
_CUT = pattern(rf"(?:`+|~+|{_BLANKS}(?:{'|'.join(_beginnings(mark, _BLANKS) for mark in _MARKS)}))\Z")
_BARE_BEGUN = pattern(_BARE)
_FIELD_BEGUN = "|".join(_beginnings(field, "") for field in ('"name"', '"type"'))
_BARE_CUT = pattern(rf"{_BLANKS}(?:\[{_BLANKS})?(?:\{{{_BLANKS}(?:{_FIELD_BEGUN}))?\Z")
_LONGEST_CUT = 80
_WHOLE_FENCE = pattern(r"\A```\w{0,20}\n(.*)\n```\Z", re.DOTALL)
_CODE = pattern(r"^(```|~~~).*?(?:^\1|\Z)|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_ANY_MARK = pattern(
    rf"^{_BLANKS}(?:{_any(_MARKS)}|<\|[\w ]{{1,40}}\|>|Action Input:"
    r"|</?(?:\w{1,20}:)?(?:invoke|function_calls?|tools?_(?:calls?|use)|tool)\b[^>\n]{0,200}>)",
    re.MULTILINE,
)
_EXPRESSION = pattern(r"\[?[A-Za-z_][\w.]{1,80}\([^()\n]{0,2000}\)\]?;?")


class _Prose:
    """A text up to where a call may begin, outside of code; from there on it is held back.

    So are marks and blanks at its end which may turn out to begin one.
    """

    def __init__(self, *, begins: bool = True) -> None:
        self.is_open = False
        self._held: list[str] = []
        self._begins = begins
        """Whether nothing but blanks was said so far, so that bare JSON may be all of the answer."""
        self._fence, self._ticked = "", False

    def add(self, text: str) -> str:
        """Take in the next piece; returns what is surely no call."""
        if self.is_open:
            self._held.append(text)
            return ""
        text = "".join((*self._held, text))
        end = self._end_of_prose(text)
        self._held = [text[end:]]
        return text[:end]

    def rest(self) -> str:
        return "".join(self._held)

    def _end_of_prose(self, text: str) -> int:
        if self._begins:
            self.is_open = _BARE_BEGUN.match(text) is not None
            if self.is_open or _BARE_CUT.match(text):
                return 0
        self._begins = False
        cut = _CUT.search(text, max(0, len(text) - _LONGEST_CUT))
        end = cut.start() if cut else len(text)
        for token in _TOKEN.finditer(text):
            if token.start() >= end:
                break
            if self._passes(token.group()):
                continue
            self.is_open = True
            return token.start()
        return end

    def _passes(self, token: str) -> bool:
        """Whether a token goes on with the prose; code begins and ends with backticks or tildes."""
        if token[0] in "`~":
            if self._fence:
                self._fence = "" if token.startswith(self._fence) else self._fence
            elif len(token) >= 3:
                self._fence, self._ticked = token, False
            else:
                self._ticked = not self._ticked
            return True
        self._ticked = self._ticked and "\n" not in token
        return bool(self._fence) or self._ticked or token == "\n"


_MOST_MISSED = 100
"""A text with so many marks that begin no call speaks of calls: what follows is looked at no more."""


def _pieces(text: str, tools: _Tools) -> Iterator[str | WrittenCall]:
    """The text, parted at the calls in it; one that more is said behind is there and does not run."""
    if bare := _bare_calls(text, tools):
        yield from bare
        return
    at = max((each.end() for each in _THOUGHT_END.finditer(text)), default=0)
    yield text[:at]
    missed = 0
    while missed < _MOST_MISSED:
        prose = _Prose(begins=False)
        start = at + len(prose.add(text[at:]))
        if not prose.is_open:
            break
        mark = _OPENS.match(text, start)
        begun = mark.start("mark") if mark else start
        line = text[text.rfind("\n", 0, begun) + 1 : begun]
        begins_line = len(line) < _INDENTED and not line.strip()
        calls, end = _block(text, start, tools) if begins_line else ([], begun)
        yield text[at:start]
        if calls:
            midst = CALL_IN_TEXT_MIDST.format(names=", ".join(tools)) if text[end:].strip() else None
            yield from (replace(call, fault=call.fault or midst) for call in calls)
            at = end
        else:
            at, missed = begun + 1, missed + 1
            yield text[start:at]
    yield text[at:] if text[at:].strip() else ""


_THOUGHT_END = pattern(r"</think(?:ing)?>")
_INDENTED = 4
"""A line behind so many blanks is code (https://spec.commonmark.org/0.31.2/#indented-code-blocks)."""


_NAME = r"[\w.-]+"
_OPENS = pattern(rf"\s*(?P<mark>(?:{_any(_AROUND)}\s*)*)")
_NAMED = pattern(
    rf"(?:(?P<own>{_any(_BEFORE_NAME)}\s*(?:function<｜tool▁sep｜>)?)|(?<=[\]>]))"
    rf"(?:functions\.)?(?P<name>{_NAME})(?::\d+)?\s*"
    r"(?:>|<｜tool▁sep｜>|\[ARGS\]|<\|tool_call_argument_begin\|>)?\s*(?P<fence>```(?:json)?\s*)?"
)
_PARAMETER = pattern(
    rf"\s*(?:<parameter=(?P<key>{_NAME})>\n?|<arg_key>(?P<own_key>[^<]{{1,200}})</arg_key>\s*<arg_value>)"
)
_PARAMETERS_END = pattern(r"\s*(?=</function>|</tool_call>)")
_BETWEEN = pattern(r"[\s;,]*(?=\{)")
_CLOSES = pattern(rf"(?:\s*{_any((*_AROUND.values(), *_BEFORE_NAME.values(), *_ENDS_ANSWER))})+")
_FENCE_END = pattern(r"\s*```")
_SAID_NAME = pattern(rf'"name"\s*:\s*"({_NAME})"')


def _block(text: str, at: int, tools: _Tools) -> tuple[list[WrittenCall], int]:
    """The calls that follow one another from there on, and where the last of them ends."""
    calls: list[WrittenCall] = []
    while (opens := _OPENS.match(text, at)) and (found := _calls_in(text, at, opens, tools)):
        at = _past(_CLOSES, text, found[1])
        *others, last = found[0]
        calls += [*others, replace(last, written=last.written + text[found[1] : at])]
    return calls, at


def _calls_in(
    text: str, start: int, opens: re.Match[str], tools: _Tools
) -> tuple[list[WrittenCall], int] | None:
    """The calls within one mark, and where they end; None where there is nothing like a call."""
    at = opens.end()
    if opens["mark"] and text[at : at + 1] in ("{", "["):
        return _json_calls(text, start, at, tools)
    named = _NAMED.match(text, at)
    if named is None or not (named["own"] or (opens["mark"] and named["name"] in tools)):
        return None
    arguments, end = _arguments(text, named, tools)
    follows = text[named.end() : named.end() + 1]
    if arguments is None and follows not in ("{", "<") and (follows or not named["own"]):
        return None
    end = _torn_end(text, at) if arguments is None else end
    return [_written(text[start:end], named["name"], arguments, tools)], end


def _json_calls(text: str, start: int, at: int, tools: _Tools) -> tuple[list[WrittenCall], int]:
    calls: list[WrittenCall] = []
    while True:
        found = json_at(text, at)
        if found is None:
            end = _torn_end(text, at)
            named = _SAID_NAME.search(text, at, end)
            return [*calls, _written(text[start:end], named[1] if named else "", None, tools)], end
        value, end = found
        if isinstance(value, list) and value:
            calls += [_written(json.dumps(each), *_said_in(each), tools) for each in value]
        else:
            calls.append(_written(text[start:end], *_said_in(value), tools))
        between = _BETWEEN.match(text, end)
        if between is None:
            return calls, end
        start, at = end, between.end()


def _said_in(value: object) -> tuple[str, object]:
    match value:
        case {"function": {"name": str()} as inner}:
            value = inner
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return "", None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = ToolCall(id="", name="", arguments=arguments).decoded()
    return value["name"], arguments


def _arguments(text: str, named: re.Match[str], tools: _Tools) -> tuple[object, int]:
    """The arguments behind a name, and where they end; None where they are not whole."""
    at = named.end()
    if text.startswith("{", at):
        value, end = json_at(text, at) or (None, at)
        return value, _past(_FENCE_END, text, end) if named["fence"] else end
    found: dict[str, object] = {}
    schemas = (tools.get(named["name"]) or {}).get("properties") or {}
    while each := _PARAMETER.match(text, at):
        closes = "</parameter>" if each["key"] else "</arg_value>"
        end = text.find(closes, each.end())
        if end < 0:
            return None, at
        key, value = (each["key"] or each["own_key"]).strip(), text[each.end() : end]
        found[key] = _value(value.removesuffix("\n") if each["key"] else value, schemas.get(key))
        at = end + len(closes)
    ends = _PARAMETERS_END.match(text, at)
    return (found, ends.end()) if ends else (None, at)


def _value(text: str, schema: object) -> object:
    """A value out of tags: the text where the schema takes a text, else the JSON that it may be."""
    if "string" in (kinds := _kinds(schema)) or not kinds:
        return text
    return lenient_value(text, text)


def _kinds(schema: object) -> set[str]:
    if not isinstance(schema, Mapping):
        return set()
    kind = schema.get("type") or []
    kinds = {kind} if isinstance(kind, str) else set(kind)
    return kinds.union(*(_kinds(each) for key in ("anyOf", "oneOf") for each in schema.get(key) or ()))


def _written(written: str, name: str, arguments: object, tools: _Tools) -> WrittenCall:
    """The call; whole in JSON where its arguments are an object, else the text as it was written."""
    fault: str | None = CALL_IN_TEXT_TORN
    told = written
    if isinstance(arguments, dict):
        fault = None if name in tools else CALL_IN_TEXT_UNKNOWN
        told = json.dumps(arguments, ensure_ascii=False)
    fault = fault and fault.format(names=", ".join(tools))
    return WrittenCall(written=written, name=name, arguments=told, fault=fault)


_ARGUMENTS = frozenset({"arguments", "parameters"})
_FIELDS = _ARGUMENTS | {"name", "type", "id"}


def _bare_calls(text: str, tools: _Tools) -> list[WrittenCall] | None:
    """The calls that are all of the answer, in JSON without marks; None where it may mean something else."""
    if _BARE_BEGUN.match(text) is None:
        return None
    value = lenient_value(text)
    calls = []
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, dict) or each.keys() - _FIELDS or len(each.keys() & _ARGUMENTS) != 1:
            return None
        calls.append(_written(text, *_said_in(each), tools))
    return None if any(call.fault for call in calls) else calls


def _torn_end(text: str, at: int) -> int:
    """Where a call that is not whole ends: at its closing mark, else with the text."""
    closes = _CLOSES.search(text, at)
    return closes.start() if closes else len(text)


def _past(what: re.Pattern[str], text: str, at: int) -> int:
    found = what.match(text, at)
    return found.end() if found else at
