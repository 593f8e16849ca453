"""Reasoning that goes back to a model: how much of it, and whether a refusal speaks of it.

What one model thought, sealed or as parts of its content, is refused by many others, each time it is sent:
a session that moves between models would be stuck. So it goes back as it came until it is refused, then
without the parts that other servers do not know, and then not at all.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from agentloop._plumbing.strict_json import list_or_empty
from agentloop.messages import Json, text_of
from agentloop.prompts import ACKNOWLEDGEMENT
from agentloop.providers.openai.fields import (
    REASONING_FIELDS,
    REASONING_PARTS,
    SEALED_FIELDS,
    SEALS,
    FieldPlace,
)
from agentloop.providers.openai.refusals import CONTENT_PART, ITEM_IDS, UNKNOWN, Refusal, path_of

Returned: TypeAlias = Literal["as it came", "in fields", "none"]
"""How reasoning goes back; `in fields` is without parts of content that hold thoughts."""

AMOUNTS: tuple[Returned, ...] = ("as it came", "in fields", "none")
"""In the order in which they are tried: one that is refused is not gone back to."""

_KIND = r"(?:reasoning(?:\.(?:text|summary|encrypted))?|(?:redacted_)?thinking|thoughts?)(?!\.?\w)"
_NAMED = re.compile(
    rf"\b{_KIND}['\"`”’]? (?:(?:input|output|content) )?"
    r"(?:inputs?|items?|parts?|blocks?|chunks?|entries|content|signatures?)\b"
    rf"|\b(?:types?|tag|variant|invalid value)\W{{1,4}}{_KIND}|\bencrypted (?:reasoning|content)\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"\binvalid\b|\bonly be\b|\bcorrupt|\bmis-?match|\bcannot be\b|\b(could|did|does) not (be|match|pass)\b"
    r"|\bfailed\b|\bnot from\b|\bmust contain\b",
    re.IGNORECASE,
)
_MISSED = re.compile(
    r"\bmissing\b|\brequired\b|\bmust (start|begin|be (passed|present|included))\b|\bbut found\b",
    re.IGNORECASE,
)
_SURELY = re.compile(
    r"invalid_encrypted_content|encrypted content .{0,200} could not be|required following item",
    re.IGNORECASE,
)
_OF_A_SEAL = re.compile(r"\bsignatures?\b|\bthinking\W{1,2}blocks?\b|\bencrypted\b", re.IGNORECASE)


def less_for(refusal: Refusal, sent: Json) -> Returned | None:
    """How to send less reasoning where the refusal's words are of what was sent back; else None."""
    if not _refuses_reasoning(refusal, sent):
        return None
    less = _less(sent)
    if _OF_A_SEAL.search(refusal.text):
        return "none" if less or any(map(_has_sealed_calls, _said_in(sent))) else None
    return less


def less_where_it_points(refusal: Refusal, sent: Json) -> Returned | None:
    """How to send less reasoning where a place that the refusal names lies inside of it; else None."""
    points = refusal.is_of_what_was_sent and any(_is_inside(place, sent) for place in refusal.all_places)
    return _less(sent) if points else None


def _less(sent: Json) -> Returned | None:
    said = _said_in(sent)
    if any(_holds_thoughts(each) for each in said):
        return "in fields"
    return "none" if any(_is_reasoning(each) or each.keys() & REASONING_FIELDS for each in said) else None


def _refuses_reasoning(refusal: Refusal, sent: Json) -> bool:
    """Whether the words are of reasoning that was sent back: another server made it, as a rule."""
    if refusal.is_of(ITEM_IDS) or (refusal.status in (400, 404) and _SURELY.search(refusal.text)):
        return True
    if refusal.is_of(CONTENT_PART) and any(map(_holds_thoughts, _said_in(sent))):
        return True
    if not refusal.is_of_what_was_sent or _names_another_field(refusal, sent):
        return False
    text = refusal.text
    refused = refusal.is_of(UNKNOWN) or _REFUSED.search(text)
    return bool(_NAMED.search(text) and refused and not _MISSED.search(text))


def with_less_reasoning(messages: Sequence[Json], how: Returned) -> Sequence[Json]:
    """The messages of chat completions with so much of their reasoning.

    Example:
        >>> thought = {"type": "thinking", "thinking": "hm"}
        >>> said = {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]}
        >>> with_less_reasoning([said], "in fields")
        [{'role': 'assistant', 'content': 'Yes.'}]
    """
    if how == "as it came":
        return messages
    messages = [_without_thoughts(each) if _holds_thoughts(each) else each for each in messages]
    return messages if how == "in fields" else [_without_fields(each) for each in messages]


def _without_thoughts(message: Json) -> Json:
    """The message without the parts that hold thoughts; text alone is what every server takes."""
    parts = [part for part in message["content"] if not _is_thought(part)]
    if not parts:
        return {**message, "content": "" if message.get("tool_calls") else ACKNOWLEDGEMENT}
    is_text = all(isinstance(part, Mapping) and part.keys() == {"type", "text"} for part in parts)
    return {**message, "content": text_of(parts) if is_text else parts}


def _without_fields(message: Json) -> Json:
    if message.get("role") != "assistant":
        return message
    kept = {name: value for name, value in message.items() if name not in REASONING_FIELDS}
    if _has_sealed_calls(message):
        kept["tool_calls"] = [_unsealed(call) for call in message["tool_calls"]]
    return kept


def _has_sealed_calls(message: Json) -> bool:
    return any(_unsealed(call) != call for call in list_or_empty(message.get("tool_calls")))


def _unsealed(call: Json) -> Json:
    """The call without the fields in which a server put a signature of its thoughts."""
    return {name: value for name, value in call.items() if not _is_seal(name, value)}


def _is_seal(name: str, value: object) -> bool:
    inside = value.items() if isinstance(value, Mapping) and name != "function" else ()
    return name in SEALS or any(_is_seal(key, each) for key, each in inside)


def _said_in(sent: Json) -> list[Mapping[str, Any]]:
    said = [each for name in ("messages", "input") for each in list_or_empty(sent.get(name))]
    return [each for each in said if isinstance(each, Mapping)]


def _is_reasoning(item: Json) -> bool:
    return item.get("type") == "reasoning"


def _holds_thoughts(message: Json) -> bool:
    return message.get("role") == "assistant" and any(map(_is_thought, list_or_empty(message.get("content"))))


def _is_thought(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in REASONING_PARTS


def _names_another_field(refusal: Refusal, sent: Json) -> bool:
    """Whether a field beside the conversation is what is refused, such as `include`."""
    firsts = {next((key for key in path_of(place) if key != "body"), "") for place in refusal.places}
    return bool(firsts) and bool(firsts & (sent.keys() - {"messages", "input"}))


def _is_inside(place: FieldPlace, sent: Json) -> bool:
    parts = iter(place)
    said = next((list_or_empty(sent.get(part)) for part in parts if part in ("messages", "input")), ())
    number = next((part for part in parts if isinstance(part, int)), None)
    if number is None or not 0 <= number < len(said) or not isinstance(said[number], Mapping):
        return False
    message, behind = said[number], tuple(parts)
    names = {part for part in behind if isinstance(part, str)}
    if _is_reasoning(message) or names & SEALED_FIELDS & message.keys():
        return True
    if names and "content" not in names:
        return False
    content = list_or_empty(message.get("content"))
    at = next((part for part in behind if isinstance(part, int)), None)
    return any(map(_is_thought, content if at is None else content[max(0, at) :][:1]))
