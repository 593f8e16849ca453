"""What the strict provider answers: replies, faults, and brains."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.strict_bodies import Body
from tests.strict_rules import text_of

MARKER = re.compile(r"FACT-[0-9a-f]{6}")
_SUMMARY = re.compile(r"summari[sz]e|write (a|the|your) (record|summary)|<conversation>", re.IGNORECASE)
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call of a reply; an id is made where none is given."""

    name: str
    arguments: str = "{}"
    id: str = field(default_factory=lambda: f"call_{next(_numbers):06d}")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer; streamed in pieces of `piece_chars` characters. `extra` are further message fields."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str | None = None
    finish: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    piece_chars: int = 16

    @property
    def finish_reason(self) -> str:
        """The finish reason: the one given, else what fits."""
        return self.finish or ("tool_calls" if self.calls else "stop")

    def message(self) -> Body:
        """The whole message."""
        calls = [_call_body(call, call.arguments) for call in self.calls]
        message: Body = {"role": "assistant", "content": self.text or (None if calls else "")}
        message |= {"tool_calls": calls} if calls else {}
        message |= {} if self.reasoning is None else {"reasoning_content": self.reasoning}
        return message | dict(self.extra)

    def deltas(self) -> Iterator[Body]:
        """The message in pieces."""
        yield {"role": "assistant", "content": None if self.calls else ""}
        for piece in self._pieces(self.reasoning or ""):
            yield {"reasoning_content": piece}
        for piece in self._pieces(self.text):
            yield {"content": piece}
        for index, call in enumerate(self.calls):
            yield {"tool_calls": [{"index": index} | _call_body(call, "")]}
            for piece in self._pieces(call.arguments):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
        if self.extra:
            yield dict(self.extra)

    def _pieces(self, text: str) -> Iterator[str]:
        return (text[at : at + self.piece_chars] for at in range(0, len(text), self.piece_chars))


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A refusal or failure: a status and a body, JSON unless it is text or bytes."""

    status: int
    body: object = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Raw:
    """These bytes with status 200, each piece sent by itself; with `left_open` the answer never ends."""

    pieces: tuple[bytes, ...]
    content_type: str = "text/event-stream"
    left_open: bool = False


@dataclass(frozen=True, kw_only=True)
class Drop:
    """The reply's first `events` events, then the connection is cut; with 0, before any answer.

    With `reset` it is not ended in order but reset, as by a machine that died.
    """

    reply: Reply = field(default_factory=Reply)
    events: int = 0
    reset: bool = False


@dataclass(frozen=True, kw_only=True)
class Hang:
    """No answer, until the server closes."""


Answered: TypeAlias = Reply | Fault | Raw | Drop | Hang
Brain: TypeAlias = Callable[[Body], Answered | str]


def fault(status: int, message: str, **fields: Any) -> Fault:
    """A refusal as an object `error` with this message and these fields."""
    return Fault(status=status, body={"error": {"message": message} | fields})


def invalid(status: int, message: str, **fields: Any) -> Fault:
    """A refusal of the type `invalid_request_error`."""
    return fault(status, message, type="invalid_request_error", **fields)


def events(*chunks: object, done: bool = True) -> Raw:
    """A raw stream of these chunks as events, one piece each."""
    lines = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    return Raw(pieces=(*lines, b"data: [DONE]\n\n") if done else tuple(lines))


def calling(name: str, _id: str | None = None, /, **arguments: Any) -> Call:
    """A call with these arguments."""
    text = json.dumps(arguments, ensure_ascii=False)
    return Call(name=name, arguments=text) if _id is None else Call(name=name, arguments=text, id=_id)


def script(replies: Sequence[Answered | str]) -> Brain:
    """A brain that gives these replies in order, and fails the test when asked for more."""
    waiting = iter(replies)

    def answer(_: Body) -> Answered | str:
        for reply in waiting:
            return reply
        raise AssertionError(f"the script of {len(replies)} replies is used up")

    return answer


def asks_for_summary(body: Body) -> bool:
    """Whether a request without tools asks for a summary in its first or its last message."""
    messages = body["messages"]
    return not body.get("tools") and any(_SUMMARY.search(text_of(messages[at])) for at in (0, -1))


class ExtractiveSummariser:
    """Answers requests for a summary with every marker in them, each once; others by the other brain."""

    def __init__(self, other: Brain, *, is_summary: Callable[[Body], bool] = asks_for_summary) -> None:
        self.asked: list[Body] = []
        self._other = other
        self._is_summary = is_summary

    def __call__(self, body: Body) -> Answered | str:
        if not self._is_summary(body):
            return self._other(body)
        self.asked.append(body)
        found = dict.fromkeys(MARKER.findall("\n".join(map(text_of, body["messages"]))))
        return "Facts so far: " + (", ".join(found) or "none")


def tool_turn(pieces: int = 200) -> Brain:
    """Asks for one tool call, and after its result says a text of so many pieces of 16 characters."""

    def answer(body: Body) -> Reply:
        if body["messages"][-1]["role"] == "tool":
            return Reply(text="sixteen letters " * pieces)
        return Reply(calls=(calling("look", path="a.txt"),))

    return answer


def _call_body(call: Call, arguments: str) -> Body:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
