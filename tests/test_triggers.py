"""Each trigger on both sides of its numbers, grown and folded alike, alone and combined, and in a run."""

import copy
import math
import pickle
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop._plumbing.remembered import MOST_REMEMBERED
from agentloop.compaction import Compaction
from agentloop.context import Context
from agentloop.errors import UsageError
from agentloop.events import Cleared, ClearedItem, Compacted, Event, MessageRecord, Record, Restored
from agentloop.messages import Message, ToolCall, text_of
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stream import CompactionStarted
from agentloop.testing import ScriptedModel
from agentloop.triggers import (
    Budget,
    Buffer,
    Every,
    Fired,
    Headroom,
    Idle,
    NeedsFollowUp,
    On,
    Overflow,
    TokenCount,
    Trigger,
    TurnCount,
    WindowFraction,
    all_of,
    any_of,
    not_,
    threshold_of,
)
from tests.kit import read, reading, records_of, watched
from tests.test_context import logs
from tests.test_costs import operations

HOUR = 3_600.0
CALLS = (ToolCall(id="a", name="read", arguments='{"path": "x"}'), ToolCall(id="b", name="read"))


def budget(fixed: int, *, window: int = 10_000, answer: int | None = None) -> Budget:
    return Budget(window=window, fixed=fixed, model="m", max_output_tokens=answer)


def said(*messages: Message, branch: str | None = None, tokens: int = 8, time: float = 0.0) -> list[Event]:
    return [MessageRecord(message=message, tokens=tokens, branch=branch, time=time) for message in messages]


def context_of(*parts: Iterable[Event]) -> Context:
    return Context.of(records_of([event for part in parts for event in part]))


def ask(text: str = "please") -> Message:
    return Message.user(text)


def answer(text: str = "done") -> Message:
    return Message.assistant(text)


def compaction(first: int, last: int, *, time: float = 0.0, said: str = "what was") -> list[Event]:
    return [Compacted(covers=((first, last),), replacement=said, at=last + 1, tokens=5, time=time)]


def why(trigger: Trigger, context: Context, limits: Budget | None = None) -> str | None:
    fired = trigger(context, limits or budget(100))
    return fired.why if fired else None


def always(context: Context, limits: Budget) -> Fired | None:
    """A plain function of a user's."""
    return Fired("always")


def never(context: Context, limits: Budget) -> Fired | None:
    """Another one."""
    return None


@pytest.mark.parametrize(
    ("trigger", "window", "most", "words"),
    [
        (WindowFraction(0.8), 10_000, 7_000, "tokens 7,001 > 7,000"),
        (WindowFraction(1.0), 10_000, 8_750, "tokens 8,751 > 8,750, all that fits"),
        (Headroom(), 10_000, 8_500, ": less than 5% of the window is left under its 90% mark"),
        (Headroom(at=0.95, below=0.05), 1_000_000, 900_000, ": less than 5% of the window is left"),
        (Headroom(at=1.0, below=0.025), 8_000, 7_000, "tokens 7,001 > 7,000, all that fits"),
        (Buffer(), 100_000, 80_000, ": less than 20,000 is left of the window of 100,000"),
        (Buffer(), 200_000, 160_000, ": less than 40,000 is left of the window of 200,000"),
        (Buffer(), 200_001, 180_001, ": less than 20,000 is left of the window of 200,001"),
        (Buffer(slack_tokens=500, large_window=1_000, share=0.5), 1_001, 501, "less than 500 is left"),
        (Buffer(slack_tokens=500, large_window=1_000, share=0.5), 1_000, 500, "less than 500 is left"),
        (Overflow(), 8_192, 7_168, "tokens 7,169 > 7,168, all that fits"),
    ],
)
def test_a_measure_of_the_window_fires_above_its_threshold(
    trigger: Trigger, window: int, most: int, words: str
) -> None:
    assert threshold_of(trigger, budget(0, window=window)) == most
    assert trigger(Context(), budget(most, window=window)) is None
    above = why(trigger, Context(), budget(most + 1, window=window))
    assert above is not None
    assert words in above
    assert above.startswith(f"tokens {most + 1:,} > {most:,}")


