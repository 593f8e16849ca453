"""OfflineModel, a rule-based stand-in for a model: no key, no network, the same answers always.

It knows only what stands in the messages that it is sent. Its one real job is to read files of a kind through
the tools `list_files` and `read_file` and say what each does (`reading`); it also calls a tool that is named
plainly, and tells what was said to it as long as that is in sight.
"""

import ast
import json
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from agentloop._plumbing.amounts import named_tokens_or_none
from agentloop._plumbing.checks import whole
from agentloop.context import TokenCounter, counter_for
from agentloop.events import RunSetup
from agentloop.messages import Json, Message, Usage
from agentloop.models import ModelPart, ModelRequest
from agentloop.providers.local import admitted, answer_of, streamed
from agentloop.providers.offline.job import shorten
from agentloop.providers.offline.reading import reading_step
from agentloop.providers.offline.record import facts_in, facts_of, summary_of
from agentloop.providers.offline.view import CallMade, View, calls_made, file_task, named_files, view_of

_QUESTION = re.compile(
    r"\b(?:what|who|where|when|which|how \w+)(?:'s|’s|\s+(?:is|was|are|were))\s+(?P<whose>my|our|the)"
    r"\s+(?P<thing>[^?.!\n]+?)\s*\?",
    re.IGNORECASE,
)
_RECALL = re.compile(r"\b(?:remember|know about me|told you|tell you|asked you)\b[^.!\n]*\?", re.IGNORECASE)
_COUNT = re.compile(r"\bhow many messages\b", re.IGNORECASE)
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
MOST_CHARS_HEEDED = 2_000
"""It looks for what is asked in so many characters of the newest message; what is pasted stands behind."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A tool that the request names, and the text that follows up to the next one."""

    name: str
    function: Json
    start: int
    end: int


class OfflineModel:
    """Answers by rules, without a key or a network.

    `window` in tokens, or as "8k", makes it refuse larger requests as a server does; `side_by_side` is how
    many files it reads in one step.

    It costs nothing.

    Raises:
        UsageError: `window` is no number of tokens, or `side_by_side` no whole number of at least 1.

    Raises, when asked:
        ContextTooLongError: the request and the output it asks for exceed `window`.
    """

    name = "offline"
    takes_media = False
    max_output_tokens: int | None = None

    def __init__(self, *, window: int | str | None = None, side_by_side: int = 2) -> None:
        self.window = named_tokens_or_none("window", window)
        whole("side_by_side", side_by_side, 1)
        self._side_by_side = side_by_side

    def __repr__(self) -> str:
        return f"OfflineModel(window={self.window})"

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """The answer's text word by word, then the whole."""
        counter = counter_for(self.name)
        tokens = admitted(request, self.window, counter)
        message = _reply(request, counter, self._side_by_side)
        for part in streamed(answer_of(message, tokens, counter)):
            yield part

    def setup(self) -> RunSetup:
        """Its window; there is no server."""
        return RunSetup(window=self.window)

    def price(self, usage: Usage, /) -> float:
        """Nothing, whatever was used."""
        return 0.0


