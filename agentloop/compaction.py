"""Compaction by itself: the policy, its parts and results, and a function for any list of messages.

`compact_messages` and `compact_messages_async` need no runner, no session and no store.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from agentloop._plumbing.checks import named_tokens
from agentloop.callbacks import Callbacks, Focus, Replace, Veto
from agentloop.compactor import Compactor
from agentloop.context import (
    REQUEST_OVERHEAD,
    Budget,
    Context,
    TokenCounter,
    count_message,
    counter_for,
    wire_messages,
)
from agentloop.earlier_records import as_log
from agentloop.emitter import CALLBACK_SECONDS, Watch, unseen
from agentloop.guard import Guard
from agentloop.ladder import Ladder
from agentloop.messages import Json, Message
from agentloop.models import ChatModel
from agentloop.plans import Occasion
from agentloop.policy import Compaction
from agentloop.results import CompactionPreview
from agentloop.sessions import Session
from agentloop.stores import InMemoryStore
from agentloop.strategies import (
    CapToolText,
    Chain,
    Digest,
    DropAgentItems,
    DropOldest,
    FirstOf,
    KeepRecentFraction,
    LastLines,
    Lines,
    MarkOldResults,
    MicroCompact,
    Note,
    RecursiveSummary,
    Replaced,
    Strategy,
    Summary,
    Trim,
)
from agentloop.stream import CompactionRequest, CompactionResult
from agentloop.triggers import Trigger

__all__ = [
    "Budget",
    "Callbacks",
    "CapToolText",
    "CompactedMessages",
    "Compaction",
    "CompactionPreview",
    "CompactionRequest",
    "CompactionResult",
    "Context",
    "Digest",
    "DropAgentItems",
    "DropOldest",
    "Focus",
    "Guard",
    "LastLines",
    "Lines",
    "MarkOldResults",
    "MicroCompact",
    "Note",
    "Replace",
    "Summary",
    "Trim",
    "Veto",
    "compact_messages",
    "compact_messages_async",
]


class CompactedMessages(list[Json]):
    """Chat-completions messages, valid for a strict provider; `results` says what was done to them."""

    def __init__(self, messages: Iterable[Json], results: Iterable[CompactionResult] = ()) -> None:
        super().__init__(messages)
        self.results = tuple(results)


def compact_messages(
    messages: Iterable[Mapping[str, Any]],
    strategy: Strategy | None = None,
    *,
    window: int | str,
    model: ChatModel | None = None,
    trigger: Trigger | None = None,
    focus: str | None = None,
    callbacks: Iterable[Callbacks] = (),
) -> CompactedMessages:
    """A list of chat-completions messages compacted by a strategy; the list given is left as it is.

    `window` is what the model takes, in tokens or as `"128k"`: what comes out fits it with room for an
    answer, whatever the strategy does. `model` writes summaries; without one a digest is computed. With a
    `trigger` nothing is done unless it fires. A system message at the head, the newest user message and
    whole exchanges stay. What comes out may grow and be given again: the record in it is then updated, and
    taken for nothing that a user said. It may be called with and without a running event loop.

    Example:
        >>> from agentloop.strategies import SlidingWindow
        >>> chat = [{"role": "user", "content": f"question {n}"} for n in range(30)]
        >>> len(compact_messages(chat, SlidingWindow(4), window="8k")) < len(chat)
        True

    Raises:
        UsageError: the window is no size, or a message is no message.
        ContextOverflowError: the messages cannot be made to fit.
    """
    work = compact_messages_async(
        messages,
        strategy,
        window=window,
        model=model,
        trigger=trigger,
        focus=focus,
        callbacks=callbacks,
    )
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


async def compact_messages_async(
    messages: Iterable[Mapping[str, Any]],
    strategy: Strategy | None = None,
    *,
    window: int | str,
    model: ChatModel | None = None,
    trigger: Trigger | None = None,
    focus: str | None = None,
    callbacks: Iterable[Callbacks] = (),
) -> CompactedMessages:
    """The same as `compact_messages`, awaited."""
    counter = counter_for(model.name if model else "")
    budget = Budget(
        window=named_tokens("window", window),
        fixed=REQUEST_OVERHEAD,
        model=model.name if model else "",
        max_output_tokens=model.max_output_tokens if model else None,
        counter=counter,
    )
    policy = Compaction(micro=None, trigger=trigger, strategy=strategy or KeepRecentFraction())
    session = await _session_of(messages, counter, _shadows(policy.strategy))
    watch = Watch(session.id, "", unseen, tuple(callbacks), CALLBACK_SECONDS)
    compactor = Compactor(counter=counter, transcripts=None, watch=watch)
    ladder = Ladder(policy=policy, model=model, compactor=compactor)
    with closing(watch.callback_list):
        if trigger is None or trigger(session.context, budget):
            occasion = Occasion(reason="manual", why="asked for", focus=focus)
            session, _ = await ladder.carry_out(session, budget, occasion)
        if not budget.fits(session.context):
            session = await ladder.climb(session, budget, Occasion(reason="threshold", why="it does not fit"))
    shown = session.context.messages
    return CompactedMessages(wire_messages(shown) if shown else (), ladder.outcomes)


async def _session_of(
    messages: Iterable[Mapping[str, Any]], counter: TokenCounter, shadows: Iterable[str]
) -> Session:
    said = [Message.from_openai(message) for message in messages]
    session = await Session.open("messages", InMemoryStore())
    events = as_log(said, lambda message: count_message(message, counter), shadows=frozenset(shadows))
    return await session.append(*events)


def _shadows(strategy: Strategy) -> Iterator[str]:
    """The questions of its own that this strategy shows a user to have asked."""
    match strategy:
        case RecursiveSummary(shadow=str(shadow)) | Replaced(instead=Summary(shadow=str(shadow))):
            yield shadow
        case Chain(steps=steps) | FirstOf(choices=steps):
            for step in steps:
                yield from _shadows(step)
