"""A run against the strict provider with one tool that counts its calls, and what a watcher sees of it."""

from collections import Counter
from collections.abc import Sequence

from agentloop import Agent, Runner, tool
from agentloop.models import ChatModel, RetryPolicy
from agentloop.stores import InMemoryStore
from agentloop.stream import AnyStreamEvent, MessageAdded, Retrying, TextDelta
from tests.server_kit import Waits, chat
from tests.strict_provider import StrictProvider

ran: Counter[str] = Counter()
"""How often each path was looked at."""


@tool
def look(path: str = "nowhere") -> str:
    """Look at a file."""
    ran[path] += 1
    return f"seen {path}"


def looking(model: ChatModel, store: InMemoryStore | None = None) -> Runner:
    """A runner of this model with the tool; nothing was looked at yet."""
    ran.clear()
    return Runner(Agent(model, tools=[look]), store=store or InMemoryStore(), transcripts=None)


def runner_of(
    server: StrictProvider, *, stream: bool = True, attempts: int = 5, store: InMemoryStore | None = None
) -> Runner:
    """A runner that talks to this server; nothing was looked at yet."""
    retry = RetryPolicy(attempts=attempts, sleep=Waits())
    return looking(chat(server, retry=retry, stream=stream), store)


def watched_texts(events: Sequence[AnyStreamEvent]) -> list[str]:
    """What a watcher saw of each of the model's messages, by its deltas; a retry makes them void."""
    texts: list[str] = []
    so_far: list[str] = []
    for event in events:
        if isinstance(event, TextDelta):
            so_far.append(event.text)
        elif isinstance(event, Retrying):
            so_far.clear()
        elif isinstance(event, MessageAdded) and event.message.role == "assistant":
            texts.append("".join(so_far))
            so_far.clear()
    return texts