def _reply(request: ModelRequest, counter: TokenCounter, side_by_side: int) -> Message:
    view = view_of(request)
    match request.purpose:
        case "summary":
            most = request.max_output_tokens or 2_000
            return Message.assistant(summary_of(view, most_tokens=most * 9 // 10, counter=counter))
        case "memory":
            return Message.assistant("\n".join(facts_of(view)))
    return _step(replace(view, asked=view.asked[:MOST_CHARS_HEEDED]), side_by_side)


def _step(view: View, side_by_side: int) -> Message:
    if task := file_task(view.asked):
        return reading_step(task, view, side_by_side)
    if step := named_tool_step(view):
        return step
    if task := named_files(view.asked):
        return reading_step(task, view, side_by_side)
    return Message.assistant(chat(view))


def named_tool_step(view: View) -> Message | None:
    """The calls of the tools that the request names, or their results in words; None where it names none."""
    named = sorted(_named(view), key=lambda each: each.start)
    if not named:
        return None
    if done := list(calls_made(view.since)):
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
    ways = [rf"`{word}(?:`|(?=\())", rf"{_ORDER}{word}\b"]
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
    if (written := _read_call(properties, text)) is not None:
        yield written
        return
    texts = [value for kind, value in _values(text) if kind in _TEXTS]
    single = (
        len(required) == len(properties) == 1 and _property(parameters, required[0]).get("type") == "string"
    )
    if single and len(texts) > 1:
        yield from ({required[0]: value} for value in texts)
    else:
        yield _fill(properties, required, text)


def _read_call(properties: Json, text: str) -> dict[str, Any] | None:
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


def _fill(properties: Json, required: list[str], text: str) -> dict[str, Any]:
    """Each property in order: the next value of its kind; for text that is needed, what is said at all."""
    left, rest = _values(text), _CONNECTING.sub("", text).strip(" .!?")
    filled: dict[str, Any] = {}
    for name, schema in properties.items():
        kind = schema.get("type")
        value = _array(schema, left) if kind == "array" else _take(kind, left)
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


def _take(kind: object, left: list[tuple[str, str]]) -> Any:
    """The first value left that is of the kind, taken out; None where there is none."""
    wanted = _KINDS.get(str(kind), _TEXTS)
    for at, (found, text) in enumerate(left):
        if found in wanted and not (kind == "integer" and "." in text):
            del left[at]
            return json.loads(text.lower()) if found in ("number", "flag") else text
    return None


def _array(schema: Json, left: list[tuple[str, str]]) -> list[Any] | None:
    kind = (schema.get("items") or {}).get("type")
    return list(iter(lambda: _take(kind, left), None)) or None


def _property(parameters: Json, name: str) -> Json:
    found: Json = (parameters.get("properties") or {}).get(name) or {}
    return found


def _report(done: CallMade) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in done.arguments.items())
    return f"{done.name}({arguments}) says: {(done.result or 'nothing that I can see').strip()}"


def chat(view: View) -> str:
    """A short honest answer from what stands in the messages."""
    asked = view.asked.strip()
    if question := _QUESTION.search(asked):
        return _tell(question["whose"].lower(), question["thing"].strip(), view)
    if _RECALL.search(asked):
        facts = list(dict.fromkeys(fact for text in _texts(view) for fact in facts_in(text)))
        lines = "\n".join(f"- “{fact}”" for fact in facts)
        return f"This I still see:\n{lines}" if facts else "I see nothing that I was asked to remember."
    if _COUNT.search(asked):
        return f"I see {_count(view)}, this one included."
    if facts := facts_in(asked):
        return f"Noted: “{' '.join(facts)}” I know it as long as it stands in the messages I am sent."
    return (
        f"You said: “{shorten(' '.join(asked.split()), 200)}” I see {_count(view)}. I am the "
        "offline stand-in and follow rules: I can read files of a kind and say what each does, tell what "
        "stands in our messages, and call a tool that you name, as `list_files`. Its arguments are the file, "
        "the number or the quoted text behind the name, or what stands in `name(arg=…)`. For more, name a "
        "model and set OPENAI_API_KEY."
    )


def _tell(whose: str, thing: str, view: View) -> str:
    statement = re.compile(
        rf"(?:\b(?:my|our|the|your)|'s|’s)\s+{re.escape(thing)}\s*(?:\b(?:is|was|are|were)\b|[:=])\s*([^\n]+?)"
        r"(?=\s+and\s+(?:i|my|our|we)\b|[.!?,;”]*(?:\s|$)(?![a-z])|[.!?,;”]+(?:\s|$)|\n)",
        re.IGNORECASE,
    )
    shown = f"{'your' if whose == 'my' else whose} {thing}"
    for text in reversed(list(_texts(view))):
        if found := statement.findall(text):
            return f"{shown[0].upper()}{shown[1:]} is {found[-1]}."
    return f"I do not see {shown} in the messages I was sent."


def _texts(view: View) -> Iterator[str]:
    """What was said before the question, oldest first: the records, then the messages."""
    yield from view.records
    yield from (message.text for message in view.before)


def _count(view: View) -> str:
    number = len(view.before) + 1 + len(view.since) + len(view.records)
    return "1 message" if number == 1 else f"{number} messages"
