"""Doubles for tests of what is built on agentloop: models that say what a test wants them to say.

They take requests and give parts as a real model does, so a test looks at what was sent (`requests`)
and at what came out, and needs no patching.
"""

import inspect
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeAlias

from agentloop._plumbing.amounts import named_tokens, named_tokens_or_none
from agentloop._plumbing.checks import whole_or_none
from agentloop.context import TokenCounter, counter_for
from agentloop.errors import UsageError
from agentloop.messages import Message, ToolCall
from agentloop.models import Answer, ChatModel, ModelPart, ModelRequest
from agentloop.providers import admitted, answer_of, streamed

Reply: TypeAlias = (
    str
    | Message
    | Sequence[ToolCall]
    | Answer
    | BaseException
    | Callable[[ModelRequest], "Reply | Awaitable[Reply]"]
)
"""What a scripted model may say: text, a message, calls, a whole answer, an error to raise, or a function
of the request, sync or async, that gives any of these."""

_numbers = itertools.count(1)


class ScriptUsedUpError(AssertionError):
    """A scripted model was asked more often than the test foresaw."""


def calls(*pairs: tuple[str, Mapping[str, Any]], **named: Mapping[str, Any]) -> list[ToolCall]:
    """Tool calls with fresh ids: `calls(("read_file", {"path": "a"}), add={"a": 2, "b": 3})`.

    The ids are all as long, so that a request counts the same however many were made before in the process.
    """
    pairs = (*pairs, *named.items())
    asked = ((name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in pairs)
    return [ToolCall(id=f"call_{next(_numbers):06d}", name=name, arguments=text) for name, text in asked]


class ScriptedModel:
    """Answers with the given replies in order and keeps every request it got in `requests`.

    Requests for a summary or a memory do not use up the script: `summary` and `memory` answer them, by
    default with a short text that is another each time, and with nothing. With a `window`, in tokens or as
    "8k", larger requests are refused as a server refuses them; a refused request uses up no reply. `usage`
    says whether answers report their own count of tokens.

    Raises, when asked:
        ScriptUsedUpError: no reply is left.
        ContextTooLongError: the request and the output it asks for exceed `window`.
    """

    def __init__(
        self,
        answers: Iterable[Reply],
        *,
        window: int | str | None = None,
        name: str = "scripted",
        usage: bool = True,
        max_output_tokens: int | None = None,
        summary: Reply | None = None,
        memory: Reply = "",
    ) -> None:
        whole_or_none("max_output_tokens", max_output_tokens, 1)
        self.name = name
        self.window = named_tokens_or_none("window", window)
        self.max_output_tokens = max_output_tokens
        self.requests: list[ModelRequest] = []
        self._answers = iter(answers)
        self._given = 0
        self._usage = usage
        self._summary = summary
        self._memory = memory

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r}, window={self.window})"

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """The next reply: its text word by word, then the whole."""
        self.requests.append(request)
        counter = counter_for(self.name)
        tokens = admitted(request, self.window, counter)
        reply = await _settled(self._reply(request), request)
        for part in streamed(reply if isinstance(reply, Answer) else self._answer(reply, tokens, counter)):
            yield part

    def _answer(self, reply: Reply, tokens: int, counter: TokenCounter) -> Answer:
        answer = answer_of(_message(reply), tokens, counter)
        return answer if self._usage else replace(answer, usage=None)

    def _reply(self, request: ModelRequest) -> Reply:
        if request.purpose == "summary":
            number = sum(each.purpose == "summary" for each in self.requests)
            default = f"Record {number}: the conversation so far was about what the user asked first."
            return default if self._summary is None else self._summary
        if request.purpose == "memory":
            return self._memory
        for reply in self._answers:
            self._given += 1
            return reply
        raise ScriptUsedUpError(
            f"the script of model {self.name!r} had {self._given} answers and was asked for one more; "
            f"the last message it was sent: {str(dict(request.messages[-1]))[:200]}"
        )


class FailingModel:
    """Raises `error` at every request, or at the first `times` of them and then answers as `then` does.

    Every request is kept in `requests`. `window` is what it says of itself, in tokens or as "8k"; by default
    what `then` says.
    """

    def __init__(
        self,
        error: BaseException,
        *,
        times: int | None = None,
        then: ChatModel | None = None,
        window: int | str | None = None,
    ) -> None:
        if (times is None) != (then is None):
            raise UsageError("a failing model that stops failing needs both: times=… and then=…, a model")
        whole_or_none("times", times, 0)
        self.name = then.name if then else "failing"
        self.window = (then.window if then else None) if window is None else named_tokens("window", window)
        self.max_output_tokens = then.max_output_tokens if then else None
        self.requests: list[ModelRequest] = []
        self._error = error
        self._times = times
        self._then = then

    def __repr__(self) -> str:
        return f"FailingModel({type(self._error).__name__}, window={self.window})"

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """The error while it is to come, else what the other model says."""
        self.requests.append(request)
        if self._then is None or self._times is None or len(self.requests) <= self._times:
            raise self._error
        async with aclosing(self._then.stream(request)) as parts:
            async for part in parts:
                yield part


async def _settled(reply: Reply | Awaitable[Reply], request: ModelRequest) -> Reply:
    while True:
        if isinstance(reply, BaseException):
            raise reply
        if inspect.isawaitable(reply):
            reply = await reply
        elif callable(reply):
            reply = reply(request)
        else:
            return reply


def _message(reply: Reply) -> Message:
    match reply:
        case Message():
            return reply
        case str():
            return Message.assistant(reply)
        case [*found] if found and all(isinstance(call, ToolCall) for call in found):
            return Message.assistant(None, found)
    raise UsageError(
        f"a scripted answer must be text, a Message, tool calls, an Answer, an exception or a function "
        f"that gives one of these, not {reply!r}"
    )
