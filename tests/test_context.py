"""The fold: what the model sees now, and what it can be taken back to."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agentloop.context import Context
from agentloop.events import (
    Cleared,
    ClearedItem,
    Compacted,
    Event,
    MessageAdded,
    ModelCalled,
    Record,
    Restored,
    Unknown,
)
from agentloop.growing import Growing
from agentloop.messages import Message, Usage
from agentloop.prompts import ACKNOWLEDGEMENT
from agentloop.ranges import holds, ranges_between
from agentloop.strategies import KeepRecentFraction
from tests.kit import BUDGET, added, context_of, histories, orderly, records_of


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
        Unknown(kind="later", body="{}"),
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


@given(logs())
def test_l13_the_context_built_event_by_event_equals_the_one_built_from_scratch(events: list[Event]) -> None:
    records = records_of(events)
    grown = Context()
    for length, record in enumerate(records, 1):
        grown = grown.add(record)
        assert grown == Context.of(records[:length])


@given(logs())
def test_l3_everything_ever_said_can_be_read_back(events: list[Event]) -> None:
    context = Context.of(records_of(events))
    messages = [event.message for event in events if isinstance(event, MessageAdded)]
    assert [entry.original for entry in context.said] == messages


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
def test_l4_the_newest_user_message_stays_last_and_roles_alternate(
    messages: list[Message], keep: float
) -> None:
    context = context_of(messages)
    for _ in range(3):
        if cut := KeepRecentFraction(keep)(context, BUDGET):
            event = Compacted(covers=cut.covers, at=cut.at, replacement="what was", tokens=8)
            context = context.add(Record(seq=context.length + 1, event=event))
    users = [message for message in context.messages if message.role == "user"]
    assert users[-1] == next(message for message in reversed(messages) if message.role == "user")
    assert any(message == messages[0] for message in context.messages)
    roles = [message.role for message in context.messages if message.role != "tool"]
    assert all(pair != ("user", "user") for pair in pairwise(roles))


def test_a_summary_before_a_user_message_is_acknowledged() -> None:
    context = context_of([Message.user("a"), Message.assistant("b"), Message.user("c")])
    event = Compacted(covers=((1, 2),), at=3, replacement="a and b", tokens=5)
    folded = context.add(Record(seq=4, event=event))
    assert [message.text for message in folded.messages] == ["a and b", ACKNOWLEDGEMENT, "c"]
    assert folded.tokens == sum(entry.tokens for entry in folded.visible)


def test_messages_of_a_branch_are_no_part_of_the_main_line() -> None:
    aside = MessageAdded(message=Message.user("aside"), tokens=4, branch="helper")
    context = Context.of(records_of([added(Message.user("a")), aside]))
    assert [message.text for message in context.messages] == ["a"]
    assert context.length == 2


def test_the_size_rests_on_the_providers_count_until_the_context_is_rewritten() -> None:
    reported = ModelCalled(
        purpose="agent", model="m", counted=BUDGET.fixed + 508, usage=Usage(input_tokens=900)
    )
    context = Context.of(records_of([MessageAdded(message=Message.user("hello"), tokens=508), reported]))
    grown = context.add(Record(seq=3, event=MessageAdded(message=Message.assistant("x"), tokens=50)))
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
