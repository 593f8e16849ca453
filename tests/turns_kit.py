"""Contexts of turns, exchanges and runs, and cuts carried out on them."""

from collections.abc import Sequence
from dataclasses import replace

from agentloop.context import Budget, Context, clamped
from agentloop.events import Compacted, Record
from agentloop.messages import Message, ToolCall
from agentloop.strategies import (
    Cut,
    Note,
    Summary,
)
from tests.kit import BUDGET, COUNTER, added, records_of

ROOM = Budget(window=100_000, fixed=100, model="m", counter=COUNTER)


def turn(number: int) -> list[Message]:
    """Two messages: a request and its answer."""
    return [Message.user(f"request {number}"), Message.assistant(f"answer {number}")]


def exchange(number: int, *, width: int = 1, lines: int = 1) -> list[Message]:
    """A message with calls and its results."""
    calls = [ToolCall(id=f"call_{number}_{at}", name="read") for at in range(width)]
    text = "".join(f"line {line} of {number}\n" for line in range(lines))
    return [Message.assistant(None, calls), *(Message.tool(call.id, text) for call in calls)]


def in_runs(**runs: Sequence[Message]) -> Context:
    """A context of runs, by their ids."""
    events = [replace(added(message), run_id=run) for run, messages in runs.items() for message in messages]
    return Context.of(records_of(events))


def carried_out(context: Context, cut: Cut | None) -> Context:
    """The context after this cut, as its record would make it."""
    assert cut is not None
    shadow = cut.instead.shadow if isinstance(cut.instead, Summary) else None
    event = Compacted(
        covers=cut.covers,
        at=place(context, cut),
        replacement=shadow or "what was",
        tokens=16 if shadow else 8,
        answer="what was" if shadow else "",
        answer_tokens=8 if shadow else 0,
        made="note" if isinstance(cut.instead, Note) else "summary",
        cleared=cut.cleared,
    )
    return context.add(Record(seq=context.length + 1, event=event))


def place(context: Context, cut: Cut) -> int:
    """Where what stands instead comes to stand."""
    return clamped(context, cut.at, BUDGET.task_tokens)


def grown(context: Context, *messages: Message, run: str = "") -> Context:
    """The context with more said."""
    events = [replace(added(message), run_id=run) for message in messages]
    return context.add(*(Record(seq=context.length + at, event=event) for at, event in enumerate(events, 1)))


def said(*parts: Sequence[Message]) -> list[Message]:
    """The parts in one list."""
    return [message for part in parts for message in part]


def turns(count: int) -> list[Message]:
    """So many short turns."""
    return said(*(turn(number) for number in range(count)))


def seen(context: Context) -> list[int]:
    """The positions in sight; those of records for what stands instead."""
    return [entry.seq for entry in context.visible]


def shown(cut: Cut | None) -> dict[int, str]:
    """The texts that a cut shows results as."""
    return {item.seq: item.message.text for item in cut.cleared} if cut else {}
