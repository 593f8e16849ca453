"""Fields of requests and of error bodies, and the numbers in texts.

What stands in the error object of a server: its words, codes and texts, and the places that it names. A body
may be nested as deep as JSON can be; what stands deeper than errors in use are is passed over.

What stands in a request: the fields that we add, those that a user gives, and those in which servers return
what their models thought.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from agentloop._plumbing.amounts import LEAST_WINDOW, MOST_TOKENS, scaled
from agentloop._plumbing.checks import at_least_or_none, shown
from agentloop._plumbing.strict_json import cleaned, encodes, lenient_value
from agentloop.errors import UsageError
from agentloop.models import ModelRequest
from agentloop.providers.openai.sse import utf8_text

FieldPath: TypeAlias = tuple[str, ...]
"""Where a field stands: the keys from the body down to it, places in lists left out."""

FieldPlace: TypeAlias = tuple[str | int, ...]
"""Where a value stands: the keys and the places in lists, as a server names them."""

MOST_NESTED = 8
"""So deep an error is looked into, twice as deep as the `detail` of FastAPI is nested."""

MOST_CHARS = 20_000
"""So much of an error's text is looked at; some servers repeat the whole request in it."""

MOST_ITEMS = 500
"""So many values of an error are looked at; what a validator says of one request is far less."""

_LARGEST = 10**18
_WORDS = (
    *("message", "Message", "detail", "error", "errors", "loc", "msg"),
    *("error_message", "error_msg", "errorMessage", "error_description", "title"),
)
_CODES = ("code", "type", "error_type", "error_code", "__type")
_SPOILT_CODES = frozenset({"tool_use_failed", "output_parse_failed"})
_SPOILT_WORDS = re.compile(r"['\"](tool_use_failed|output_parse_failed|failed_generation)['\"]")
_QUOTED_ERRORS = ("error", "errors", "detail", "message")
_TELLING = dict.fromkeys(
    (
        *(*_CODES, "status", "status_code", "statusCode", "http_status"),
        *("param", "field", "loc", *_WORDS, "n_ctx", "n_prompt_tokens", "metadata", "raw"),
    )
)
_WHAT_WAS_SENT = frozenset(
    {
        *("input", "ctx", "request", "body", "payload", "data", "params", "parameters"),
        *("messages", "tools", "choices"),
    }
)

_Inside: TypeAlias = Callable[[Mapping[str, Any]], Iterable[tuple[str, Any]]]


def parsed(data: bytes) -> object:
    """The JSON in the body of an error, its text where it is none."""
    text = utf8_text(data).removeprefix("\ufeff").strip()
    return lenient_value(text, text)


def trimmed(body: object, wipe: Callable[[str], str] = str) -> object:
    """A copy of an error as far as it is looked at, its texts and keys wiped, so that all else may go.

    What was sent and is quoted is left out, and what says the reason comes before all that may fill it.
    """
    return _copied(body, wipe, [MOST_ITEMS, 2 * MOST_CHARS], 0)


def _copied(value: Any, wipe: Callable[[str], str], left: list[int], depth: int) -> Any:
    """The copy; `left` is how many values and how many characters more may be in it."""
    left[0] -= 1
    if isinstance(value, str):
        text = wipe(value[: min(MOST_CHARS, max(0, left[1]))])
        left[1] -= len(value)
        return text
    if not isinstance(value, Mapping | list):
        return value if value is None or isinstance(value, bool | float) else _number(value)
    if depth > MOST_NESTED:
        return None
    if isinstance(value, Mapping):
        items = islice(_telling_first(value), max(0, left[0]))
        return {
            wipe(str(key)[:200]): _copied(item, wipe, left, depth + 1) for key, item in items if left[0] > 0
        }
    return [_copied(item, wipe, left, depth + 1) for item in islice(value, max(0, left[0])) if left[0] > 0]