@pytest.mark.parametrize("trigger", [Headroom(), Buffer(), WindowFraction(1.0)], ids=repr)
def test_no_measure_of_the_window_waits_longer_than_what_fits(trigger: Trigger) -> None:
    large_answer = budget(0, window=300_000, answer=100_000)
    assert threshold_of(trigger, large_answer) == large_answer.limit == 200_000


def test_a_slack_larger_than_the_window_leaves_nothing() -> None:
    assert Buffer(slack_tokens=900, large_window=100).threshold(budget(0, window=200)) == 0


def test_the_one_number_is_measured_as_the_budget_sizes_it() -> None:
    context = context_of(said(ask(), tokens=400))
    limits = budget(100)
    size = limits.size(context)
    assert TokenCount(size)(context, limits) == Fired(f"tokens {size:,} >= {size:,}")
    assert TokenCount(size + 1)(context, limits) is None


@pytest.mark.parametrize(
    ("history", "complete"),
    [
        ([], 0),
        ([ask()], 0),
        ([ask(), answer()], 1),
        ([ask(), answer(), ask()], 1),
        ([ask(), Message.assistant("", CALLS)], 0),
        ([ask(), Message.assistant("", CALLS), Message.tool("a", "1"), Message.tool("b", "2")], 0),
        ([ask(), answer(), ask(), answer()], 2),
        ([ask(), ask(), answer()], 2),
        ([Message(role="system", content="be brief"), ask(), answer()], 1),
    ],
)
def test_only_complete_turns_count(history: list[Message], complete: int) -> None:
    context = context_of(said(*history))
    assert TurnCount(complete)(context, budget(100)) is None
    if complete:
        assert why(TurnCount(complete - 1), context) == f"complete turns {complete} > {complete - 1}"


def test_twenty_turns_do_not_fire_and_twenty_one_do() -> None:
    turns = said(*[ask(), answer()] * 20)
    assert TurnCount(20)(context_of(turns, said(ask())), budget(100)) is None
    assert why(TurnCount(20), context_of(turns, said(ask(), answer()))) == "complete turns 21 > 20"


def test_branches_and_summaries_start_no_turn() -> None:
    aside = said(ask("aside"), answer("aside"), branch="x")
    context = context_of(said(ask(), answer()), aside, said(ask(), answer()))
    assert why(TurnCount(1), context) == "complete turns 2 > 1"
    assert TurnCount(2)(context, budget(100)) is None
    folded = context_of(said(ask(), answer(), ask(), answer()), compaction(1, 2))
    assert why(TurnCount(0), folded) == "complete turns 1 > 0"
    pair = Compacted(covers=((1, 2),), replacement="?", answer="was", at=3, tokens=5, answer_tokens=2)
    assert TurnCount(1)(context_of(said(ask(), answer(), ask(), answer()), [pair]), budget(100)) is None


def test_a_turn_whose_answer_was_folded_is_complete_all_the_same() -> None:
    folded = Compacted(covers=((4, 4),), at=3, replacement="what was", tokens=5)
    context = context_of(said(ask(), answer(), ask(), answer()), [folded])
    assert context.messages[-1] == ask()
    assert why(TurnCount(0), context) == "complete turns 1 > 0"
    assert NeedsFollowUp()(context, budget(100)) is None


def test_a_counter_of_ones_own_counts_what_visible_messages_say() -> None:
    messages = [ask("12345"), Message.assistant("123", CALLS), Message.tool("a", "1234567")]
    whole = 5 + 3 + len('readread{"path": "x"}{}') + 7
    context = context_of(said(*messages))
    words = f"tokens {whole} >= {whole}, by the trigger's own counter"
    assert why(TokenCount(whole, counter=len), context) == words
    assert TokenCount(whole + 1, counter=len)(context, budget(100_000)) is None
    folded = context_of(said(*messages), compaction(2, 3, said="was"))
    assert why(TokenCount(8, counter=len), folded) == "tokens 8 >= 8, by the trigger's own counter"


def test_a_counter_that_counts_words_is_given_parts_of_text_and_no_image() -> None:
    parts = ({"type": "text", "text": "a b"}, {"type": "image_url", "image_url": {"url": "u"}})
    context = context_of(said(Message(role="user", content=parts)))
    counted = TokenCount(2, counter=lambda text: len(text.split()))
    assert why(counted, context) == "tokens 2 >= 2, by the trigger's own counter"


