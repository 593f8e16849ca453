"""What each strategy covers and keeps, at both sides of its numbers, and what holds for all of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.budget import Budget
from agentloop.context import Context
from agentloop.events import Compacted, MessageAdded, Record
from agentloop.exchanges import clamped, may_go, protected, safe_cover, units_of
from agentloop.instead import Digest, Instead, Note, Summary
from agentloop.messages import Message, ToolCall
from agentloop.ranges import holds
from agentloop.strategies import (
    Chain,
    Cut,
    KeepRecentFraction,
    KeepRecentTurns,
    KeepUserMessages,
    SlidingWindow,
    Strategy,
    TokenWindow,
    TurnWindow,
    cut_before,
    first_of,
    replaced_by,
    strategy_name,
    then,
)
from agentloop.strategies.combining import FirstOf
from agentloop.wire import wire_messages
from tests.benchmarks.conversation import conversation
from tests.kit import added, histories, orderly, records_of
from tests.strict_rules import violations
from tests.test_costs import operations

BUDGET = Budget(window=8_000, fixed=100, model="m", max_output_tokens=1_000)
TOKENS = 10
NOTHING: list[int] = []


def calls(*ids: str) -> Message:
    return Message.assistant("", [ToolCall(id=each, name="read", arguments="{}") for each in ids])


def messages_of(script: str) -> list[Message]:
    """A message a letter: u a user's, a an assistant's, s a system one, c two calls, 1 and 2 their results.

    x is an exchange of two messages, p one of three, whose results came the other way round.
    """
    made: list[Message] = []
    for at, letter in enumerate(script):
        match letter:
            case "x":
                made += [calls(f"x{at}"), Message.tool(f"x{at}", "result")]
            case "p":
                made += [
                    calls(f"p{at}", f"q{at}"),
                    Message.tool(f"q{at}", "two"),
                    Message.tool(f"p{at}", "one"),
                ]
            case "c":
                made.append(calls("call_1", "call_2"))
            case "1" | "2":
                made.append(Message.tool(f"call_{letter}", "late"))
            case "s":
                made.append(Message(role="system", content="rules"))
            case _:
                made.append(Message.user("ask") if letter == "u" else Message.assistant("say"))
    return made


def grown(context: Context, script: str, *sizes: int) -> Context:
    """The context with these messages behind it, 10 tokens each where no sizes are given."""
    messages = messages_of(script)
    lengths = sizes or (TOKENS,) * len(messages)
    events = [
        MessageAdded(message=each, tokens=tokens) for each, tokens in zip(messages, lengths, strict=True)
    ]
    return context.add(
        *(Record(seq=seq, event=event) for seq, event in enumerate(events, context.length + 1))
    )


def said(script: str, *sizes: int) -> Context:
    return grown(Context(), script, *sizes)


def compacted(context: Context, cut: Cut, *, answer: str = "", tokens: int = TOKENS) -> Context:
    """The context with that cut carried out."""
    event = Compacted(
        covers=cut.covers,
        replacement="what stands instead",
        at=cut.at,
        tokens=tokens,
        answer=answer,
        answer_tokens=tokens // 2 if answer else 0,
        made="note" if isinstance(cut.instead, Note) else "summary",
    )
    return context.add(Record(seq=context.length + 1, event=event))


def summed_up(context: Context, first: int, last: int, *, answer: str = "", tokens: int = TOKENS) -> Context:
    return compacted(context, Cut(covers=((first, last),), at=last + 1), answer=answer, tokens=tokens)


def noted(context: Context, first: int, last: int) -> Context:
    return compacted(context, Cut(covers=((first, last),), at=last + 1, instead=Note()))


def covered(context: Context, strategy: Strategy, budget: Budget = BUDGET) -> list[int]:
    """The positions in sight that the strategy covers."""
    cut = strategy(context, budget)
    return [entry.seq for entry in context.visible if cut and holds(cut.covers, entry.seq)]


def place(context: Context, strategy: Strategy, budget: Budget = BUDGET) -> int | None:
    cut = strategy(context, budget)
    return cut.at if cut else None


def in_sight(context: Context, strategy: Strategy) -> list[str]:
    """What is in sight once the cut is made: positions of what was said, and the kinds of the rest."""
    cut = strategy(context, BUDGET)
    assert cut is not None
    after = compacted(context, cut)
    return [str(entry.seq) if entry.kind == "said" else entry.kind for entry in after.visible]


@pytest.mark.parametrize(
    ("script", "most", "gone", "at"),
    [
        ("uauaua", 6, NOTHING, None),
        ("uauaua", 5, [2], 3),
        ("uauaua", 4, [2], 3),
        ("uauaua", 3, [2, 3, 4], 5),
        ("uauaua", 2, [2, 3, 4], 5),
        ("uauaua", 1, [2, 3, 4], 5),
        ("suaua", 4, NOTHING, None),
        ("suaua", 2, [3], 4),
        ("sauaua", 2, [2, 4], 5),
        ("uxxxx", 9, NOTHING, None),
        ("uxxxx", 8, NOTHING, None),
        ("uxxxx", 7, [2, 3], 1),
        ("uxxxx", 6, [2, 3], 1),
        ("uxxxx", 1, [2, 3, 4, 5, 6, 7], 1),
        ("uaupppa", 11, [2], 3),
        ("uaupppa", 10, [2], 3),
        ("uaupppa", 9, [2, 4, 5, 6], 3),
        ("uaupppa", 7, [2, 4, 5, 6], 3),
        ("ucu1a2uxa", 10, NOTHING, None),
        ("ucu1a2uxa", 9, [2, 4, 6], 3),
        ("ucu1a2uxa", 6, [2, 4, 6], 3),
        ("ucu1a2uxa", 5, [2, 3, 4, 5, 6], 6),
        ("aaaa", 2, [1, 2], 3),
        ("", 1, NOTHING, None),
    ],
)
def test_a_sliding_window_keeps_the_last_messages_from_a_turn_start(
    script: str, most: int, gone: list[int], at: int | None
) -> None:
    context = said(script)
    assert covered(context, SlidingWindow(most)) == gone
    assert place(context, SlidingWindow(most)) == at


@pytest.mark.parametrize(
    ("script", "most", "gone", "at"),
    [
        ("uauxaua", 3, NOTHING, None),
        ("uauxaua", 2, [2], 3),
        ("uauxaua", 1, [2, 3, 4, 5, 6], 7),
        ("saauaua", 2, NOTHING, None),
        ("saauaua", 1, [5], 6),
        ("uxxxx", 1, NOTHING, None),
        ("ucu1a2ua", 2, [2, 4, 6], 3),
        ("aaaa", 1, NOTHING, None),
    ],
)
def test_a_turn_window_keeps_the_last_turns_and_what_stands_before_the_first(
    script: str, most: int, gone: list[int], at: int | None
) -> None:
    context = said(script)
    assert covered(context, TurnWindow(most)) == gone
    assert place(context, TurnWindow(most)) == at


@pytest.mark.parametrize(
    ("script", "most", "gone", "at"),
    [
        ("uauaua", 60, NOTHING, None),
        ("uauaua", 59, [2], 3),
        ("uauaua", 50, [2], 3),
        ("uauaua", 49, [2, 3], 4),
        ("uauaua", 30, [2, 3, 4], 5),
        ("uauaua", 1, [2, 3, 4], 5),
        ("suaua", 40, [3], 4),
        ("uxxxx", 70, [2, 3], 1),
        ("uxxxx", 69, [2, 3, 4, 5], 1),
        ("uappa", 60, [2, 3, 4, 5], 1),
        ("uappa", 50, [2, 3, 4, 5], 1),
        ("uappa", 49, [2, 3, 4, 5, 6, 7, 8], 1),
        ("aaaa", 20, [1, 2], 3),
    ],
)
def test_a_token_window_keeps_a_suffix_beside_what_must_stay(
    script: str, most: int, gone: list[int], at: int | None
) -> None:
    context = said(script)
    assert covered(context, TokenWindow(most)) == gone
    assert place(context, TokenWindow(most)) == at


def test_a_token_window_leaves_no_gap_before_what_is_too_large() -> None:
    context = said("uaaaua", 10, 10, 500, 10, 10, 10)
    assert covered(context, TokenWindow(60)) == [2, 3]
    assert covered(context, TokenWindow(530)) == [2, 3]
    assert covered(context, TokenWindow(540)) == [2]


def test_a_token_window_reads_sizes_as_people_write_them() -> None:
    assert TokenWindow("8k") == TokenWindow(8_000)
    assert covered(said("uauaua"), TokenWindow("50")) == [2]


def test_a_task_too_long_to_be_kept_goes_with_its_turn() -> None:
    context = said("uauaua", 801, 10, 10, 10, 10, 10)
    larger = replace(BUDGET, window=8_010)
    for strategy in (SlidingWindow(4), TurnWindow(2), TokenWindow(40)):
        assert covered(context, strategy) == [1, 2]
    for strategy in (SlidingWindow(4), TurnWindow(2), TokenWindow(841)):
        assert covered(context, strategy, larger) == [2]


@pytest.mark.parametrize(
    "answer", ["", "what an assistant says of it"], ids=["summary", "question and answer"]
)
def test_windows_keep_earlier_summaries(answer: str) -> None:
    context = grown(summed_up(said("uaua"), 2, 2, answer=answer), "uauaua")
    stands = ["note", "summary"] if answer else ["summary"]
    assert in_sight(context, SlidingWindow(4)) == ["1", *stands, "note", "8", "9", "10", "11"]
    assert in_sight(context, TurnWindow(2)) == ["1", *stands, "note", "8", "9", "10", "11"]
    assert in_sight(context, TokenWindow(60)) == ["1", *stands, "note", "8", "9", "10", "11"]


def test_summaries_are_free_of_charge_in_a_sliding_window_and_paid_first_in_a_token_window() -> None:
    context = grown(summed_up(said("uaua"), 2, 2, tokens=500), "ua")
    assert covered(context, SlidingWindow(5)) == NOTHING
    assert covered(context, TokenWindow(550)) == NOTHING
    assert covered(context, TokenWindow(549)) == [3]
    pair = grown(summed_up(said("uaua"), 2, 2, answer="said", tokens=500), "ua")
    assert covered(pair, TokenWindow(550)) == NOTHING
    assert covered(pair, TokenWindow(549)) == [3]


def test_earlier_notes_are_taken_in_by_the_next_one() -> None:
    context = grown(noted(said("uauaua"), 2, 2), "uaua")
    for strategy in (SlidingWindow(4), TurnWindow(2), TokenWindow(50)):
        assert covered(context, strategy) == [7, 3, 4, 5, 6]
        assert in_sight(context, strategy) == ["1", "note", "8", "9", "10", "11"]


def test_a_note_alone_is_nothing_to_drop() -> None:
    context = noted(said("uaua"), 2, 2)
    for strategy in (SlidingWindow(2), TurnWindow(1), TokenWindow(30)):
        assert strategy(context, BUDGET) is None


@pytest.mark.parametrize("strategy", [SlidingWindow(2), TurnWindow(1), TokenWindow(30)])
def test_windows_leave_a_note(strategy: Strategy) -> None:
    cut = strategy(said("uauaua"), BUDGET)
    assert cut is not None
    assert cut.instead == Note()


@pytest.mark.parametrize(
    ("sizes", "most", "gone"),
    [
        ((10, 10, 10, 10, 10, 10), 30, [2, 4]),
        ((10, 10, 10, 10, 10, 10), 20, [2, 4]),
        ((10, 10, 10, 10, 10, 10), 19, [2, 3, 4]),
        ((10, 10, 10, 10, 10, 10), 1, [2, 3, 4]),
        ((10, 10, 10, 10, 900, 10), 20, [2, 3, 4]),
        ((10, 10, 30, 10, 10, 10), 39, [2, 3, 4]),
        ((10, 10, 30, 10, 10, 10), 40, [2, 4]),
        ((900, 10, 10, 10, 10, 10), 919, [1, 2, 4]),
        ((900, 10, 10, 10, 10, 10), 920, [2, 4]),
    ],
)
def test_user_messages_stay_newest_first_up_to_the_cap(
    sizes: Sequence[int], most: int, gone: list[int]
) -> None:
    assert covered(said("uauaua", *sizes), KeepUserMessages(most)) == gone


def test_nothing_older_than_a_user_message_over_the_cap_stays() -> None:
    context = said("uauauaua", 10, 10, 10, 10, 500, 10, 10, 10)
    assert covered(context, KeepUserMessages(100)) == [2, 3, 4, 5, 6]


def test_the_summary_stands_between_the_user_messages_kept_and_the_live_request() -> None:
    assert in_sight(said("uauxaua"), KeepUserMessages()) == ["1", "3", "summary", "7", "8"]
    assert in_sight(said("uauu"), KeepUserMessages()) == ["1", "3", "summary", "4"]
    assert in_sight(said("uauxx"), KeepUserMessages()) == ["1", "summary", "3", "6", "7"]
    assert in_sight(said("uxxx"), KeepUserMessages()) == ["summary", "1", "6", "7"]
    assert in_sight(said("aaxa"), KeepUserMessages()) == ["summary", "5"]


def test_user_messages_alone_are_nothing_to_fold() -> None:
    assert KeepUserMessages()(said("uuuu"), BUDGET) is None
    assert KeepUserMessages()(said("sua"), BUDGET) is None


def test_earlier_summaries_are_updated_where_only_user_messages_stay() -> None:
    context = grown(summed_up(said("uauaua"), 2, 4), "ua")
    assert in_sight(context, KeepUserMessages()) == ["1", "5", "summary", "8", "9"]
    context = grown(summed_up(said("uauaua"), 2, 4, answer="said"), "ua")
    assert in_sight(context, KeepUserMessages()) == ["1", "5", "summary", "8", "9"]


@pytest.mark.parametrize(
    ("script", "turns", "gone", "at"),
    [
        ("uauauxa", 3, NOTHING, None),
        ("uauauxa", 2, [2], 3),
        ("uauauxa", 1, [2, 3, 4], 5),
        ("auaua", 3, NOTHING, None),
        ("auaua", 2, [1], 3),
        ("auaua", 1, [1, 3], 4),
        ("suaua", 1, [3], 4),
        ("ucu1a2uxa", 2, [2, 4, 6], 3),
        ("axxa", 1, NOTHING, None),
    ],
)
def test_the_last_turns_stay_whole_within_their_cap(
    script: str, turns: int, gone: list[int], at: int | None
) -> None:
    context = said(script)
    assert covered(context, KeepRecentTurns(turns)) == gone
    assert place(context, KeepRecentTurns(turns)) == at


@pytest.mark.parametrize(
    ("window", "cap"), [(4_000, 2_000), (9_000, 2_000), (9_008, 2_002), (33_000, 8_000), (200_000, 8_000)]
)
def test_the_cap_of_a_turn_is_a_quarter_of_what_may_be_sent_within_its_bounds(window: int, cap: int) -> None:
    assert KeepRecentTurns().cap(said("ua"), replace(BUDGET, window=window)) == cap


def test_the_cap_is_in_tokens_of_our_own_count() -> None:
    budget = replace(BUDGET, window=25_000, least_ratio=1.5)
    assert KeepRecentTurns().cap(said("ua"), budget) == 4_000


def capped(turns: int, most: int) -> KeepRecentTurns:
    return KeepRecentTurns(turns, least_tokens=1, most_tokens=most)


@pytest.mark.parametrize(
    ("most", "gone"),
    [(60, [2]), (59, [2, 4, 5]), (40, [2, 4, 5]), (39, [2, 4, 5, 6, 7]), (10, [2, *range(4, 9)])],
)
def test_of_a_turn_over_its_cap_stay_the_user_message_and_the_newest_exchanges(
    most: int, gone: list[int]
) -> None:
    context = said("uauxxaua")
    assert covered(context, capped(2, most)) == gone
    assert place(context, capped(2, most)) == 3


def test_each_turn_has_its_own_cap_and_the_live_one_keeps_its_request() -> None:
    context = said("uauxxuxx")
    assert covered(context, capped(2, 50)) == [2]
    assert covered(context, capped(2, 30)) == [2, 4, 5, 9, 10]
    assert covered(context, capped(1, 30)) == [2, 3, 4, 5, 6, 7, 9, 10]
    assert in_sight(context, capped(1, 30)) == ["1", "summary", "8", "11", "12"]
    large = said("uauxxuxx", *(10,) * 7, 900, *(10,) * 4)
    assert covered(large, capped(2, 50)) == [2, 9, 10]


def test_a_user_message_over_the_cap_goes_with_its_turn() -> None:
    assert covered(said("uauxaua", 10, 10, 51, 10, 10, 10, 10, 10), capped(2, 50)) == [2, 3, 4, 5, 6]


def test_earlier_summaries_are_updated_where_turns_stay() -> None:
    context = grown(summed_up(said("uaua"), 2, 2), "uaua")
    assert in_sight(context, KeepRecentTurns()) == ["1", "summary", "6", "7", "8", "9"]
    assert KeepRecentTurns(3)(context, BUDGET) is None


def test_the_newest_share_stays_from_a_turn_start() -> None:
    context = said("uauauaua", *(500,) * 8)
    assert covered(context, KeepRecentFraction(0.3)) == [2, 3, 4]
    assert covered(context, KeepRecentFraction(0)) == [2, 3, 4, 5, 6]
    assert place(context, KeepRecentFraction(0)) == 7


def test_a_chain_names_its_steps_and_its_target() -> None:
    chain = then(SlidingWindow(4), KeepUserMessages(), target=0.3)
    assert (chain.steps, chain.target) == ((SlidingWindow(4), KeepUserMessages()), 0.3)
    assert then(then(SlidingWindow(4), TurnWindow(1)), KeepUserMessages()).steps == (
        SlidingWindow(4),
        TurnWindow(1),
        KeepUserMessages(),
    )
    inner = then(SlidingWindow(4), target=0.2)
    named = Chain((SlidingWindow(4),), name="tiered")
    assert then(inner, named, TurnWindow(1)).steps == (inner, named, TurnWindow(1))


def test_a_chain_answers_with_the_first_cut_of_its_steps() -> None:
    context = said("uauaua")
    assert covered(context, then(SlidingWindow(6), TurnWindow(2))) == [2]
    assert then(SlidingWindow(6), TurnWindow(3))(context, BUDGET) is None


def test_first_of_answers_with_the_first_cut() -> None:
    context = said("uauaua")
    assert covered(context, first_of(SlidingWindow(6), TurnWindow(1), TurnWindow(2))) == [2, 3, 4]
    assert first_of(SlidingWindow(6), TurnWindow(3))(context, BUDGET) is None
    nested = first_of(first_of(SlidingWindow(6), TurnWindow(1)), TurnWindow(2))
    assert nested == first_of(SlidingWindow(6), TurnWindow(1), TurnWindow(2))


@pytest.mark.parametrize("instead", [Summary(max_tokens=100), Digest(), Note()])
def test_another_stand_in_leaves_the_cut_as_it_is(instead: Instead) -> None:
    for strategy in (SlidingWindow(2), KeepUserMessages(), KeepRecentTurns(1)):
        context = said("uauaua")
        cut, other = strategy(context, BUDGET), replaced_by(strategy, instead)(context, BUDGET)
        assert cut is not None
        assert other == replace(cut, instead=instead)
        assert replaced_by(strategy, instead)(said("ua"), BUDGET) is None


def test_a_record_in_the_place_of_a_note_takes_earlier_summaries_in() -> None:
    context = grown(summed_up(said("uaua"), 2, 2), "uauaua")
    assert in_sight(context, replaced_by(TurnWindow(2), Digest())) == ["1", "summary", "8", "9", "10", "11"]
    assert in_sight(context, replaced_by(TurnWindow(2), Note()))[:3] == ["1", "summary", "note"]


def test_of_a_chain_each_step_gets_the_stand_in() -> None:
    chain = replaced_by(then(SlidingWindow(2), KeepUserMessages(), target=0.4), Digest())
    assert isinstance(chain, Chain)
    assert chain.target == 0.4
    assert [strategy_name(step) for step in chain.steps] == [
        "replaced_by(SlidingWindow, Digest)",
        "replaced_by(KeepUserMessages, Digest)",
    ]


def test_a_cut_that_only_shortens_keeps_its_shape() -> None:
    shortening = Cut(at=1)
    assert replaced_by(lambda context, budget: shortening, Digest())(said("ua"), BUDGET) is shortening


def all_but_the_last(context: Context, budget: Budget) -> Cut | None:
    return cut_before(context, may_go(context, task_tokens=0)[:-1])


def test_strategies_have_telling_names() -> None:
    assert strategy_name(all_but_the_last) == "all_but_the_last"
    assert strategy_name(SlidingWindow(2)) == "SlidingWindow"
    assert strategy_name(then(SlidingWindow(2), all_but_the_last)) == "then"
    either = first_of(replaced_by(SlidingWindow(2), Summary()), all_but_the_last)
    assert strategy_name(either) == "first_of(replaced_by(SlidingWindow, Summary), all_but_the_last)"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *(
            (lambda bad=bad: SlidingWindow(bad), "max_events must be .* 1")
            for bad in (0, -1, 1.5, True, None, "3")
        ),
        *(
            (lambda bad=bad: TurnWindow(bad), "max_turns must be .* 1")
            for bad in (0, -1, 1.5, True, None, "3")
        ),
        *(
            (lambda bad=bad: TokenWindow(bad), "max_tokens must be from 1 to 1,000,000,000")
            for bad in (0, -1, 1.5, True, None, "many", "", "2000m")
        ),
        *(
            (lambda bad=bad: KeepUserMessages(bad), "max_tokens must be .* 1")
            for bad in (0, -1, 0.5, None, "8k")
        ),
        *(
            (lambda bad=bad: KeepRecentFraction(bad), "fraction must be at least 0 and below 1")
            for bad in (-0.1, 1, float("nan"), None, "0.3")
        ),
        (lambda: KeepRecentTurns(0), "turns must be .* 1"),
        (lambda: KeepRecentTurns(share=0), "share must be above 0 and at most 1"),
        (lambda: KeepRecentTurns(share=1.01), "share must be above 0 and at most 1"),
        (lambda: KeepRecentTurns(least_tokens=0), "least_tokens must be .* 1"),
        (lambda: KeepRecentTurns(most_tokens=1_999), "most_tokens must be .* 2000"),
        (lambda: then(), "then must be given at least 1 strategy"),
        (lambda: then(SlidingWindow), "then must be given strategies"),
        (lambda: then(SlidingWindow(2), "x"), "then must be given strategies"),
        (lambda: then(SlidingWindow(2), target=0), "target must be above 0 and at most 1"),
        (lambda: then(SlidingWindow(2), target=1.1), "target must be above 0 and at most 1"),
        (lambda: first_of(), "first_of must be given at least 1 strategy"),
        (lambda: first_of(None), "first_of must be given strategies"),
        (lambda: replaced_by(None, Note()), "replaced_by must be given strategies"),
        (lambda: replaced_by(SlidingWindow(2), "a summary"), "instead must be a Summary, a Digest or a Note"),
    ],
)
def test_bad_arguments_are_named_with_their_range(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_the_least_and_the_largest_numbers_are_taken() -> None:
    assert (SlidingWindow(1).max_events, TurnWindow(1).max_turns, TokenWindow(1).max_tokens) == (1, 1, 1)
    assert TokenWindow("1000m").max_tokens == 1_000_000_000
    assert KeepUserMessages(1).max_tokens == 1
    assert KeepRecentTurns(1, 1, 1, 1).cap(said("ua"), BUDGET) == 1
    assert then(TurnWindow(1), target=1).target == 1


STRATEGIES: list[Strategy] = [
    SlidingWindow(1),
    SlidingWindow(7),
    TurnWindow(1),
    TurnWindow(2),
    TokenWindow(1),
    TokenWindow(400),
    KeepUserMessages(),
    KeepUserMessages(40),
    KeepRecentFraction(0.3),
    KeepRecentTurns(1),
    KeepRecentTurns(least_tokens=1, most_tokens=150),
    replaced_by(SlidingWindow(4), Digest()),
    first_of(TurnWindow(4), KeepRecentTurns(1)),
    then(TurnWindow(3), KeepUserMessages(60)),
]


@st.composite
def contexts(draw: st.DrawFn) -> Context:
    """Any history, compacted at up to three points to a summary, a question with its answer or a note."""
    messages = draw(histories | orderly())
    points = st.integers(len(messages) // 2, max(0, len(messages) - 1))
    stops = draw(st.lists(points, min_size=draw(st.sampled_from([0, 1, 2])), max_size=3).map(sorted))
    context = Context()
    for start, end in zip([0, *stops], [*stops, len(messages)], strict=True):
        new = records_of([added(message) for message in messages[start:end]])
        context = context.add(*(replace(record, seq=record.seq + context.length) for record in new))
        context = draw(compacted_somehow(context)) if end < len(messages) else context
    return context


@st.composite
def compacted_somehow(draw: st.DrawFn, context: Context) -> Context:
    units = may_go(context, task_tokens=BUDGET.task_tokens)
    if not units:
        return context
    first = draw(st.integers(0, len(units) - 1))
    last = draw(st.integers(first + 1, len(units)))
    cut = cut_before(context, units[first:last], draw(st.sampled_from([Summary(), Note()])))
    if cut is None:
        return context
    answer = "" if isinstance(cut.instead, Note) else draw(st.sampled_from(["", "the answer"]))
    return compacted(context, cut, answer=answer)


@settings(max_examples=400)
@given(contexts())
def test_a_cut_splits_no_exchange_and_holds_nothing_that_must_stay(context: Context) -> None:
    units = units_of(context.visible)
    for strategy in STRATEGIES:
        if (cut := strategy(context, BUDGET)) is None:
            continue
        gone = cut.positions
        assert all(gone.issuperset(unit.seqs) or gone.isdisjoint(unit.seqs) for unit in units), strategy
        assert gone.isdisjoint(entry.seq for entry in protected(context, BUDGET.task_tokens)), strategy
        assert gone.isdisjoint(units[-1].seqs), strategy
        goes = safe_cover(context, gone, task_tokens=BUDGET.task_tokens)
        assert {seq for unit in goes for seq in unit.seqs} == set(covered(context, strategy)), strategy
        assert cut.at == clamped(context, cut.at, BUDGET.task_tokens) or isinstance(
            strategy, KeepRecentFraction
        )


@settings(max_examples=400)
@given(contexts())
def test_what_is_left_is_valid_and_the_live_request_is_the_last_that_a_user_says(context: Context) -> None:
    for strategy in STRATEGIES:
        after = left_by(strategy, context)
        users = [entry for entry in after.visible if entry.message.role == "user"]
        assert context.newest_user is None or users[-1] == context.newest_user, strategy
        assert violations({"model": "m", "messages": list(wire_messages(after.messages))}) == [], strategy


@settings(max_examples=400)
@given(contexts())
def test_a_strategy_finds_nothing_in_what_it_left(context: Context) -> None:
    for strategy in STRATEGIES:
        if isinstance(strategy, KeepRecentFraction):
            continue  # its share is of what there is, and there is less each time
        left = context
        for _ in range(parts_of(strategy)):
            left = left_by(strategy, left)
        assert strategy(left, BUDGET) is None, strategy


def parts_of(strategy: Strategy) -> int:
    """How many strategies take turns in it."""
    if isinstance(strategy, Chain):
        return len(strategy.steps)
    return len(strategy.choices) if isinstance(strategy, FirstOf) else 1


@given(contexts(), st.integers(1, 30))
@settings(max_examples=200)
def test_a_sliding_window_keeps_no_more_than_it_says(context: Context, most: int) -> None:
    left = left_by(SlidingWindow(most), context)
    free = [unit for unit in may_go(left, task_tokens=BUDGET.task_tokens) if unit.first.kind == "said"]
    assert sum(len(unit.entries) for unit in free) <= most


@given(contexts(), st.integers(1, 1_000))
@settings(max_examples=200)
def test_a_token_window_keeps_no_more_than_it_says_but_what_must_stay(context: Context, most: int) -> None:
    left = left_by(TokenWindow(most), context)
    free = [unit for unit in may_go(left, task_tokens=BUDGET.task_tokens) if unit.first.kind == "said"]
    units = [unit for unit in units_of(left.visible) if unit.entries[-1].kind != "note"]
    stays = sum(unit.tokens for unit in units)
    assert not free or stays <= most


@given(contexts(), st.integers(1, 300))
@settings(max_examples=200)
def test_user_messages_kept_are_the_newest_within_the_cap(context: Context, most: int) -> None:
    left = left_by(KeepUserMessages(most), context)
    free = [unit.first for unit in may_go(left, task_tokens=BUDGET.task_tokens) if unit.first.kind == "said"]
    assert all(entry.is_user for entry in free)
    live = [left.newest_user.tokens] if left.newest_user else []
    assert not free or sum(live) + sum(entry.tokens for entry in free) <= most


def left_by(strategy: Strategy, context: Context) -> Context:
    cut = strategy(context, BUDGET)
    return compacted(context, cut) if cut else context


@pytest.mark.parametrize(
    "strategy",
    [
        SlidingWindow(400),
        TurnWindow(50),
        TokenWindow(40_000),
        KeepUserMessages(),
        KeepRecentFraction(),
        KeepRecentTurns(40),
        replaced_by(SlidingWindow(400), Digest()),
    ],
    ids=strategy_name,
)
def test_l14_ten_times_the_messages_take_ten_times_the_operations(strategy: Strategy) -> None:
    counted = []
    for length in (1_000, 10_000):
        context = context_with_notes(length)
        with operations() as of_the_strategy:
            cut = strategy(context, replace(BUDGET, window=1_000_000))
        assert cut is not None
        counted.append(of_the_strategy.total())
    assert counted[1] <= 12 * counted[0]
    assert counted[1] <= 100 * 10_000


def context_with_notes(length: int) -> Context:
    """A conversation in sight, with what some early parts of it were compacted to."""
    records = [MessageAdded(message=message, tokens=90) for message in islice(conversation(), length)]
    context = Context.of(records_of(records))
    for start, instead in ((5, Note()), (105, Summary()), (205, Note())):
        cut = Cut(covers=((start, start + 3),), at=start + 4, instead=instead)
        context = compacted(context, cut)
    return context
