"""Which result answers which call: one rule for requests, cuts, digests and exports."""

from collections import deque
from collections.abc import Sequence

from agentloop.messages import Message


def answers(messages: Sequence[Message]) -> dict[int, list[int | None]]:
    """The places of the results of each message with calls, in call order; None where there is none.

    A result answers a call of the newest message before it that called by its id, wherever it stands. Of
    calls that share an id the first gets the first result. What is left over answers nothing.
    """
    found: dict[int, list[int | None]] = {}
    waiting: dict[str, deque[tuple[int, int]]] = {}
    for at, message in enumerate(messages):
        if message.role == "tool":
            if open_calls := waiting.get(message.tool_call_id or ""):
                asking, number = open_calls.popleft()
                found[asking][number] = at
        elif message.role == "assistant" and message.tool_calls:
            found[at] = [None] * len(message.tool_calls)
            waiting |= {call.id: deque() for call in message.tool_calls}
            for number, call in enumerate(message.tool_calls):
                waiting[call.id].append((at, number))
    return found
