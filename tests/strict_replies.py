"""What the strict provider answers: replies, faults, usage reports, overflow in many dialects, and brains."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from tests.strict_rules import text_of

Body: TypeAlias = dict[str, Any]
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


UsageReport: TypeAlias = Callable[[int, int, int], Body | None]
"""What is reported from the prompt's tokens, the answer's, and the request's number from 1."""


def _report(prompt: int, answer: int) -> Body:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": prompt // 2},
    }


def _cumulative() -> UsageReport:
    seen = [0, 0]

    def report(prompt: int, answer: int, _: int) -> Body:
        seen[:] = seen[0] + prompt, seen[1] + answer
        return _report(*seen)

    return report


def _stale() -> UsageReport:
    seen = [(0, 0)]

    def report(prompt: int, answer: int, _: int) -> Body:
        seen.append((prompt, answer))
        return _report(*seen[-2])

    return report


def _standing() -> UsageReport:
    first: list[Body] = []

    def report(prompt: int, answer: int, _: int) -> Body:
        first.append(_report(prompt, answer))
        return first[0]

    return report


def _each_as(made: Callable[[int], object]) -> UsageReport:
    """The report with each of its numbers made something else."""

    def report(prompt: int, answer: int, _: int) -> Body:
        whole = _report(prompt, answer)
        details = {key: made(value) for key, value in whole.pop("prompt_tokens_details").items()}
        return {key: made(value) for key, value in whole.items()} | {"prompt_tokens_details": details}

    return report


def _overcached(prompt: int, answer: int, _: int) -> Body:
    return _report(prompt, answer) | {"prompt_tokens_details": {"cached_tokens": prompt * 3}}


def usage_report(name: str) -> UsageReport:
    """The report of that name, among them unasked: in a stream also where nobody asked for it."""
    reports: dict[str, UsageReport] = {
        "right": lambda prompt, answer, _: _report(prompt, answer),
        "unasked": lambda prompt, answer, _: _report(prompt, answer),
        "absent": lambda prompt, answer, _: None,
        "zeros": lambda prompt, answer, _: _report(0, 0),
        "output-only": lambda prompt, answer, _: {"completion_tokens": answer},
        "first-only": lambda prompt, answer, number: _report(prompt, answer) if number == 1 else None,
        "half": lambda prompt, answer, _: _report(prompt // 2, answer // 2),
        "double": lambda prompt, answer, _: _report(prompt * 2, answer * 2),
        "cumulative": _cumulative(),
        "stale": _stale(),
        "standing": _standing(),
        "negative": _each_as(lambda number: -number - 1),
        "huge": _each_as(lambda number: 10**12 + number),
        "strings": _each_as(str),
        "floats": _each_as(float),
        "nulls": _each_as(lambda number: None),
        "true": _each_as(bool),
        "a list": _each_as(lambda number: [number]),
        "no object": lambda prompt, answer, _: cast("Body", [prompt, answer]),
        "overcached": _overcached,
    }
    return reports[name]


Overflowing: TypeAlias = Callable[[int, int, int], Answered]
"""The refusal for a window, the prompt's tokens and the answer's."""


def _error(status: int, message: str, **fields: Any) -> Fault:
    return Fault(status=status, body={"error": {"message": message} | fields})


OVERFLOWS: dict[str, Overflowing] = {
    "openai": lambda window, prompt, answer: _error(
        400,
        f"This model's maximum context length is {window} tokens. However, your messages came to "
        f"{prompt + answer} tokens: you requested {prompt + answer} tokens.",
        type="invalid_request_error",
        param="messages",
        code="context_length_exceeded",
    ),
    "openrouter": lambda window, prompt, answer: _error(
        400,
        f"This endpoint's maximum context length is {window} tokens. However, you requested about "
        f"{prompt + answer} tokens ({prompt} of text input, 0 of tool input, {answer} in the output).",
        code=400,
    ),
    "vllm": lambda window, prompt, answer: Fault(
        status=400,
        body={
            "object": "error",
            "message": f"This model's maximum context length is {window} tokens. However, you requested "
            f"{prompt + answer} tokens ({prompt} in the messages, {answer} in the completion).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "llamacpp": lambda window, prompt, answer: _error(
        400,
        "the request does not fit the slot",
        code=400,
        type="exceed_context_size_error",
        n_prompt_tokens=prompt,
        n_ctx=window,
    ),
    "llamacpp-500": lambda window, prompt, answer: _error(
        500,
        "the request does not fit the slot",
        code=500,
        type="exceed_context_size_error",
        n_prompt_tokens=prompt,
        n_ctx=window,
    ),
    "llamacpp-bare": lambda window, prompt, answer: _error(
        500, "the request exceeds the available context size", code=500, type="server_error"
    ),
    "anthropic": lambda window, prompt, answer: _error(
        400, f"prompt is too long: {prompt + answer} tokens > {window} maximum", type="invalid_request_error"
    ),
    "anthropic-sum": lambda window, prompt, answer: _error(
        400, f"input length and `max_tokens` exceed context limit: {prompt} + {answer} > {window}"
    ),
    "gemini": lambda window, prompt, answer: Fault(
        status=400,
        body=[
            {
                "error": {
                    "code": 400,
                    "message": f"The input token count ({prompt + answer}) exceeds the maximum number of "
                    f"tokens allowed ({window}).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    "glm": lambda window, prompt, answer: _error(400, "Prompt exceeds max length", code="1261"),
    "http-413": lambda window, prompt, answer: Fault(
        status=413, body="<html>Request Entity Too Large</html>"
    ),
    "stream-error": lambda window, prompt, answer: events(
        {
            "error": {
                "message": f"request ({prompt + answer} tokens) exceeds the context size ({window} tokens)"
            }
        },
        done=False,
    ),
    "error-object": lambda window, prompt, answer: Fault(
        status=200,
        body={
            "error": {"message": "Your input exceeds the context window", "code": "context_length_exceeded"}
        },
    ),
    "bare-500": lambda window, prompt, answer: Fault(status=500, body="Internal Server Error"),
}


def _call_body(call: Call, arguments: str) -> Body:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
