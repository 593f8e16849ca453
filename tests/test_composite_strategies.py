"""What holds for strategies of several steps, and which arguments they refuse."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.context import Budget, Context
from agentloop.context.exchanges import may_go, protected, units_of
from agentloop.errors import UsageError
from agentloop.events import Record, holds
from agentloop.messages import Message
from agentloop.strategies import (
    Blocks,
    ClearResults,
    Cut,
    Note,
    RecursiveSummary,
    Reduce,
    Scope,
    Strategy,
    Summary,
    Tiered,
)
from tests.kit import BUDGET, added, histories, orderly
from tests.turns_kit import carried_out

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


@pytest.mark.many(50)
@given(contexts(st.one_of(histories, orderly(most_turns=4))))
def test_no_cut_splits_an_exchange_or_hides_what_must_stay(context: Context) -> None:
    for strategy in STRATEGIES:
        cut = strategy(context, BUDGET)
        if cut is not None:
            check(context, cut, BUDGET)
            assert strategy(context, BUDGET) == cut


@pytest.mark.many(50)
@given(contexts(orderly(most_turns=4)))
def test_done_again_at_once_there_is_nothing_left_to_do(context: Context) -> None:
    for strategy in REPEATABLE:
        cut = strategy(context, BUDGET)
        if cut is not None:
            assert strategy(carried_out(context, cut), BUDGET) is None, strategy


@pytest.mark.many(50)
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
    (RecursiveSummary, {"keep": 2}, r"keep must be above overlap \(at least 0\), which is 2, not 2"),
    (RecursiveSummary, {"overlap": 1.5}, "overlap"),
    (RecursiveSummary, {"system": " "}, "system must be a text that is not blank"),
    (RecursiveSummary, {"shadow": ""}, "shadow"),
    (RecursiveSummary, {"instruction": 5}, "instruction"),
    (RecursiveSummary, {"max_tokens": 19}, "max_tokens must be a whole number of at least 20, not 19"),
    (
        RecursiveSummary,
        {"on_failure": Summary()},
        "on_failure must be a Digest, Lines, a Note, None, or a function of an error",
    ),
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
