"""An answer that grows: the chunks of a chat completion merged into one message.

An answer in one piece is one chunk here, so that both ways give the same message.
"""

import re
from collections.abc import Sequence
from typing import Any

from agentloop.errors import BadAnswerError, ModelUnavailableError, UsageError
from agentloop.messages import Json, Message, Usage
from agentloop.models import CUT_SHORT, Answer
from agentloop.openai_api.server_events import ServerSaidError
from agentloop.openai_chat.call_deltas import GrowingCalls
from agentloop.openai_chat.finishes import WINDOW_FULL, finish_of, is_given_up
from agentloop.openai_chat.joining import GrowingFields
from agentloop.wire_form import cleaned, without_half

_SAYS_WHY = ("message", "detail", "msg", "errors")
_DIGITS = re.compile(r"[0-9]{1,6}")
_TEXT_TYPES = frozenset({None, "", "text", "output_text"})


def check_no_error(chunk: Json) -> None:
    """Refuse what stands in place of an answer, in any of the forms in which servers say why.

    Raises:
        ServerSaidError: it is an error.
    """
    if error := chunk.get("error"):
        raise ServerSaidError(error)
    why = next((chunk[key] for key in _SAYS_WHY if chunk.get(key)), None)
    if why is not None or chunk.get("object") == "error":
        raise ServerSaidError({**chunk, "message": why})


class GrowingAnswer:
    """The first choice of a completion, as far as it has come; a lone one is taken whatever its place.

    An answer that was cut short stays so, whatever a server says of its end behind that.
    `begun` says that there was a choice at all, `finish` is the finish reason. Text is whole at every point:
    half of a surrogate pair waits for the other half. A refusal is text like any other.
    """

    def __init__(self) -> None:
        self.begun = False
        self.finish: str | None = None
        self.calls = GrowingCalls()
        self._window_full = False
        self._usage: Usage | None = None
        self._text: list[str] = []
        self._half = ""
        self._place: int | None = None
        self._refuses = False
        self._says = False
        self._parts: list[Json] = []
        self._fields = GrowingFields()
        self._by_deltas = False

    def add(self, chunk: Json) -> str:
        """Take one chunk of a stream in; returns the text that came with it.

        Raises:
            ServerSaidError: the chunk is an error.
        """
        if not (choices := self._choices(chunk)):
            return ""
        if self._place is None:
            self._place = min(map(_place, choices))
        for choice in choices:
            if _place(choice) == self._place:
                return self._add_choice(choice)
        return ""

    def add_whole(self, completion: Json) -> None:
        """Take in a completion that comes in one piece.

        Raises:
            ServerSaidError: it is an error.
        """
        if choices := self._choices(completion):
            self._add_choice(min(choices, key=_place))

    def rest(self) -> str:
        """The text that still waits for its other half, once no more can come."""
        text, self._half = str(cleaned(self._half)), ""
        self._text.append(text)
        return text

    def answer(self) -> Answer:
        """What has come, as one answer.

        Raises:
            ModelUnavailableError: the server gave up.
            ServerSaidError: nothing fitted into the window any more.
            BadAnswerError: it is nested too deep.
        """
        if is_given_up(self.finish):
            raise ModelUnavailableError(f"the server gave up in an answer ({self.finish}): try again later")
        try:
            message = Message.from_openai(cleaned(self._message()))
        except UsageError as error:
            raise BadAnswerError(f"the server's answer cannot be kept: {error}") from error
        except RecursionError as error:
            raise BadAnswerError("the server's answer is nested too deep") from error
        return Answer(message=message, usage=self._usage, finish=self.finish)

    def _message(self) -> Json:
        calls = self.calls.to_openai()
        if self._window_full and not (calls or self._text):
            raise ServerSaidError({"code": "context_length_exceeded", "message": WINDOW_FULL})
        said = {"role": "assistant"} | self._said(has_calls=bool(calls))
        return said | ({"tool_calls": calls} if calls else {}) | self._fields.joined()

    def _choices(self, chunk: Json) -> Sequence[Json]:
        choices = chunk.get("choices")
        choices = choices if isinstance(choices, list) else None
        if not choices or chunk.get("error") or chunk.get("object") == "error":
            check_no_error(chunk)
        if usage := chunk.get("usage"):
            self._note_usage(usage)
        return [choice for choice in choices or () if isinstance(choice, dict)]

    def _note_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._usage = Usage.from_openai(usage)

    def _add_choice(self, choice: Json) -> str:
        if error := choice.get("error"):
            raise ServerSaidError(error)
        self.begun = True
        if usage := choice.get("usage"):
            self._note_usage(usage)
        if word := choice.get("finish_reason"):
            self._note_finish(word)
        delta = choice.get("delta")
        if isinstance(delta, dict) and (delta or not choice.get("message")):
            self._by_deltas = True
            if fragments := delta.get("tool_calls"):
                self.calls.add_deltas(fragments)
            return self._add_fields(delta)
        # Some servers say in the last chunk all once more that came by deltas.
        if not isinstance(message := choice.get("message"), dict) or self._by_deltas:
            return ""
        self.calls.add_whole(message.get("tool_calls"))
        return self._add_fields(message)

    def _note_finish(self, word: object) -> None:
        if (finish := finish_of(word)) is not None and self.finish not in CUT_SHORT:
            self.finish = finish
            self._window_full = word == WINDOW_FULL

    def _add_fields(self, said: Json) -> str:
        text = ""
        for key, value in said.items():
            if key == "content":
                text += self._add_text(value) if isinstance(value, str) else self._add_parts(value)
            elif key == "refusal":
                text += self._add_refusal(value)
            elif key not in ("role", "tool_calls"):
                self._fields.add(key, value)
        return text

    def _add_parts(self, content: object) -> str:
        parts = content if isinstance(content, list) else [content]
        return "".join(self._add_part(part) for part in parts)

    def _add_part(self, part: object) -> str:
        if isinstance(part, str):
            return self._add_text(part)
        if not isinstance(part, dict):
            return ""
        kind = part.get("type")
        if kind == "refusal":
            return self._add_refusal(part.get("refusal"))
        if isinstance(kind, str | None) and kind in _TEXT_TYPES and isinstance(part.get("text"), str | None):
            return self._add_text(part.get("text") or "")
        self._parts.append(part)
        return ""

    def _add_refusal(self, refusal: object) -> str:
        if not isinstance(refusal, str) or not refusal:
            return ""
        between = "\n" if self._says and not self._refuses else ""
        self._refuses = True
        return self._grown(between + refusal)

    def _add_text(self, text: str) -> str:
        if not text:
            return ""
        self._says = True
        return self._grown(text)

    def _grown(self, text: str) -> str:
        text, self._half = without_half(self._half + text)
        if text:
            self._text.append(text)
        return text

    def _said(self, *, has_calls: bool) -> dict[str, Any]:
        """What stands for content: nothing but a refusal stands where servers put it."""
        text = "".join((*self._text, self._half))
        if self._refuses and not (self._says or self._parts):
            return {"content": None, "refusal": text}
        if self._parts:
            return {"content": [*self._parts, {"type": "text", "text": text}] if text else self._parts}
        return {"content": text if text or not has_calls else None}


def _place(choice: Json) -> int:
    """The place of a choice; what is none, and what is below the first, is the first."""
    index = choice.get("index")
    if isinstance(index, str) and _DIGITS.fullmatch(index):
        return int(index)
    return max(0, index) if isinstance(index, int) else 0
