"""What to do next, read from the log alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from agentloop.entries import Entry
from agentloop.messages import Message, ToolCall
from agentloop.unsaid import says_nothing


@dataclass(frozen=True, slots=True)
class AskModel:
    """The model is to speak."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """These calls have no result yet, in call order."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """The model has answered."""

    answer: str


Step: TypeAlias = AskModel | RunTools | Finish


def next_step(messages: Sequence[Message]) -> Step:
    """The one thing to do next; looks back no further than the newest message that is no tool result.

    A model that answered with neither text nor call is asked again.
    """
    results: list[Message] = []
    for message in reversed(messages):
        if message.role == "tool":
            results.append(message)
        elif message.role != "assistant":
            return AskModel()
        elif calls := unanswered(message, results):
            return RunTools(calls)
        else:
            return AskModel() if message.tool_calls or says_nothing(message) else Finish(message.text)
    return AskModel()


def unanswered(message: Message, results: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls of `message` that none of `results` answers; an id called twice wants two results."""
    answered = [result.tool_call_id or "" for result in results]
    open_calls = []
    for call in message.tool_calls:
        if call.id in answered:
            answered.remove(call.id)
        else:
            open_calls.append(call)
    return tuple(open_calls)


def partial_answer(visible: Sequence[Entry]) -> str:
    """What there is of an answer: the newest text that the model said to the newest user message."""
    since = takewhile(lambda entry: not entry.is_user, reversed(visible))
    said = (entry for entry in since if entry.kind == "said" and entry.message.role == "assistant")
    return next((entry.message.text for entry in said if entry.message.text.strip()), "")
