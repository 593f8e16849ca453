"""The fold: what the model sees now, and what it can be taken back to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.context import (
    ACKNOWLEDGED,
    REQUEST_OVERHEAD,
    SYSTEM_ROLES,
    TOLD_TO_GO_ON,
    Context,
    Growing,
    answers,
    clamped,
    count_request,
    estimate_tokens,
    says_nothing,
)
from agentloop.context.request import alternating, arranged, wire_messages
from agentloop.events import (
    Cleared,
    ClearedItem,
    Compacted,
    Event,
    MessageRecord,
    ModelCalled,
    Record,
    Restored,
    Unknown,
    holds,
    ranges_between,
)
from agentloop.messages import Message, Usage
from agentloop.models import ModelRequest
from agentloop.prompts import (
    ACKNOWLEDGEMENT_TOKENS,
    GO_ON_TOKENS,
    INTERRUPTED_TOKENS,
    SYSTEM_IN_LOG_TOKENS,
)
from agentloop.strategies import KeepRecentFraction
from tests.kit import BUDGET, COUNTER, added, context_of, histories, orderly, records_of


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """A log with overlays of all kinds in between."""
    events: list[Event] = []
    context = Context()
    for message in draw(st.one_of(histories, orderly())):
        for event in (added(message), *draw(st.lists(overlays(context), max_size=1))):
            events.append(event)
            context = context.add(Record(seq=len(events), event=event))
    return events


def overlays(context: Context) -> st.SearchStrategy[Event]:
    """Something that rewrites this context, or a record that means nothing to it."""
    results = [entry for entry in context.visible if entry.kind == "said" and entry.message.role == "tool"]
    choices: list[Event] = [
        Unknown(kind="later", body='{"v":1,"kind":"later"}'),
        ModelCalled(purpose="agent", model="m", counted=100, usage=Usage(input_tokens=120)),
    ]
    choices.extend(
        Cleared(items=(ClearedItem(seq=entry.seq, message=Message.tool("a", "short"), tokens=6),))
        for entry in results[:2]
    )
    for fraction in (0.1, 0.5):
        if cut := KeepRecentFraction(fraction)(context, BUDGET):
            choices.append(Compacted(covers=cut.covers, at=cut.at, replacement="what was", tokens=8))
    if context.compactions:
        choices.append(Restored(seq=context.compactions[-1][0]))
    return st.sampled_from(choices)


@pytest.mark.many(20)
@given(logs())
def test_l13_the_context_built_event_by_event_equals_the_one_built_from_scratch(events: list[Event]) -> None:
    records = records_of(events)
    grown = Context()
    for length, record in enumerate(records, 1):
        grown = grown.add(record)
        assert grown == Context.of(records[:length])


@pytest.mark.many(50)
@given(logs())
def test_l3_everything_ever_said_can_be_read_back(events: list[Event]) -> None:
    context = Context.of(records_of(events))
    messages = [event.message for event in events if isinstance(event, MessageRecord)]
    assert [entry.original for entry in context.said] == messages


@given(logs())
def test_the_first_message_and_the_task_are_known_whatever_hides_them(events: list[Event]) -> None:
    context = Context.of(records_of(events))
    assert context.first == next(iter(context.said), None)
    assert context.task == next((entry for entry in context.said if entry.is_user), None)


@given(orderly(), st.sampled_from([0.0, 0.2, 0.5]))
def test_l8_undo_gives_back_the_context_before_the_compaction(messages: list[Message], keep: float) -> None:
    before = context_of(messages)
    cut = KeepRecentFraction(keep)(before, BUDGET)
    if cut is None:
        return
    event = Compacted(covers=cut.covers, at=cut.at, replacement="what was", tokens=8)
    folded = before.add(Record(seq=before.length + 1, event=event))
    assert folded.visible != before.visible
    after = folded.add(Record(seq=before.length + 2, event=Restored(seq=before.length + 1)))
    assert after.visible == before.visible
    assert after.tokens == before.tokens


@given(orderly(), st.sampled_from([0.0, 0.2, 0.5]))
def test_l4_the_newest_user_message_stays_last_and_the_task_in_sight(
    messages: list[Message], keep: float
) -> None:
    context = context_of(messages)
    for _ in range(3):
        if cut := KeepRecentFraction(keep)(context, BUDGET):
            at = clamped(context, cut.at, BUDGET.task_tokens)
            event = Compacted(covers=cut.covers, at=at, replacement="what was", tokens=8)
            context = context.add(Record(seq=context.length + 1, event=event))
    users = [message for message in context.messages if message.role == "user"]
    assert users[-1] == next(message for message in reversed(messages) if message.role == "user")
    assert any(message == messages[0] for message in context.messages)


def length_sent(context: Context) -> int:
    """The tokens of the context's messages as a request holds them."""
    request = ModelRequest(messages=wire_messages(context.messages))
    return count_request(request, COUNTER) - REQUEST_OVERHEAD


