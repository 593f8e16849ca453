"""Exchanges: what belongs together, and which positions may go.

An exchange is an assistant message with calls together with every result of those calls, wherever the
results stand. Exchanges are atomic: kept whole, folded whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from agentloop.context.context import Context
from agentloop.context.entries import Entry
from agentloop.context.pairing import SYSTEM_ROLES, answers
from agentloop.events import Ranges, ranges_between


class Said(Protocol):
    """What may begin a turn: an entry or a unit."""

    @property
    def is_user(self) -> bool:
        """Whether it is what a real user said."""
        ...


S = TypeVar("S", bound=Said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The smallest thing that a cut may keep or fold: one message, or one exchange."""

    entries: tuple[Entry, ...]

    @property
    def tokens(self) -> int:
        """What it takes in the context, as shown."""
        return sum(entry.tokens for entry in self.entries)

    @property
    def first(self) -> Entry:
        """The entry it begins with."""
        return self.entries[0]

    @property
    def is_said(self) -> bool:
        """Whether somebody said it: what an earlier compaction put in place is not."""
        return self.first.kind == "said"

    @property
    def is_user(self) -> bool:
        """Whether a real user said it, so that a turn begins here."""
        return self.first.is_user

    @property
    def seqs(self) -> tuple[int, ...]:
        """The positions of its entries."""
        return tuple(entry.seq for entry in self.entries)


def units_of(entries: Sequence[Entry]) -> list[Unit]:
    """The entries in units, in the order in which the units begin.

    What one compaction put in the place of what it covers is one unit, also where it is a question and its
    answer.
    """
    shown = list(entries)
    answered = answers([entry.message for entry in shown])
    placed = {place for places in answered.values() for place in places}
    units: list[Unit] = []
    for at, entry in enumerate(shown):
        if units and units[-1].first.seq == entry.seq:
            units[-1] = Unit(entries=(*units[-1].entries, entry))
        elif at not in placed:
            results = (shown[place] for place in answered.get(at, ()) if place is not None)
            units.append(Unit(entries=(entry, *sorted(results, key=lambda result: result.at))))
    return units


def turns_of(items: Iterable[S]) -> list[list[S]]:
    """The items by turns, oldest first; what stands before the first user message is one as well.

    >>> said = [Message.assistant("Hi."), Message.user("Why?"), Message.user("So?")]
    >>> entries = [Entry(seq=at, message=each, tokens=5, original=each) for at, each in enumerate(said, 1)]
    >>> [[entry.seq for entry in turn] for turn in turns_of(entries)]
    [[1], [2], [3]]
    """
    turns: list[list[S]] = []
    for item in items:
        if item.is_user or not turns:
            turns.append([])
        turns[-1].append(item)
    return turns


def next_turn_start(context: Context, units: Sequence[Unit], split: int) -> int:
    """Where a tail of these units, which may go, begins at a user's message, at the split or behind it.

    In the newest turn it is the split itself: what is inside one long turn is cut between exchanges. So it is
    where no user ever spoke.
    """
    newest = context.newest_user
    if newest is None:
        return split
    begins = (at for at in range(split, len(units)) if units[at].is_user or units[at].first.at > newest.at)
    return next(begins, len(units))


def newest_within(costs: Sequence[int], room: int) -> int:
    """Where the longest run of newest ones begins whose costs are within the room together.

    >>> newest_within([10, 20, 5, 5], 15), newest_within([10], 0)
    (2, 1)
    """
    start = len(costs)
    while start and costs[start - 1] <= room:
        start -= 1
        room -= costs[start]
    return start


def may_go(context: Context, *, task_tokens: int) -> list[Unit]:
    """The units that a compaction may cover, oldest first.

    Never among them: a system message that begins the session; the session's first real user message while
    it is at most `task_tokens` long; the newest one; and the newest unit, which is an exchange that the
    model has not read yet, or the answer that ends the session.
    """
    kept = {entry.seq for entry in protected(context, task_tokens)}
    units = units_of(context.visible)[:-1]
    return [unit for unit in units if not kept.intersection(unit.seqs)]


def safe_cover(context: Context, wanted: frozenset[int], *, task_tokens: int) -> tuple[Unit, ...]:
    """The units that are wholly among the wanted positions and may go, whoever chose the cut.

    None of them, where they are nothing but an earlier summary.
    """
    units = may_go(context, task_tokens=task_tokens)
    covered = tuple(unit for unit in units if wanted.issuperset(unit.seqs))
    return covered if hold_news(covered) else ()


def clamped(context: Context, at: int, task_tokens: int) -> int:
    """The place for a summary nearest to `at` where the kept messages stand as they must.

    That is behind what begins the session, and not behind the newest user message: the live request is the
    last thing that a user said.
    """
    newest = context.newest_user
    before = [entry for entry in protected(context, task_tokens) if entry is not newest]
    at = max(at, *(entry.at + 1 for entry in before), 0)
    return min(at, newest.at) if newest else at


def hold_news(units: Sequence[Unit]) -> bool:
    """Whether these units hold anything that no summary stands for yet."""
    return any(unit.is_said for unit in units)


def covered_ranges(context: Context, units: Sequence[Unit]) -> Ranges:
    """The positions of these units in as few ranges as leave every other visible entry out."""
    covered = {seq for unit in units for seq in unit.seqs}
    kept = [entry.seq for entry in context.visible if entry.seq not in covered]
    return ranges_between(covered, kept)


def protected(context: Context, task_tokens: int) -> list[Entry]:
    """The messages that no compaction hides, oldest first."""
    first, task, newest = context.first, context.task, context.newest_user
    kept = [first] if first and first.message.role in SYSTEM_ROLES else []
    if task and task.tokens <= task_tokens and task is not newest:
        kept.append(task)
    return [*kept, newest] if newest else kept
