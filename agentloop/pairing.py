"""Which result answers which call: one rule for requests, cuts, digests and exports."""

from collections import deque
from collections.abc import Sequence

from agentloop.messages import Message


def answers(messages: Sequence[Message]) -> dict[int, list[int | None]]:
    """The places of the results of each message with calls, in call order; None where there is none.

    A result answers the newest message before it with a call by its id that still waits, wherever it stands;
    of calls in one message that share an id the first gets the first result. What is left over answers
    nothing: it repeats another, or its call is not there, or not before it.
    """
    found: dict[int, list[int | None]] = {}
    waiting: dict[str, list[deque[tuple[int, int]]]] = {}
    for at, message in enumerate(messages):
        if message.role == "tool":
            if batches := waiting.get(message.tool_call_id or ""):
                asking, number = batches[-1].popleft()
                found[asking][number] = at
                if not batches[-1]:
                    batches.pop()
        elif message.role == "assistant" and message.tool_calls:
            found[at] = [None] * len(message.tool_calls)
            for call_id, numbers in _by_id(message).items():
                waiting.setdefault(call_id, []).append(deque((at, number) for number in numbers))
    return found


def _by_id(message: Message) -> dict[str, list[int]]:
    """Which of the message's calls have each id."""
    if len(message.tool_calls) == 1:
        return {message.tool_calls[0].id: [0]}
    numbers: dict[str, list[int]] = {}
    for number, call in enumerate(message.tool_calls):
        numbers.setdefault(call.id, []).append(number)
    return numbers