MOST_OFF = 12
"""What a message may take beyond what was counted: the ids that a request gives its call and its result."""


@given(st.one_of(histories, orderly()))
def test_l9_no_request_is_longer_than_its_context_counts(messages: list[Message]) -> None:
    context = context_of(messages)
    calls = sum(len(message.tool_calls) for message in messages)
    assert length_sent(context) <= context.tokens + MOST_OFF * (calls + 1)


@given(orderly(), st.integers(0, 3))
def test_l9_what_nobody_said_is_counted_as_long_as_it_is(messages: list[Message], stopped: int) -> None:
    context = context_of([*messages, *(Message.user(f"and {number}") for number in range(stopped))])
    assert abs(length_sent(context) - context.tokens) <= 2 * (stopped + 1)


@given(histories)
def test_l9_what_requests_add_is_what_is_counted(messages: list[Message]) -> None:
    answered = answers(messages)
    missing = [
        call.id
        for at, places in answered.items()
        for call, place in zip(messages[at].tool_calls, places, strict=True)
        if place is None
    ]
    sent = list(alternating(arranged(messages)))
    spoken = any(message.role != "tool" and not says_nothing(message) for message in messages)
    assert context_of(messages).filler.tokens == (
        sum(INTERRUPTED_TOKENS + estimate_tokens(call_id) for call_id in missing)
        + sum(ACKNOWLEDGEMENT_TOKENS for message in sent if message is ACKNOWLEDGED)
        + sum(GO_ON_TOKENS for message in sent if message is TOLD_TO_GO_ON and spoken)
        + sum(SYSTEM_IN_LOG_TOKENS for message in messages if message.role in SYSTEM_ROLES)
    )


def test_a_summary_before_a_user_message_is_acknowledged_and_counted_so() -> None:
    context = context_of([Message.user("a"), Message.assistant("b"), Message.user("c")])
    event = Compacted(covers=((1, 2),), at=3, replacement="a and b", tokens=8)
    folded = context.add(Record(seq=4, event=event))
    sent = [message["role"] for message in wire_messages(folded.messages)]
    assert sent == ["user", "assistant", "user"]
    assert 0 <= folded.tokens - length_sent(folded) <= 2


def test_messages_of_a_branch_are_no_part_of_the_main_line() -> None:
    aside = MessageRecord(message=Message.user("aside"), tokens=4, branch="helper")
    context = Context.of(records_of([added(Message.user("a")), aside]))
    assert [message.text for message in context.messages] == ["a"]
    assert context.length == 2


def test_the_size_rests_on_the_providers_count_until_the_context_is_rewritten() -> None:
    reported = ModelCalled(
        purpose="agent", model="m", counted=BUDGET.fixed + 508, usage=Usage(input_tokens=900)
    )
    context = Context.of(records_of([MessageRecord(message=Message.user("hello"), tokens=508), reported]))
    grown = context.add(Record(seq=3, event=MessageRecord(message=Message.assistant("x"), tokens=50)))
    assert BUDGET.size(grown) == 900 + -(-50 * 900 // 608)
    assert BUDGET.measured(grown)
    cleared = Cleared(items=(ClearedItem(seq=3, message=Message.assistant("x"), tokens=5),))
    assert not BUDGET.measured(grown.add(Record(seq=4, event=cleared)))


def test_reports_that_cannot_be_true_are_ignored() -> None:
    for tokens in (0, 1, 50, 200, 90_000):
        reported = ModelCalled(purpose="agent", model="m", counted=100, usage=Usage(input_tokens=tokens))
        context = Context.of(records_of([added(Message.user("a")), reported]))
        assert context.anchor("m") is None, tokens


@given(st.lists(st.integers(), max_size=8), st.lists(st.integers(), max_size=4))
def test_growing_shares_without_being_seen_to(base: list[int], more: list[int]) -> None:
    first = Growing(base)
    left, right = first, first
    for item in more:
        left = left.plus(item)
        right = right.plus(-item)
    assert list(first) == base
    assert list(left) == base + more
    assert list(right) == base + [-item for item in more]
    assert left[len(base) :] == more


@given(st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60)))
def test_ranges_hold_what_they_must_and_nothing_kept(positions: set[int], others: set[int]) -> None:
    kept = others - positions
    ranges = ranges_between(positions, kept)
    assert all(holds(ranges, position) for position in positions)
    assert not any(holds(ranges, position) for position in kept)
    assert list(ranges) == sorted(ranges)
