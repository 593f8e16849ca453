"""Strategies made of several steps, and those that clear or roll on: positions on contexts made by hand."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.budget import Budget
from agentloop.context import Context
from agentloop.errors import UsageError
from agentloop.events import Compacted, Record, Restored
from agentloop.exchanges import may_go, protected, units_of
from agentloop.instead import Digest, Note, Summary
from agentloop.messages import Message, ToolCall
from agentloop.ranges import holds
from agentloop.strategies import (
    Blocks,
    ClearResults,
    Cut,
    RecursiveSummary,
    Reduce,
    Scope,
    Strategy,
    Tiered,
)
from tests.kit import BUDGET, COUNTER, added, context_of, histories, orderly, records_of

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
        at=cut.at,
        replacement=shadow or "what was",
        tokens=16 if shadow else 8,
        answer="what was" if shadow else "",
        answer_tokens=8 if shadow else 0,
        made="note" if isinstance(cut.instead, Note) else "summary",
        cleared=cut.cleared,
    )
    return context.add(Record(seq=context.length + 1, event=event))


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


def test_recursive_summary_reads_the_overlap_right_behind_what_leaves() -> None:
    cut = RecursiveSummary(keep=10, overlap=2)(context_of(turns(10)), BUDGET)
    assert cut is not None
    assert (cut.covers, cut.reads, cut.at) == (((2, 10),), ((2, 12),), 11)
    assert cut.instead == Summary(shadow="What have we said and done so far?")
    assert cut.cleared == ()


@pytest.mark.parametrize(("overlap", "reads"), [(0, ((2, 16),)), (1, ((2, 17),)), (3, ((2, 19),))])
def test_the_overlap_goes_from_nothing_to_all_that_stays_but_one(
    overlap: int, reads: tuple[tuple[int, int], ...]
) -> None:
    cut = RecursiveSummary(keep=4, overlap=overlap)(context_of(turns(10)), BUDGET)
    assert cut is not None
    assert (cut.covers, cut.reads) == (((2, 16),), reads)


def test_an_exchange_that_the_border_runs_through_stays_whole() -> None:
    context = context_of(said(turns(3), exchange(0, width=3), turn(3)))
    cut = RecursiveSummary(keep=4, overlap=0)(context, BUDGET)
    assert cut is not None
    assert cut.covers == ((2, 6),)


def test_the_next_pass_builds_on_the_pair_and_reads_only_what_is_new() -> None:
    strategy = RecursiveSummary(keep=4, overlap=1, shadow="So far?")
    first = carried_out(context_of(turns(6)), strategy(context_of(turns(6)), BUDGET))
    assert [message.text for message in first.messages][1:3] == ["So far?", "what was"]
    assert strategy(first, BUDGET) is None
    second = grown(first, *turns(2))
    cut = strategy(second, BUDGET)
    assert cut is not None
    assert (cut.covers, cut.reads) == (((9, 13),), ((9, 14),))
    assert seen(carried_out(second, cut)) == [1, 18, 18, 14, 15, 16, 17]


def test_in_one_long_turn_the_summary_stands_before_the_request() -> None:
    context = context_of([Message.user("go"), *said(*(exchange(number) for number in range(6)))])
    cut = RecursiveSummary(keep=4, overlap=2)(context, BUDGET)
    assert cut is not None
    assert (cut.covers, cut.reads, cut.at) == (((2, 9),), ((2, 11),), 1)


def test_recursive_summary_hands_its_texts_on() -> None:
    strategy = RecursiveSummary(
        2, 0, system="S", shadow="Q", instruction="I", max_tokens=300, on_failure=Digest()
    )
    cut = strategy(context_of(turns(3)), BUDGET)
    assert cut is not None
    assert cut.instead == Summary(
        system="S", shadow="Q", instruction="I", max_tokens=300, on_failure=Digest()
    )


def test_messages_of_a_branch_are_neither_counted_nor_read() -> None:
    aside = [replace(added(message), branch="helper") for message in turns(8)]
    main = [added(message) for message in turns(4)]
    context = Context.of(records_of([*main[:4], *aside, *main[4:]]))
    cut = RecursiveSummary(keep=2, overlap=1)(context, BUDGET)
    assert cut is not None
    assert carried_out(context, cut).messages[0].text == "request 0"
    assert [entry.seq for entry in context.said if holds(cut.reads or (), entry.seq)] == [2, 3, 4, 21, 22, 23]
    assert seen(carried_out(context, cut)) == [1, 25, 25, 23, 24]
    assert Scope.fixed().runs(context, BUDGET) == ()


def test_blocks_keep_the_first_turns_and_shorten_the_recent_ones() -> None:
    long = said(*([Message.user(f"go {number}"), *exchange(number, lines=60)] for number in range(6)))
    context = context_of([*long, Message.assistant("done")])
    cut = Blocks(2, 3)(context, ROOM)
    assert cut is not None
    assert (cut.covers, cut.at) == (((7, 9),), 10)
    assert cut.instead == Summary(max_tokens=2_000, on_failure=Digest(max_tokens=2_000, style="lines"))
    assert [item.seq for item in cut.cleared] == [12, 15, 18]
    first, *rest = cut.cleared[0].message.text.split("\n")
    assert first == "[10 earlier lines left out; call the tool again for the whole]"
    assert rest == [f"line {line} of 3" for line in range(10, 60)]
    assert Blocks(2, 3)(carried_out(context, cut), ROOM) is None


def test_blocks_of_a_run_of_one_turn_count_its_exchanges() -> None:
    context = context_of([Message.user("go"), *said(*(exchange(number) for number in range(8)))])
    cut = Blocks(2, 3)(context, BUDGET)
    assert cut is not None
    assert (cut.covers, cut.at) == (((6, 11),), 1)
    after = grown(carried_out(context, cut), *exchange(8))
    again = Blocks(2, 3)(after, BUDGET)
    assert again is not None
    assert (again.covers, seen(carried_out(after, again))) == (
        ((12, 13), (18, 18)),
        [21, 1, 2, 3, 4, 5, 14, 15, 16, 17, 19, 20],
    )


def test_blocks_show_a_summary_alone_for_earlier_runs() -> None:
    context = in_runs(a=turns(2), b=turns(2), c=turns(2), d=turns(1))
    earlier, run = Blocks(scope=Scope.fixed(2)).steps
    cut = earlier(context, BUDGET)
    assert cut is not None
    assert (cut.covers, cut.at, cut.reads) == (((2, 12),), 13, ((5, 12),))
    assert isinstance(cut.instead, Summary)
    assert cut.instead.max_tokens == 4_000
    assert cut.instead.instruction is not None
    assert "one section for each request" in cut.instead.instruction
    after = carried_out(context, cut)
    assert seen(after) == [1, 15, 13, 14]
    assert earlier(after, BUDGET) is None
    assert run(after, BUDGET) is None


def test_blocks_keep_what_stands_for_earlier_runs_apart_from_the_middle_of_this_one() -> None:
    context = in_runs(a=turns(2), b=[Message.user("go"), *said(*(exchange(number) for number in range(4)))])
    earlier, run = Blocks(1, 1).steps
    folded = carried_out(context, earlier(context, BUDGET))
    middle = run(folded, BUDGET)
    assert middle is not None
    assert middle.covers == ((8, 11),)
    both = carried_out(folded, middle)
    assert seen(both) == [1, 14, 15, 5, 6, 7, 12, 13]
    assert earlier(both, BUDGET) is None
    later = grown(grown(both, Message.assistant("done"), run="b"), Message.user("next"), run="c")
    cut = earlier(later, BUDGET)
    assert cut is not None
    assert seen(carried_out(later, cut)) == [1, 18, 17]
    assert cut.reads == ((5, 7), (12, 16))


def test_earlier_runs_out_of_scope_leave_a_line_where_nothing_stands_for_them() -> None:
    context = in_runs(a=turns(2), b=[Message.user("go")], c=said(exchange(0), exchange(1)))
    step = Blocks(scope=Scope.fixed(1)).steps[0]
    cut = step(context, BUDGET)
    assert cut is not None
    assert (cut.covers, cut.at, cut.reads, cut.instead) == (((2, 4),), 5, (), Note())
    assert step(carried_out(context, cut), BUDGET) is None


def test_an_exchange_that_was_asked_for_in_an_earlier_run_goes_with_it() -> None:
    asks, late = exchange(0)
    context = in_runs(a=[*turn(0), asks], b=[late, Message.assistant("so"), *turn(1)])
    earlier, run = Blocks(0, 0).steps
    cut = earlier(context, BUDGET)
    assert cut is not None
    assert (cut.covers, cut.at, cut.reads) == (((2, 4),), 4, ((2, 4),))
    rest = run(carried_out(context, cut), BUDGET)
    assert rest is not None
    assert rest.covers == ((5, 5),)


def test_every_step_of_blocks_is_carried_out() -> None:
    chain = Blocks()
    assert (chain.name, chain.target, len(chain.steps)) == ("Blocks", 0.0, 2)
    assert chain == Blocks(2, 10, 2_000, 50, Scope.fixed(3))


def test_a_spilled_result_says_where_its_whole_is() -> None:
    events = [added(message) for message in [*exchange(0, lines=80), Message.assistant("ok")]]
    events[1] = replace(events[1], spilled="result_a.txt")
    cut = Blocks(0, tool_output_max_lines=2)(Context.of(records_of(events)), ROOM)
    assert shown(cut)[2] == (
        "[78 earlier lines left out; the whole is in result_a.txt]\nline 78 of 0\nline 79 of 0"
    )


def test_scopes_take_in_the_newest_earlier_runs() -> None:
    context = in_runs(a=turns(3), b=turns(30), c=turns(3), d=turns(1))
    small = sum(entry.tokens for entry in context.said if entry.run_id == "c")
    assert Scope.fixed(2).runs(context, BUDGET) == ("c", "b")
    assert Scope.fixed(9).runs(context, BUDGET) == ("c", "b", "a")
    assert sum(entry.tokens for entry in context.said if entry.run_id == "b") > small + 100
    for max_tokens, runs in (
        (1, ("c",)),
        (small + 100, ("c", "b")),
        (2 * small + 99, ("c", "b")),
        (2 * small + 100, ("c", "b", "a")),
    ):
        assert Scope.token_budget(max_tokens, summary_tokens=100).runs(context, BUDGET) == runs
    assert Scope.token_budget().runs(context, BUDGET) == ("c", "b", "a")
    assert Scope.token_budget().runs(context, replace(BUDGET, window=400)) == ("c",)
    assert Scope.fixed().runs(Context(), BUDGET) == ()


def test_tiered_goes_from_stubs_to_a_record_without_a_model() -> None:
    long = said(*([*turn(number), *exchange(number, lines=40)] for number in range(5)))
    context = context_of([*long, Message.assistant("done")])
    strip, chunks, half, plain = Tiered().steps
    assert [item.seq for item in (strip(context, ROOM) or Cut()).cleared] == [4, 8, 12, 16]
    assert shown(strip(context, ROOM))[4].startswith("line 0 of 0\nline 1 of 0")
    cuts = [step(context, ROOM) for step in (chunks, half, plain)]
    assert [cut.covers for cut in cuts if cut] == [((2, 16),), ((2, 9),), ((2, 16),)]
    assert [cut.instead for cut in cuts if cut] == [
        Summary(piece_tokens=12_000, message_chars=10_000),
        Summary(piece_tokens=12_000, message_chars=10_000),
        Digest(),
    ]
    folded = carried_out(context, chunks(context, ROOM))
    assert [step(folded, ROOM) for step in Tiered().steps] == [None] * 4


def test_the_newest_messages_stay_with_the_whole_exchange_they_belong_to() -> None:
    context = context_of(said(turns(2), exchange(0, width=3), turn(2), turn(3)))
    for step in (Tiered(keep=5).steps[1], Tiered(keep=5).steps[3]):
        cut = step(context, BUDGET)
        assert cut is not None
        assert cut.covers == ((2, 4),)


@pytest.mark.parametrize(
    ("window", "most", "tokens"),
    [
        (40, 12_000, 20),
        (20_000, 12_000, 8_000),
        (30_000, 12_000, 12_000),
        (128_000, 10**9, 51_200),
        (564_000, 10**9, 155_100),
        (1_000_000, 10**9, 150_000),
        (2_000_000, 10**9, 300_000),
    ],
)
def test_chunks_take_a_smaller_share_of_very_large_windows(window: int, most: int, tokens: int) -> None:
    step = Tiered(chunk_tokens=most).steps[1]
    cut = step(context_of(turns(6)), replace(BUDGET, window=window))
    assert cut is not None
    assert isinstance(cut.instead, Summary)
    assert cut.instead.piece_tokens == tokens


def test_reduce_shortens_then_summarises_then_drops() -> None:
    long = said(*([*turn(number), *exchange(number, lines=60)] for number in range(5)))
    context = context_of([*long, Message.assistant("done")])
    lines, summary, drop = Reduce().steps
    assert [item.seq for item in (lines(context, ROOM) or Cut()).cleared] == [4, 8, 12, 16, 20]
    older = summary(context, ROOM)
    assert older is not None
    assert (older.covers, older.at, older.instead) == (((2, 12),), 13, Summary(max_tokens=2_000))
    dropped = drop(context, ROOM)
    assert dropped is not None
    assert (dropped.covers, dropped.at, dropped.instead) == (((5, 12),), 13, Note())
    folded = carried_out(context, older)
    assert drop(folded, ROOM) is None
    once_more = summary(folded, ROOM)
    assert once_more is not None
    assert seen(carried_out(folded, once_more)) == [1, 23, 17, 19, 20, 21]


def test_reduce_counts_exchanges_where_there_is_one_turn() -> None:
    context = context_of([Message.user("go"), *said(*(exchange(number) for number in range(6)))])
    _, summary, drop = Reduce().steps
    older, dropped = summary(context, BUDGET), drop(context, BUDGET)
    assert older is not None
    assert dropped is not None
    assert (older.covers, dropped.covers) == (((2, 9),), ((4, 9),))
    assert summary(carried_out(context, older), BUDGET) is None
    assert drop(carried_out(context, dropped), BUDGET) is None


def test_what_stands_for_the_newest_turn_is_taken_into_the_summary_before_it() -> None:
    context = context_of(said(turns(2), [Message.user("go")], exchange(0), exchange(1), exchange(2)))
    folded = carried_out(context, Cut(covers=((6, 9),), at=5))
    cut = Reduce(keep_turns=1).steps[1](folded, BUDGET)
    assert cut is not None
    assert (cut.covers, seen(carried_out(folded, cut))) == (((2, 4), (12, 12)), [1, 13, 5, 10, 11])


def test_what_is_dropped_leaves_summaries_in_sight_and_one_line() -> None:
    _, summary, drop = Reduce(keep_turns=1).steps
    folded = grown(carried_out(context_of(turns(4)), summary(context_of(turns(4)), BUDGET)), *turns(3))
    once = carried_out(folded, drop(folded, BUDGET))
    assert seen(once) == [1, 9, 16, 14, 15]
    twice = grown(once, *turns(3))
    assert seen(carried_out(twice, drop(twice, BUDGET))) == [1, 9, 23, 21, 22]


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


STRATEGIES: tuple[Strategy, ...] = (
    RecursiveSummary(1, 0),
    RecursiveSummary(3, 2, on_failure=Note()),
    RecursiveSummary(),
    *Blocks(0, 0, tool_output_max_lines=1, scope=Scope.token_budget(100, 20)).steps,
    *Blocks(1, 2, tool_output_max_lines=1, scope=Scope.fixed(1)).steps,
    *Tiered(keep=1).steps,
    *Tiered().steps,
    *Reduce(keep_turns=1, tool_output_max_lines=1).steps,
    *Reduce().steps,
    ClearResults(0, 0),
    ClearResults(60, 30),
)

REPEATABLE: tuple[Strategy, ...] = (
    RecursiveSummary(3, 2),
    *Blocks(1, 2, tool_output_max_lines=1).steps,
    Tiered().steps[0],
    Tiered().steps[1],
    Tiered().steps[3],
    Reduce().steps[0],
    ClearResults(60, 30),
)


@st.composite
def contexts(draw: st.DrawFn, messages: st.SearchStrategy[list[Message]]) -> Context:
    """A history in up to four runs, asides of a branch in it, some of it compacted before."""
    context, run = Context(), 0
    for message in draw(messages):
        run += message.role == "user" and draw(st.booleans())
        aside = draw(st.integers(0, 9)) == 0
        event = replace(
            added(message),
            run_id=f"run_{run}" if run else "",
            branch="helper" if aside else None,
            keep=draw(st.integers(0, 5)) == 0,
        )
        context = context.add(Record(seq=context.length + 1, event=event))
        if draw(st.integers(0, 5)) == 0:
            strategy = draw(st.sampled_from(STRATEGIES))
            if cut := strategy(context, BUDGET):
                context = carried_out(context, cut)
    return context


def check(context: Context, cut: Cut, budget: Budget) -> None:
    """Exchanges stay whole, what is protected stays, and what is shown shortened is shorter."""
    free = {seq for unit in may_go(context, task_tokens=budget.task_tokens) for seq in unit.seqs}
    covered = {entry.seq for entry in context.visible if holds(cut.covers, entry.seq)}
    assert covered <= free
    assert covered.isdisjoint(entry.seq for entry in protected(context, budget.task_tokens))
    for unit in units_of(context.visible):
        assert covered.issuperset(unit.seqs) or covered.isdisjoint(unit.seqs)
    assert covered or cut.cleared
    if covered:
        assert any(entry.seq in covered and entry.kind == "said" for entry in context.visible)
    entries = {entry.seq: entry for entry in context.visible if entry.kind == "said"}
    for item in cut.cleared:
        entry = entries[item.seq]
        assert item.seq not in covered
        assert item.tokens < entry.tokens
        assert item.message.tool_call_id == entry.original.tool_call_id
        assert not entry.keep
        assert entry.message.role == item.message.role == "tool"
    assert len({item.seq for item in cut.cleared}) == len(cut.cleared)
    for ranges in (cut.covers, cut.reads or ()):
        assert all(first <= last for first, last in ranges)
        assert all(before[1] < after[0] for before, after in pairwise(ranges))
    read = {entry.seq for entry in context.said if holds(cut.reads or (), entry.seq)}
    assert read <= {entry.seq for entry in context.visible}


@settings(max_examples=300)
@given(contexts(st.one_of(histories, orderly(most_turns=4))))
def test_no_cut_splits_an_exchange_or_hides_what_must_stay(context: Context) -> None:
    for strategy in STRATEGIES:
        cut = strategy(context, BUDGET)
        if cut is not None:
            check(context, cut, BUDGET)
            assert strategy(context, BUDGET) == cut


@settings(max_examples=200)
@given(contexts(orderly(most_turns=4)))
def test_done_again_at_once_there_is_nothing_left_to_do(context: Context) -> None:
    for strategy in REPEATABLE:
        cut = strategy(context, BUDGET)
        if cut is not None:
            assert strategy(carried_out(context, cut), BUDGET) is None, strategy


@settings(max_examples=200)
@given(contexts(orderly(most_turns=4)))
def test_a_chain_carried_out_step_by_step_leaves_blocks_of_runs(context: Context) -> None:
    chain = Blocks(1, 2, tool_output_max_lines=1)
    for step in chain.steps:
        if cut := step(context, BUDGET):
            check(context, cut, BUDGET)
            context = carried_out(context, cut)
    assert chain(context, BUDGET) is None
    newest = context.said[-1].run_id if context.said else ""
    free = [entry for unit in may_go(context, task_tokens=BUDGET.task_tokens) for entry in unit.entries]
    assert {entry.run_id for entry in free if entry.kind == "said"} <= {newest}


BAD: list[tuple[type[object] | object, dict[str, object], str]] = [
    (RecursiveSummary, {"keep": 0}, "keep must be a whole number of at least 1, not 0"),
    (RecursiveSummary, {"keep": None}, "keep"),
    (RecursiveSummary, {"overlap": -1}, "overlap must be a whole number of at least 0, not -1"),
    (RecursiveSummary, {"keep": 2}, "overlap must be at least 0 and below keep, which is 2, not 2"),
    (RecursiveSummary, {"overlap": 1.5}, "overlap"),
    (RecursiveSummary, {"system": " "}, "system must be a text that is not blank"),
    (RecursiveSummary, {"shadow": ""}, "shadow"),
    (RecursiveSummary, {"instruction": 5}, "instruction"),
    (RecursiveSummary, {"max_tokens": 19}, "max_tokens must be a whole number of at least 20, not 19"),
    (RecursiveSummary, {"on_failure": Summary()}, "on_failure must be a Digest, a Note or None"),
    (Blocks, {"keep_first_turns": -1}, "keep_first_turns must be a whole number of at least 0, not -1"),
    (Blocks, {"keep_recent_turns": 1.5}, "keep_recent_turns"),
    (Blocks, {"max_summary_tokens": 19}, "max_summary_tokens must be a whole number of at least 20, not 19"),
    (Blocks, {"tool_output_max_lines": 0}, "tool_output_max_lines"),
    (Blocks, {"scope": 3}, "scope must be a Scope"),
    (Scope.fixed, {"n": 0}, "n must be a whole number of at least 1, not 0"),
    (Scope.token_budget, {"max_tokens": 0}, "max_tokens must be a whole number of at least 1, not 0"),
    (Scope.token_budget, {"summary_tokens": 19}, "summary_tokens"),
    (Tiered, {"keep": 0}, "keep must be a whole number of at least 1, not 0"),
    (Tiered, {"max_chars": -1}, "max_chars"),
    (Tiered, {"chunk_share": 0}, "chunk_share must be above 0 and at most 1, not 0"),
    (Tiered, {"least_chunk_share": 0.5}, "least_chunk_share must be above 0 and at most 0.4, not 0.5"),
    (Tiered, {"chunk_tokens": 19}, "chunk_tokens"),
    (Tiered, {"message_chars": 99}, "message_chars must be a whole number of at least 100, not 99"),
    (Tiered, {"target": 0}, "target must be above 0 and at most 1, not 0"),
    (Reduce, {"tool_output_max_lines": 0}, "tool_output_max_lines"),
    (Reduce, {"keep_turns": 0}, "keep_turns must be a whole number of at least 1, not 0"),
    (Reduce, {"max_summary_tokens": 5}, "max_summary_tokens"),
    (Reduce, {"target": 1.1}, "target must be above 0 and at most 1, not 1.1"),
    (ClearResults, {"keep_tokens": -1}, "keep_tokens must be a whole number of at least 0, not -1"),
    (ClearResults, {"least_tokens": True}, "least_tokens"),
]


@pytest.mark.parametrize(("make", "options", "text"), BAD)
def test_bad_numbers_are_refused_by_name_and_range(
    make: object, options: dict[str, object], text: str
) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match=text):
        make(**options)
