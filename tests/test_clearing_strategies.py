"""Cuts that cover nothing: old results shown shortened."""

from dataclasses import replace

from agentloop.context import Context
from agentloop.events import Record, Restored
from agentloop.messages import Message, ToolCall
from agentloop.strategies import (
    ClearResults,
    Tiered,
)
from tests.kit import added, context_of, records_of
from tests.turns_kit import ROOM, carried_out, shown


def results(*lengths: int, last: int = 1) -> list[Message]:
    """Exchanges with results of so many words, and an answer."""
    messages: list[Message] = []
    for number, words in enumerate(lengths):
        call = ToolCall(id=f"call_{number}", name="read")
        messages += [Message.assistant(None, [call]), Message.tool(call.id, "word " * words)]
    return [*messages, *[Message.assistant("done")] * last]


def test_clear_results_leaves_the_newest_tokens_alone() -> None:
    context = context_of(results(500, 500, 500, 500))
    tokens = context.visible[1].tokens
    cut = ClearResults(keep_tokens=2 * tokens, least_tokens=0)(context, ROOM)
    assert shown(cut) == dict.fromkeys((2, 4), "[Old tool result content cleared]")
    assert cut is not None
    assert cut.covers == ()
    closer = ClearResults(keep_tokens=2 * tokens - 1, least_tokens=0)(context, ROOM)
    assert list(shown(closer)) == [2, 4, 6]
    assert ClearResults(keep_tokens=2 * tokens, least_tokens=0)(carried_out(context, cut), ROOM) is None


def test_clear_results_waits_until_it_gains_enough() -> None:
    context = context_of(results(500, 500, 500))
    everything = ClearResults(keep_tokens=0, least_tokens=0)(context, ROOM)
    assert everything is not None
    gain = sum(context.visible[item.seq - 1].tokens - item.tokens for item in everything.cleared)
    assert ClearResults(keep_tokens=0, least_tokens=gain)(context, ROOM) == everything
    assert ClearResults(keep_tokens=0, least_tokens=gain + 1)(context, ROOM) is None


def test_clear_results_touches_neither_kept_nor_unread_nor_short_ones() -> None:
    events = [added(message) for message in results(500, 500, 1, 500, last=0)]
    events[1] = replace(events[1], keep=True)
    cut = ClearResults(keep_tokens=0, least_tokens=0)(Context.of(records_of(events)), ROOM)
    assert list(shown(cut)) == [4]


def test_what_is_shown_shortened_stays_so() -> None:
    context = context_of(results(500, 500))
    strip = Tiered(keep=1).steps[0]
    stubs = carried_out(context, strip(context, ROOM))
    assert ClearResults(keep_tokens=0, least_tokens=0)(stubs, ROOM) is None
    assert strip(stubs, ROOM) is None


def test_what_clearing_hid_comes_back_when_it_is_taken_back() -> None:
    context = context_of(results(500, 500))
    cut = ClearResults(keep_tokens=0, least_tokens=0)(context, ROOM)
    after = carried_out(context, cut)
    assert after.tokens < context.tokens
    assert [entry.original for entry in after.said] == [entry.original for entry in context.said]
    back = after.add(Record(seq=after.length + 1, event=Restored(seq=after.length)))
    assert list(back.messages) == list(context.messages)