class Asked:
    """A counter that notes what it was asked about."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str, /) -> int:
        self.texts.append(text)
        return len(text)


def test_l14_a_counter_is_asked_about_what_is_new_alone() -> None:
    counter = Asked()
    trigger = TokenCount(1, counter=counter)
    context = context_of(said(*(ask(f"message {number}") for number in range(2_000))))
    trigger(context, budget(100))
    assert len(counter.texts) == 2_000
    context = context.add(Record(seq=context.length + 1, event=said(answer("new"))[0]))
    trigger(context, budget(100))
    assert counter.texts[2_000:] == ["new"]


def test_l14_no_text_is_counted_twice_over_rewrites_and_sessions() -> None:
    counter = Asked()
    trigger = TokenCount(1, counter=counter)
    messages = [ask("one"), Message.tool("a", "a long result"), answer("two"), ask("three")]
    cleared = Cleared(items=(ClearedItem(seq=2, message=Message.tool("a", "short"), tokens=1),))
    grown, other = Context(), context_of(said(ask("elsewhere"), answer("two")))
    for record in records_of([*said(*messages), cleared, *compaction(1, 2), Restored(seq=6)]):
        grown = grown.add(record)
        for context in (grown, other):
            trigger(context, budget(100))
    assert sorted(counter.texts) == sorted(set(counter.texts))
    assert {"short", "what was", "elsewhere"} < set(counter.texts)


def test_l14_a_check_looks_at_what_is_new_alone() -> None:
    looked: list[int] = []

    class Watched(Message):
        @property
        def text(self) -> str:
            looked.append(1)
            return super().text

    trigger, context = TokenCount(1, counter=len), Context()
    for record in records_of(said(*(Watched(role="user", content=str(n)) for n in range(500)))):
        context = context.add(record)
        trigger(context, budget(100))
    assert len(looked) == 500


def test_l14_no_trigger_does_more_in_a_long_session() -> None:
    counted = []
    for length in (100, 5_000):
        turns = said(*[ask(), answer()] * (length // 2), ask(), tokens=0)
        context, asked = context_of(turns), triggers(60, same_clock)
        grown = context.add(Record(seq=length + 2, event=said(ask())[0]))
        of_each = []
        for trigger in asked:
            trigger(context, budget(100))
            with operations() as of_the_check:
                trigger(grown, budget(100))
            of_each.append(of_the_check.total())
        counted.append(of_each)
    assert counted[0] == counted[1]
    assert 0 < max(counted[0]) < 100


@pytest.mark.deep
def test_what_is_remembered_of_texts_is_bounded() -> None:
    counter = Asked()
    trigger = TokenCount(10**9, counter=counter)
    for start in range(0, 3 * MOST_REMEMBERED, 4_096):
        trigger(context_of(said(*(ask(f"{number}") for number in range(start, start + 4_096)))), budget(1))
    first = context_of(said(ask("0")))
    asked = len(counter.texts)
    trigger(first, budget(1))
    assert counter.texts[asked:] == ["0"], "the oldest is forgotten"
    trigger(context_of(said(ask(f"{3 * MOST_REMEMBERED - 1}"))), budget(1))
    assert len(counter.texts) == asked + 1, "the newest is not"


def total(context: Context) -> int:
    """What a counter of characters says of a context, from scratch."""
    return sum(
        len(text_of(message.content))
        + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
        for message in context.messages
    )


@pytest.mark.many(20)
@given(st.lists(logs(), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_l13_one_tally_serves_all_sessions_and_every_version_of_them(
    histories: list[list[Event]], random: Any
) -> None:
    trigger = TokenCount(1, counter=len)
    versions = []
    for events in histories:
        versions.append(Context())
        for record in records_of(events):
            versions.append(versions[-1].add(record))
    random.shuffle(versions)
    for context in versions:
        count = total(context)
        words = f"tokens {count:,} >= 1, by the trigger's own counter" if count else None
        assert why(trigger, context) == words


def test_l13_two_futures_of_one_context_are_told_apart() -> None:
    trigger, limits = TokenCount(1, counter=len), budget(100)
    now = context_of(said(ask("a"), Message.tool("a", "result"), answer("b")))
    trigger(now, limits)
    futures = [
        now.add(Record(seq=4, event=event))
        for text in ("x", "xyz")
        for event in (
            *said(answer(text)),
            Cleared(items=(ClearedItem(seq=2, message=Message.tool("a", text), tokens=1),)),
            *compaction(1, 2, said=text),
        )
    ]
    for future in futures * 2:
        assert why(trigger, future) == f"tokens {total(future)} >= 1, by the trigger's own counter"


def test_structural_triggers_look_at_what_stands_newest() -> None:
    exchange = [ask(), Message.assistant("", CALLS), Message.tool("a", "1"), Message.tool("b", "2")]
    fires = {
        "nothing": (context_of(), {}),
        "asked": (
            context_of(said(ask())),
            {"message": "the user message at position 1 is new", "request": "the user asked at position 1"},
        ),
        "called": (
            context_of(said(*exchange[:2])),
            {"message": "the assistant message at position 2 is new"},
        ),
        "result": (
            context_of(said(*exchange)),
            {
                "message": "the tool message at position 4 is new",
                "result": "a tool's result came at position 4",
            },
        ),
        "compacted": (
            context_of(said(ask(), answer(), ask(), answer()), compaction(1, 2)),
            {"compaction": "a compaction was done at position 5 and nothing was said since"},
        ),
        "compacted with a result waiting": (
            context_of(said(*exchange), compaction(1, 1)),
            {
                "compaction": "a compaction was done at position 5 and nothing was said since",
                "result": "a tool's result came at position 4",
            },
        ),
        "all compacted": (
            context_of(said(ask(), answer()), compaction(1, 2)),
            {"compaction": "a compaction was done at position 3 and nothing was said since"},
        ),
        "said since": (
            context_of(said(ask(), answer()), compaction(1, 2), said(answer())),
            {"message": "the assistant message at position 4 is new"},
        ),
        "taken back": (
            context_of(said(ask(), answer()), compaction(1, 2), [Restored(seq=3)]),
            {"message": "the assistant message at position 2 is new"},
        ),
        "a branch spoke": (
            context_of(said(answer()), said(ask(), branch="x")),
            {"message": "the assistant message at position 1 is new"},
        ),
    }
    for name, (context, expected) in fires.items():
        found = {
            kind: words
            for kind in ("message", "result", "compaction", "request")
            if (words := why(On(kind), context))
        }
        assert found == expected, name


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([], None),
        ([ask()], "the user message at position 1 waits for the model"),
        ([ask(), answer()], None),
        ([ask(), Message.assistant("so", CALLS)], "2 calls wait for their results"),
        ([ask(), Message.assistant("so", CALLS), Message.tool("b", "")], "1 call waits for its result"),
        (
            [ask(), Message.assistant("so", CALLS), Message.tool("b", ""), Message.tool("a", "")],
            "the tool message at position 4 waits for the model",
        ),
        ([ask(), answer(), ask()], "the user message at position 3 waits for the model"),
    ],
)
def test_follow_up_is_needed_until_the_answer(history: list[Message], words: str | None) -> None:
    assert why(NeedsFollowUp(), context_of(said(*history))) == words


def test_every_fires_by_the_time_since_the_first_message_and_then_since_the_compaction() -> None:
    begun = context_of(said(ask(), answer(), time=1_000.0), said(ask(), time=4_000.0))
    compacted = context_of(said(ask(), answer(), ask(), time=1_000.0), compaction(1, 2, time=9_000.0))
    for context, since, words in (
        (begun, 1_000.0, "3,600.5 seconds since the first message >= 3,600"),
        (compacted, 9_000.0, "3,600.5 seconds since the last compaction >= 3,600"),
    ):
        assert why(Every(HOUR, clock=lambda since=since: since + HOUR - 0.5), context) is None
        assert why(Every(HOUR, clock=lambda since=since: since + HOUR), context) is not None
        assert why(Every(HOUR, clock=lambda since=since: since + HOUR + 0.5), context) == words
    assert why(Every(HOUR, clock=lambda: 1e12), Context()) is None


def test_every_forgets_a_compaction_that_was_taken_back() -> None:
    undone = context_of(
        said(ask(), answer(), time=1_000.0), compaction(1, 1, time=9_000.0), [Restored(seq=3)]
    )
    assert why(Every(HOUR, clock=lambda: 9_100.0), undone) == "8,100 seconds since the first message >= 3,600"


def test_idle_fires_by_the_time_since_the_newest_message_with_the_reason_idle() -> None:
    context = context_of(said(ask(), time=0.0), said(answer(), time=1_000.0))
    assert Idle(HOUR, clock=lambda: 1_000.0 + HOUR - 0.5)(context, budget(100)) is None
    fired = Idle(HOUR, clock=lambda: 1_000.0 + HOUR)(context, budget(100))
    assert fired == Fired("3,600 seconds without a message >= 3,600", reason="idle")
    assert Idle(HOUR, clock=lambda: 1e12)(Context(), budget(100)) is None


def test_idle_counts_the_pause_before_a_request_that_just_came() -> None:
    def came_back(after: float, *, newest: Message) -> Context:
        return context_of(said(ask(), answer(), time=1_000.0), said(newest, time=1_000.0 + after))

    def just_now(context: Context) -> Idle:
        return Idle(HOUR, clock=lambda: context.said[-1].time + 1)

    late, soon = came_back(HOUR, newest=ask()), came_back(HOUR - 1, newest=ask())
    assert why(just_now(late), late) == "3,600 seconds without a message >= 3,600"
    assert why(just_now(soon), soon) is None
    spoken = came_back(HOUR, newest=answer())
    assert why(just_now(spoken), spoken) is None, "the model has spoken since: the cache is warm"
    first = context_of(said(ask(), time=1_000.0))
    assert why(just_now(first), first) is None


def test_idle_leaves_a_pause_alone_in_which_a_compaction_was_done() -> None:
    trigger = Idle(HOUR, clock=lambda: 99_000.0)
    done = [*said(ask(), answer(), time=1_000.0), *compaction(1, 1, time=9_000.0)]
    assert why(trigger, context_of(done)) is None
    assert why(trigger, context_of(done, said(ask(), time=98_999.0))) is None
    assert why(trigger, context_of(done, said(ask(), answer(), time=9_500.0))) is not None


@pytest.mark.parametrize("now", [0.0, -1e300, math.nan, -math.inf])
def test_a_clock_that_runs_backwards_or_tells_no_time_never_fires(now: float) -> None:
    context = context_of(said(ask(), answer(), time=5_000.0), said(ask(), time=1_000.0))
    compacted = context_of(said(ask(), answer(), time=5_000.0), compaction(1, 1, time=4_000.0))
    for trigger in (Every(1, clock=lambda: now), Idle(1, clock=lambda: now)):
        assert why(trigger, context) is None
        assert why(trigger, compacted) is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), st.floats(0, 1e6), st.floats(1, 1e6))
def test_times_in_any_order_fire_only_after_that_long(times: list[float], now: float, seconds: float) -> None:
    context = context_of(*(said(ask(), time=time) for time in times))
    since_newest, before = now - times[-1], times[-1] - times[-2] if len(times) > 1 else 0.0
    idle = Idle(seconds, clock=lambda: now)(context, budget(100))
    assert (idle is not None) == (max(since_newest, before) >= seconds)
    every = Every(seconds, clock=lambda: now)(context, budget(100))
    assert (every is not None) == (now - times[0] >= seconds)


def test_any_of_joins_the_words_of_all_that_fire() -> None:
    either = any_of(TokenCount(80_000), never, TurnCount(0))
    context = context_of(said(ask(), answer()))
    assert why(either, context) == "complete turns 1 > 0"
    assert why(either, Context(), budget(90_000)) == "tokens 90,000 >= 80,000"
    both = why(either, context, budget(90_000))
    assert both == "tokens 90,016 >= 80,000 and complete turns 1 > 0"
    assert either(Context(), budget(100)) is None


def test_all_of_needs_every_part_and_asks_none_behind_one_that_keeps_still() -> None:
    asked: list[str] = []

    def part(name: str, fires: bool) -> Trigger:
        def ask(context: Context, limits: Budget) -> Fired | None:
            asked.append(name)
            return Fired(name) if fires else None

        return ask

    assert why(all_of(part("a", True), part("b", True)), Context()) == "a and b"
    assert why(all_of(part("c", True), part("d", False), part("e", True)), Context()) is None
    assert asked == ["a", "b", "c", "d"]


def test_not_fires_where_the_other_keeps_still() -> None:
    assert not_(always)(Context(), budget(100)) is None
    assert why(not_(never), Context()) == "not never"
    assert why(not_(TokenCount(4_000)), Context()) == "not TokenCount(tokens=4000)"


def test_the_reason_is_idle_where_any_part_of_it_is() -> None:
    context = context_of(said(ask(), answer(), time=1_000.0))
    idle = Idle(1, clock=lambda: 9_000.0)
    for combined in (any_of(always, idle), all_of(idle, always), any_of(never, all_of(idle))):
        fired = combined(context, budget(100))
        assert fired is not None
        assert fired.reason == "idle"
    fired = any_of(always, Idle(1, clock=lambda: 0.0))(context, budget(100))
    assert fired == Fired("always", reason="threshold")


def test_above_a_limit_while_the_turn_goes_on_is_one_line() -> None:
    trigger = all_of(TokenCount(4_000), any_of(NeedsFollowUp(), On("request")))
    ended = context_of(said(ask(), answer()))
    asked = context_of(said(ask(), answer(), ask()))
    assert trigger(ended, budget(4_000)) is None
    assert trigger(asked, budget(3_000)) is None
    fired = trigger(asked, budget(4_000))
    assert fired is not None
    assert fired.why.endswith(
        ">= 4,000 and the user message at position 3 waits for the model and the user asked at position 3"
    )
    assert threshold_of(trigger, budget(0)) == 4_000


class Own:
    """A user's trigger that keeps its threshold as a number."""

    threshold = 12

    def __call__(self, context: Context, limits: Budget, /) -> Fired | None:
        return None


