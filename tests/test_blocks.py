"""A block a run, and which earlier runs are taken in."""

from dataclasses import replace

from agentloop.context import Context
from agentloop.messages import Message
from agentloop.strategies import (
    Blocks,
    Lines,
    Note,
    Scope,
    Summary,
)
from tests.kit import BUDGET, added, context_of, records_of
from tests.turns_kit import ROOM, carried_out, exchange, grown, in_runs, place, said, seen, shown, turn, turns


def test_blocks_keep_the_first_turns_and_shorten_the_recent_ones() -> None:
    long = said(*([Message.user(f"go {number}"), *exchange(number, lines=60)] for number in range(6)))
    context = context_of([*long, Message.assistant("done")])
    cut = Blocks(2, 3)(context, ROOM)
    assert cut is not None
    assert (cut.covers, cut.at) == (((7, 9),), 10)
    assert cut.instead == Summary(max_tokens=2_000, on_failure=Lines(max_tokens=2_000))
    assert [item.seq for item in cut.cleared] == [12, 15, 18]
    first, *rest = cut.cleared[0].message.text.split("\n")
    assert first == "[10 earlier lines left out; call the tool again for the whole]"
    assert rest == [f"line {line} of 3" for line in range(10, 60)]
    assert Blocks(2, 3)(carried_out(context, cut), ROOM) is None


def test_blocks_of_a_run_of_one_turn_count_its_exchanges() -> None:
    context = context_of([Message.user("go"), *said(*(exchange(number) for number in range(8)))])
    cut = Blocks(2, 3)(context, BUDGET)
    assert cut is not None
    assert (cut.covers, place(context, cut)) == (((6, 11),), 1)
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