def _telling_first(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields that say what is wrong before all others, whatever stands in front of them."""
    yield from ((key, body[key]) for key in _TELLING if key in body)
    yield from ((key, value) for key, value in _not_sent(body) if key not in _TELLING)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and abs(value) < _LARGEST else None


def said(body: object) -> str:
    """The server's own words in an error object, on one line; a gateway's quotation of its provider too."""
    texts = (value for _, value in _walked(body, _words) if isinstance(value, str))
    return on_one_line(dict.fromkeys(texts))


def codes_in(body: object) -> frozenset[str]:
    """The codes in an error object, and in those that it quotes."""
    return frozenset(
        str(each[key]) for each in objects_in(body) for key in _CODES if each.get(key) is not None
    )


def objects_in(body: object) -> Iterator[Mapping[str, Any]]:
    """The error object and those that it quotes, the outer ones first."""
    return (value for _, value in _walked(body, _quoted_errors) if isinstance(value, Mapping))


def is_of_the_answer(body: object) -> bool:
    """Whether the fault is in what the server's model said, though the status may be that of a bad request.

    Groq's codes and the field in which it quotes the model: https://console.groq.com/docs/tool-use. A gateway
    may quote them as text.
    """
    is_quoted = any("failed_generation" in each for each in objects_in(body))
    return is_quoted or bool(_SPOILT_CODES & codes_in(body) or _SPOILT_WORDS.search(said(body)))


def texts_in(body: object) -> Iterator[tuple[str, str]]:
    """Every text in the error with its key, empty in a list; what was sent and is quoted left out."""
    return ((key, value) for key, value in _walked(body, _not_sent) if isinstance(value, str))


def locations_in(body: object) -> Iterator[FieldPlace]:
    """Every `loc` in the error, as pydantic writes it."""
    for _, value in _walked(body, _not_sent):
        if isinstance(value, Mapping) and isinstance(loc := value.get("loc"), list):
            yield tuple(part for part in loc if isinstance(part, str | int))


def on_one_line(texts: Iterable[str]) -> str:
    """The texts one behind the other with single blanks, as far as they are looked at."""
    return " ".join(" ".join(text[:MOST_CHARS] for text in texts)[:MOST_CHARS].split())


def _walked(value: Any, inside: _Inside, key: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every value with its key, the outer ones first; of objects what `inside` gives, of lists all."""
    if depth > MOST_NESTED:
        return
    yield key, value
    if isinstance(value, Mapping):
        for name, item in inside(value):
            yield from _walked(item, inside, str(name), depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _walked(item, inside, "", depth + 1)


def _words(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((key, body.get(key)) for key in _WORDS)
    if isinstance(metadata := body.get("metadata"), Mapping):
        yield "raw", metadata.get("raw")


def _quoted_errors(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, body.get(key)) for key in _QUOTED_ERRORS)


def _not_sent(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in body.items() if key not in _WHAT_WAS_SENT)


NUMBER = (
    r"(?<!\d)(?:\d{1,3}(?:[,. _'’\u00a0\u202f]\d{3}){1,5}(?!\d)"
    r"|\d[\d,_]{0,20}(?:\.\d{1,9})?(?:e\d{1,2}(?!\w))?)(?:[ \u00a0]?[kKmM](?![\w/]))?"
)
"""A number in a sentence: its thousands may be parted, and `k` or `M` may stand behind it.

It begins where digits do and has an end, or a long row of them would take time with the square of its length.
"""

_MOST_CHARS = len(f"{MOST_TOKENS:,}.00 k")
_WRITTEN = re.compile(r"([\d.,_'’\u00a0\u202f ]+(?:e\d{1,2})?)([km]?)", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=\d)[., _'’\u00a0\u202f](?=\d{3}(?!\d))")
_IN_THOUSANDS = re.compile(r"\d{1,3}([., '’\u00a0\u202f])\d{3}(\1\d{3})*", re.ASCII)


def tokens_in(value: object) -> int | None:
    """A number from 1 to `MOST_TOKENS`, also one that stands there as text; None for anything else.

    Example:
        >>> tokens_in("128,000"), tokens_in(8192.0), tokens_in(True), tokens_in("٤")
        (128000, 8192, None, None)
        >>> tokens_in("128K"), tokens_in("32.768"), tokens_in("200 000"), tokens_in("1.5M"), tokens_in("1e6")
        (128000, 32768, 200000, 1500000, 1000000)
    """
    if isinstance(value, str) and len(value) <= _MOST_CHARS:
        value = _written(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MOST_TOKENS:
        return None
    return int(value)


def believed_window(tokens: int | None) -> int | None:
    """The window that a server names; None where it is smaller than any model's."""
    return tokens if tokens is not None and tokens >= LEAST_WINDOW else None


def _written(text: str) -> float | None:
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return None
    number, unit = found[1].strip(), found[2]
    if not unit and _IN_THOUSANDS.fullmatch(number):
        number = _THOUSANDS.sub("", number)
    try:
        return scaled(number, unit)
    except ValueError:
        return None


_LASTING = (
    r"(?:\d{1,6}(?:\.\d{1,9})?\s?(?:ms|milliseconds?|h|hours?|m|min|minutes?|s|sec|seconds?)"
    r"(?![a-z])[ ,]{0,2}){1,3}"
)
_WAIT = re.compile(
    rf"\b(?:try(?:ing)? (?:it )?again|retry(?:ing)?|come back|wait(?:ing)?|available)\b"
    rf"(?: your request)?(?: again)?(?: in| after| for| at least)* ({_LASTING})",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s?([a-z]+)", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "mil": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "hou": 3600.0}
"""How many seconds a unit of this beginning has; any other is seconds."""


def wait_in(body: object) -> float | None:
    """How long a server asks to wait in the error itself; the longest where it says so in several places.

    Google's `RetryInfo` has a field for it (https://cloud.google.com/apis/design/errors), others say it.

    Example:
        >>> wait_in({"error": {"message": "Please try again in 1m2.5s."}})
        62.5
        >>> wait_in({"error": {"details": [{"retryDelay": "38s"}]}}), wait_in("Wait for me")
        (38.0, None)
    """
    texts = [text for key, text in texts_in(body) if key in ("retryDelay", "retry_delay")]
    texts += _WAIT.findall(said(body))
    return max(filter(None, map(_seconds_in, texts)), default=None)


def _seconds_in(text: str) -> float:
    parts = _PART.findall(text[:60])
    return sum(float(number) * _SECONDS.get(unit[:3].lower(), 1.0) for number, unit in parts)


ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""Asks for reasoning in a form that can be sent back, as the server stores nothing."""

OWN_FIELDS: Mapping[str, Any] = {
    "stream_options": {"include_usage": True},
    "include": [ENCRYPTED_REASONING],
}
"""What we ask for beside what a user asks for; an answer comes without it too.

That the server stores nothing is no such field: without `store` it may keep the whole conversation.
"""


def common_fields(temperature: float | None, extra_body: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields that every request carries, in strict UTF-8.

    Raises:
        UsageError: the temperature is no finite number of at least 0, or the others are no dict that can be
            sent as JSON.
    """
    at_least_or_none("temperature", temperature, 0)
    if not isinstance(extra_body, Mapping | None):
        raise UsageError(f"extra_body must be a dict of further fields or None, not {shown(extra_body)}")
    fields = ({} if temperature is None else {"temperature": temperature}) | dict(extra_body or {})
    try:
        text = json.dumps(fields, allow_nan=False, ensure_ascii=False)
        return fields if encodes(text) else dict(cleaned(fields))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"extra_body cannot be sent as JSON: {error}") from error


_FOR_TOOLS = frozenset({"tool_choice", "parallel_tool_calls", "function_call"})
_FOR_THE_AGENT = _FOR_TOOLS | {"response_format", "tools", "functions"}
_NOT_FORCED = ("auto", "none")


def fields_for(fields: Mapping[str, Any], request: ModelRequest) -> dict[str, Any]:
    """The further fields that this request carries.

    What is set for the agent's answers and calls goes with no other request, and what is of tools with none
    that offers none. A call that is forced is forced once a turn: else no turn would ever end. Tools that
    another request offers, so that it begins as the agent's do, must not be called.
    """
    kept = dict(fields)
    is_side = request.purpose != "agent"
    if is_side and isinstance(text := fields.get("text"), Mapping):
        kept["text"] = {name: value for name, value in text.items() if name != "format"}
    offers = bool(request.tools or fields.get("tools") or fields.get("functions"))
    gone = _FOR_THE_AGENT if is_side else frozenset() if offers else _FOR_TOOLS
    if _forces(kept.get("tool_choice")) and _has_called(request):
        gone = gone | {"tool_choice"}
    sent = {name: value for name, value in kept.items() if name not in gone}
    return sent | {"tool_choice": "none"} if is_side and request.tools else sent


def _forces(choice: object) -> bool:
    """Whether the model must call a tool; a choice among some of them has a mode."""
    if isinstance(choice, Mapping):
        return choice.get("mode", choice.get("type")) not in _NOT_FORCED
    return choice not in (None, *_NOT_FORCED)


def _has_called(request: ModelRequest) -> bool:
    """Whether a tool has answered since a user spoke last."""
    last = next((each["role"] for each in reversed(request.messages) if each["role"] in ("user", "tool")), "")
    return last == "tool"


SEALED_FIELDS = frozenset({"thinking_blocks", "reasoning_details"})
"""Lists of parts that are of use to their server whole alone.

LiteLLM's (https://docs.litellm.ai/docs/reasoning_content) and OpenRouter's
(https://openrouter.ai/docs/use-cases/reasoning-tokens).
"""

REASONING_FIELDS = frozenset({"reasoning_content", "reasoning"}) | SEALED_FIELDS
"""Fields of a message beside its content.

DeepSeek's (https://api-docs.deepseek.com/guides/reasoning_model), and that of vLLM and OpenRouter
(https://docs.vllm.ai/en/latest/features/reasoning_outputs.html).
"""

TOLD_PARTS = frozenset({"thinking", "reasoning", "reasoning.text", "reasoning.summary"})
"""Types of parts that say it in words.

Anthropic's and Mistral's `thinking` (https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking,
https://docs.mistral.ai/capabilities/reasoning/), `reasoning` of the Responses API
(https://platform.openai.com/docs/guides/reasoning), and OpenRouter's.
"""

SEALED_PARTS = frozenset({"redacted_thinking", "reasoning.encrypted"})
"""Types of parts that hold it sealed in `data`: Anthropic's and OpenRouter's."""

REASONING_PARTS = TOLD_PARTS | SEALED_PARTS

SEALS = frozenset({"signature", "thought_signature", "thoughtSignature"})
"""Fields that prove whose it is: Anthropic's, and Gemini's, which stands in calls too.

https://ai.google.dev/gemini-api/docs/thought-signatures
"""
