"""The content of a message that grows: text, refusals and parts of other types, in the order they come in."""

from typing import Any

from agentloop._plumbing.strict_json import cleaned, without_half
from agentloop.messages import Json
from agentloop.openai_api.thoughts import TOLD_PARTS
from agentloop.openai_chat.joining import GrowingItem

_TEXT_TYPES = frozenset({None, "", "text", "output_text"})
_BETWEEN = "\n"
"""Stands between two texts that something else parts, as in the text of a whole message."""


class GrowingContent:
    """What a message says, as far as it has come.

    Text is whole at every point: half of a surrogate pair waits for the other half. A refusal is text like
    any other. A thought in pieces is one part, as it is where it comes whole.
    """

    def __init__(self) -> None:
        self._parts: list[Json | GrowingItem] = []
        self._text: list[str] = []
        self._half = ""
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
        return self._grown(between + refusal)

    def rest(self) -> str:
        """The text that still waits for its other half, once no more can come before it."""
        text, self._half = str(cleaned(self._half)), ""
        return self._added(text)

    def said(self, *, has_calls: bool) -> dict[str, Any]:
        """What stands for content: nothing but a refusal stands where servers put it."""
        text = "".join((*self._text, self._half))
        if self._parts:
            parts = [part.joined() if isinstance(part, GrowingItem) else part for part in self._parts]
            return {"content": [*parts, _text_part(text)] if text else parts}
        if self._refuses and not self._says:
            return {"content": None, "refusal": text}
        return {"content": text if text or not has_calls else None}

    def __bool__(self) -> bool:
        return bool(self._text or self._half or self._parts)

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
        return self._grown(text)

    def _grown(self, text: str) -> str:
        text, self._half = without_half(self._half + text)
        return self._added(text)

    def _added(self, text: str) -> str:
        """Put this behind what was said; what is shown of it stands apart from a text before it."""
        if not text:
            return ""
        between = _BETWEEN if self._has_text_before and not self._text else ""
        self._text.append(text)
        return between + text


def _text_part(text: str) -> Json:
    return {"type": "text", "text": text}