@pytest.mark.parametrize(
    ("trigger", "threshold"),
    [
        (TokenCount(4_000), 4_000),
        (TokenCount(4_000, counter=len), None),
        (TurnCount(20), None),
        (On("message"), None),
        (NeedsFollowUp(), None),
        (Every(60), None),
        (Idle(60), None),
        (always, None),
        (Own(), None),
        (any_of(TokenCount(4_000), WindowFraction(0.8), Idle(60)), 4_000),
        (all_of(TokenCount(4_000), WindowFraction(0.8), NeedsFollowUp()), 7_000),
        (any_of(all_of(TokenCount(4_000), Overflow()), WindowFraction(0.8)), 7_000),
        (any_of(TurnCount(1), always), None),
        (all_of(TurnCount(1), always), None),
        (not_(TokenCount(4_000)), None),
    ],
)
def test_the_threshold_is_told_where_there_is_one(trigger: Trigger, threshold: int | None) -> None:
    assert threshold_of(trigger, budget(0)) == threshold


def triggers(seconds: float, clock: Callable[[], float]) -> list[Trigger]:
    """One of each, that say something of a small history."""
    return [
        WindowFraction(0.1),
        Headroom(at=0.3, below=0.2),
        Buffer(large_window=1_000, slack_tokens=9_000),
        Overflow(),
        TurnCount(1),
        TokenCount(900),
        TokenCount(200, counter=len),
        On("message"),
        On("result"),
        On("compaction"),
        On("request"),
        NeedsFollowUp(),
        Every(seconds, clock=clock),
        Idle(seconds, clock=clock),
        any_of(TurnCount(2), TokenCount(1_000)),
        all_of(NeedsFollowUp(), TokenCount(400, counter=len)),
        not_(On("request")),
        always,
    ]


