"""Which result answers which call, and what requests hold that nobody said.

Strict providers want user and assistant by turns, a user first, and a result for every call. Where a user
speaks after a user or after results, an assistant acknowledges; where an assistant speaks after an
assistant or first, a user tells it to go on; a call without a result is answered as interrupted. Each is
decided by what stands before, so that a message added changes nothing that was sent. There is one rule for
building such requests and for counting them.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeVar

from agentloop.context.parts import speaks
from agentloop.context.tokens import estimate_tokens
from agentloop.messages import Message, SeenMessage, ToolCall
from agentloop.prompts import (
    ACKNOWLEDGEMENT,
    ACKNOWLEDGEMENT_TOKENS,
    GO_ON,
    GO_ON_TOKENS,
    INTERRUPTED,
    INTERRUPTED_TOKENS,
    SYSTEM_IN_LOG_TOKENS,
)


def answers(messages: Sequence[Message]) -> dict[int, list[int | None]]:
    """The places of the results of each message with calls, in call order; None where there is none.

    A result answers as `WaitingCalls` says. What is left over answers nothing: it repeats another, or its
    call is not there, or not before it.
    """
    found: dict[int, list[int | None]] = {}
    waiting = WaitingCalls()
    for at, message in enumerate(messages):
        if message.role == "tool":
            if answered := waiting.answered_by(message):
                asking, number = answered
                found[asking][number] = at
        elif message.role == "assistant" and message.tool_calls:
            found[at] = [None] * len(message.tool_calls)
            waiting.add(at, message)
    return found


class WaitingCalls:
    """The calls so far that have no result yet.

    A result answers the newest message before it with a call by its id that still waits, wherever it stands;
    of calls in one message that share an id the first gets the first result.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, list[deque[tuple[int, int]]]] = {}

    def add(self, at: int, message: Message) -> None:
        """Wait for the results of the calls of the message at this place."""
        for call_id, numbers in _by_id(message).items():
            self._by_id.setdefault(call_id, []).append(deque((at, number) for number in numbers))

    def answered_by(self, result: Message) -> tuple[int, int] | None:
        """The call that it answers, by the place of its message and its own there; it waits no more."""
        batches = self._by_id.get(result.tool_call_id or "")
        if not batches:
            return None
        answered = batches[-1].popleft()
        if not batches[-1]:
            batches.pop()
        return answered


def _by_id(message: Message) -> dict[str, list[int]]:
    """Which of the message's calls have each id."""
    if len(message.tool_calls) == 1:
        return {message.tool_calls[0].id: [0]}
    numbers: dict[str, list[int]] = {}
    for number, call in enumerate(message.tool_calls):
        numbers.setdefault(call.id, []).append(number)
    return numbers


def results_of(tool: str, said: Sequence[SeenMessage]) -> Iterator[tuple[ToolCall, SeenMessage]]:
    """The calls of that tool which have a result, with it, the newest first."""
    for at, places in reversed(answers([each.message for each in said]).items()):
        pairs = zip(said[at].message.tool_calls, places, strict=True)
        for call, place in reversed(list(pairs)):
            if call.name == tool and place is not None:
                yield call, said[place]


class _Said(Protocol):
    """What was said, with more about it."""

    @property
    def message(self) -> Message: ...


S = TypeVar("S", bound=_Said)


def newest_exchange(said: Sequence[S]) -> S | None:
    """The newest message that is no result, where it has calls: all results behind it are theirs."""
    newest = next((each for each in reversed(said) if each.message.role != "tool"), None)
    return newest if newest and newest.message.tool_calls else None


Voice: TypeAlias = Literal["nobody", "user", "results", "assistant"]
"""Who spoke last; an assistant's calls are followed by their results, wherever the log holds these."""

SYSTEM_ROLES = frozenset({"system", "developer"})

ACKNOWLEDGED = Message.assistant(ACKNOWLEDGEMENT)
TOLD_TO_GO_ON = Message.user(GO_ON)


@dataclass(frozen=True, slots=True, kw_only=True)
class FillerTokens:
    """What fillers take up between the messages seen so far, in `tokens`; `request` makes them.

    `voice` spoke last; `waiting` has, by their id, how many calls still wait for their result.
    """

    tokens: int = 0
    voice: Voice = "nobody"
    waiting: Mapping[str, int] = field(default_factory=dict)

    def after(self, messages: Iterable[Message]) -> "FillerTokens":
        """The same with these messages seen too; the work is that of the messages."""
        tokens, voice, waiting = self.tokens, self.voice, dict(self.waiting)
        for message in messages:
            if message.role == "tool":
                tokens -= _answered(message.tool_call_id or "", waiting)
            elif not says_nothing(message):
                tokens += _length_before(message, voice) + _asked(message, waiting)
                voice = voice_of(message)
        return FillerTokens(tokens=tokens, voice=voice, waiting=waiting)


def says_nothing(message: Message) -> bool:
    """Whether it is an assistant's with neither text nor call, which no provider takes."""
    return message.role == "assistant" and not message.tool_calls and not speaks(message.content)


def voice_of(message: Message) -> Voice:
    """Who has spoken once this message, which is no result, was said."""
    if message.role != "assistant":
        return "user"
    return "results" if message.tool_calls else "assistant"


def put_before(message: Message, voice: Voice) -> Message | None:
    """What must stand between what `voice` said and this message, which is no result; None for nothing."""
    if message.role == "assistant":
        return TOLD_TO_GO_ON if voice in ("nobody", "assistant") else None
    return ACKNOWLEDGED if voice in ("user", "results") else None


def interrupted(call_id: str) -> Message:
    """The result of a call that has none."""
    return Message.tool(call_id, INTERRUPTED)


def _length_before(message: Message, voice: Voice) -> int:
    label = SYSTEM_IN_LOG_TOKENS if message.role in SYSTEM_ROLES else 0
    match put_before(message, voice):
        case None:
            return label
        case Message(role="user"):
            return label + GO_ON_TOKENS
    return label + ACKNOWLEDGEMENT_TOKENS


def _asked(message: Message, waiting: dict[str, int]) -> int:
    if message.role != "assistant":
        return 0
    for call in message.tool_calls:
        waiting[call.id] = waiting.get(call.id, 0) + 1
    return sum(_length_of_result(call.id) for call in message.tool_calls)


def _answered(call_id: str, waiting: dict[str, int]) -> int:
    if call_id not in waiting:
        return 0
    waiting[call_id] -= 1
    if not waiting[call_id]:
        del waiting[call_id]
    return _length_of_result(call_id)


def _length_of_result(call_id: str) -> int:
    return INTERRUPTED_TOKENS + estimate_tokens(call_id)