@pytest.mark.many(20)
@given(logs(), st.floats(0, 100))
def test_l13_grown_or_folded_from_scratch_every_trigger_says_the_same(
    events: list[Event], seconds: float
) -> None:
    records, limits, grown = records_of(events), budget(300), Context()
    now = events[-1].time + 50 if events else 0.0
    kept = triggers(seconds + 1, lambda: now)
    for length, record in enumerate(records, 1):
        grown = grown.add(record)
        folded = Context.of(records[:length])
        fresh = triggers(seconds + 1, lambda: now)
        for trigger, other in zip(kept, fresh, strict=True):
            assert trigger(grown, limits) == other(folded, limits), trigger


def same_clock() -> float:
    return 1.0


def name_of(trigger: Trigger) -> str:
    """The trigger in short, without addresses: processes that share the tests must name them alike."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(trigger))[:40]


@pytest.mark.parametrize("trigger", triggers(60, same_clock), ids=name_of)
def test_triggers_are_values_that_can_be_compared_and_sent_elsewhere(trigger: Trigger) -> None:
    context = context_of(said(ask("please " * 300), answer()))
    fired = trigger(context, budget(300))
    for twin in (pickle.loads(pickle.dumps(trigger)), copy.deepcopy(trigger)):
        assert twin == trigger
        assert hash(twin) == hash(trigger)
        assert twin(context, budget(300)) == fired


def test_triggers_of_other_numbers_are_others() -> None:
    assert TokenCount(4_000) != TokenCount(4_001)
    assert TokenCount(4_000, counter=len) != TokenCount(4_000)
    assert any_of(always, never) != all_of(always, never)
    assert On("result") != On("message")


async def plain_but_async(context: Context, limits: Budget) -> Fired | None:
    return None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TokenCount(1, counter=5), "counter must be a function that gives the tokens of a text"),
        (lambda: Headroom(below=0.91), "below must be above 0 and at most 0.9, not 0.91"),
        (lambda: Headroom(at=0.5, below=0.6), "below must be above 0 and at most 0.5, not 0.6"),
        *((lambda kind=kind: kind(60, clock=1.0), "clock must be a function that gives seconds")
          for kind in (Every, Idle)),
        *((lambda kind=kind: kind(), "needs at least 1 trigger, not 0") for kind in (any_of, all_of)),
        *((lambda kind=kind: kind(plain_but_async), "a function of a context and a budget, no class and not")
          for kind in (any_of, all_of, not_)),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_with_name_and_range(make: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError) as raised:
        make()
    assert words in str(raised.value)
    assert isinstance(raised.value, ValueError)


async def compactions(
    trigger: Trigger, tmp_path: Path, *, prompts: int = 1, batches: int = 6
) -> list[CompactionStarted]:
    """What was started in runs that read files, one after the other in one session."""
    model = ScriptedModel(reading(batches) * prompts, window=16_000)
    agent = Agent(model, tools=[read], compaction=Compaction(trigger=trigger, micro=None))
    runner = Runner(agent, transcripts=tmp_path)
    events = [event for _ in range(prompts) for event in await watched(runner, "Read it all.")]
    return [event for event in events if isinstance(event, CompactionStarted)]


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (TurnCount(1), "complete turns 2 > 1"),
        (all_of(TokenCount(2_000), On("result")), "a tool's result came at position"),
        (all_of(TokenCount(2_000), NeedsFollowUp()), "waits for the model"),
        (TokenCount(3_000, counter=lambda text: len(text) // 4), ", by the trigger's own counter"),
        (Headroom(at=0.4, below=0.1), "less than 10% of the window is left under its 40% mark"),
        (Buffer(share=0.7), "less than 11,200 is left of the window of 16,000"),
        (any_of(Every(HOUR, clock=lambda: 1e12), never), "seconds since the first message >= 3,600"),
        (not_(never), "not never"),
    ],
)
async def test_a_run_says_why_it_compacts(trigger: Trigger, words: str, tmp_path: Path) -> None:
    started = await compactions(trigger, tmp_path, prompts=3)
    assert started
    assert words in started[0].why


@pytest.mark.parametrize(
    "trigger", [Idle(HOUR), TurnCount(20), On("compaction"), never, all_of(always, never)], ids=name_of
)
async def test_a_run_does_not_compact_before_its_trigger_fires(trigger: Trigger, tmp_path: Path) -> None:
    assert await compactions(trigger, tmp_path, prompts=2, batches=2) == []


async def test_a_run_after_a_long_pause_compacts_for_idleness(tmp_path: Path) -> None:
    started = await compactions(all_of(Idle(HOUR, clock=lambda: 1e12), TurnCount(0)), tmp_path, prompts=2)
    assert started
    assert "seconds without a message >= 3,600" in started[0].why
    assert started[0].reason == "idle"
