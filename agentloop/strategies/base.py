"""What a strategy is, and what it decides: a `Cut`, and what stands instead.

`Strategy` turns a context into a cut or None; a `Chain` is several in a row. `Summary`, `Digest`, `Lines` and
`Note` say what is to stand instead of what is covered.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol, TypeAlias, get_args

from agentloop._plumbing.callables import name_of
from agentloop._plumbing.checks import called, fraction, is_kept_whole, shown, whole, whole_or_none
from agentloop.context import (
    Budget,
    Context,
    TokenCounter,
    Unit,
    count_message,
    covered_ranges,
    hold_news,
    may_go,
    recounted,
)
from agentloop.errors import ModelError, UsageError
from agentloop.events import ClearedItem, Ranges
from agentloop.strategies.trims import Trim


@dataclass(frozen=True, slots=True)
class Note:
    """A text of your own, or one line that says how many messages are no longer shown.

    No summary stands for them. What a text of yours says is your word: nothing checks it.

    >>> Note("What was said of the draft is in draft.md.")
    Note(text='What was said of the draft is in draft.md.')

    Raises:
        UsageError: the text is blank, or none.
    """

    text: str | None = None

    def __post_init__(self) -> None:
        _check_text("text", self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A record computed from the log without a model, in at most `max_tokens` (None: what there is room for).

    It sorts what was said and done: requests, decisions, files, errors, calls.

    >>> Digest(max_tokens=500)
    Digest(max_tokens=500)

    Raises:
        UsageError: `max_tokens` is below 20.
    """

    max_tokens: int | None = None

    def __post_init__(self) -> None:
        whole_or_none("max_tokens", self.max_tokens, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """One line for each turn, made without a model: what was asked, the tools called, the last answer.

    The newest that `max_tokens` hold (None: what there is room for), oldest first.

    >>> Lines(max_tokens=500)
    Lines(max_tokens=500)

    Raises:
        UsageError: `max_tokens` is below 20.
    """

    max_tokens: int | None = None

    def __post_init__(self) -> None:
        whole_or_none("max_tokens", self.max_tokens, 20)


SummaryPrefix: TypeAlias = Literal["own", "shared"]
"""What a request for a summary begins with: words of its own, or what the agent's last request held."""

Computed: TypeAlias = Digest | Lines | Note
"""What needs no model."""

OnFailure: TypeAlias = Computed | Callable[[ModelError], Computed | None]
"""What stands where no summary can be had: it itself, or what this answers to the model's error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Written by a model from the log, with a record beside it that is computed from the log.

    `max_tokens` is the longest summary (None: by the policy); `system` and `instruction` replace our own
    texts; `shadow` is what a user is shown to have asked, with the summary as the assistant's answer (None:
    one user message holds it). The input is read in chunks of at most `chunk_tokens`, each message capped at
    `message_chars`, after each of `trims`. Where the text is refused, or the model gives none, `on_failure`
    stands instead; None leaves everything as it was. A function is called with the `ModelError`, once for
    each failure, and answers with what stands, or None. Where there is no model at all it is not called, and
    a `Digest` stands; so too while one whose summaries failed again and again is left alone.

    With `prefix="shared"` the agent's own model is asked behind the agent's own instructions, tools and
    messages, with the instruction as the last user message: what a provider has in its prompt cache is then
    paid at the cache's price. It reads what the agent sees: results that are shown shortened are reported as
    unread, and neither chunks, caps nor trims apply. It is asked in the ordinary way where another model
    writes, where that request would not fit, or where the server refuses it.

    >>> Summary(max_tokens=1_000, on_failure=Digest()).on_failure
    Digest(max_tokens=None)

    Raises:
        UsageError: a number is below its least (20 tokens, 100 characters), a text is blank, or a part is
            none.
    """

    max_tokens: int | None = None
    system: str | None = None
    instruction: str | None = None
    shadow: str | None = None
    chunk_tokens: int | None = None
    message_chars: int | None = None
    trims: tuple[Trim, ...] = ()
    on_failure: OnFailure | None = None
    prefix: SummaryPrefix = "own"

    def __post_init__(self) -> None:
        whole_or_none("max_tokens", self.max_tokens, 20)
        whole_or_none("chunk_tokens", self.chunk_tokens, 20)
        whole_or_none("message_chars", self.message_chars, 100)
        for name in ("system", "instruction", "shadow"):
            _check_text(name, getattr(self, name))
        if not isinstance(self.trims, tuple):
            raise UsageError(f"trims must be a tuple of trims, not {shown(self.trims)}")
        for trim in self.trims:
            called("each of trims", trim, "a function of entries, a room and a counter")
        if self.prefix not in get_args(SummaryPrefix):
            raise UsageError(f"prefix must be 'own' or 'shared', not {shown(self.prefix)}")
        if not isinstance(self.on_failure, Computed | None):
            called("on_failure", self.on_failure, "a Digest, Lines, a Note, None, or a function of an error")


Instead: TypeAlias = Summary | Computed


def _check_text(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and value.strip()):
        raise UsageError(f"{name} must be a text that is not blank, not {shown(value)}")


def _are_ranges(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and all(is_kept_whole(position) for position in pair)
        for pair in value
    )


NEVER = 0.0
"""The target of a chain that no request gets to: every step is carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """These positions go, and `instead` stands before the first message at or after position `at`.

    Whatever it names, what must stay stays, exchanges stay whole, and what stands instead comes before the
    newest user message. A text of your own stands there as `Note("…")`.

    `cleared` are messages that stay, shown shortened from now on; a cut may do that alone. `reads` are the
    positions that what stands instead is made from, beside earlier summaries that are covered; None: those
    covered.

    Raises:
        UsageError: a part is of the wrong kind.

    Example:
        >>> from agentloop.strategies import Note
        >>> sorted(Cut(covers=((2, 3), (6, 6)), at=7, instead=Note()).positions)
        [2, 3, 6]
    """

    covers: Ranges = ()
    at: int = 0
    instead: Instead = field(default_factory=Summary)
    cleared: tuple[ClearedItem, ...] = ()
    reads: Ranges | None = None

    def __post_init__(self) -> None:
        for name in ("covers", "reads"):
            if not _are_ranges(given := getattr(self, name)) and not (name == "reads" and given is None):
                raise UsageError(f"{name} must be pairs of positions, such as ((2, 9),), not {shown(given)}")
        whole("at", self.at, 0)
        if not isinstance(self.instead, Instead):
            raise UsageError(
                f"instead must be a Summary, a Digest, Lines or a Note, not {shown(self.instead)}: "
                'a text of your own is Note("…")'
            )
        if not isinstance(self.cleared, tuple) or not all(
            isinstance(each, ClearedItem) for each in self.cleared
        ):
            raise UsageError(f"cleared must be a tuple of ClearedItem, not {shown(self.cleared)}")

    @property
    def positions(self) -> frozenset[int]:
        """Every position it covers."""
        return frozenset(seq for first, last in self.covers for seq in range(first, last + 1))


class Strategy(Protocol):
    """Decides what is covered: any function of a context and a budget.

    Example:
        >>> from agentloop.strategies import Note, TurnWindow, first_of
        >>> def all_that_may_go(context: Context, budget: Budget) -> Cut | None:
        ...     return cut_of(context, foldable(context, budget), Note())
        >>> first_of(TurnWindow(20), all_that_may_go).name
        'first_of(TurnWindow, all_that_may_go)'
    """

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        """The cut to make, or None where there is nothing worth it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingStrategy(ABC):
    """What all our strategies are: `counter` measures what is in sight, None for the agent's own.

    With a counter all that a strategy measures, and all numbers of tokens that it takes, are by it; what is
    no longer in sight is estimated. How much a summary reads and how long it is, its model's counter says.

    Raises:
        UsageError: the counter cannot be called.
    """

    counter: TokenCounter | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.counter is not None:
            called("counter", self.counter, "a function that gives the tokens of a text")
        self._check()

    def _check(self) -> None:
        """Refuse numbers that are out of their range."""
        return

    @abstractmethod
    def _cut(self, context: Context, budget: Budget) -> Cut | None:
        """The cut to make, all lengths by one counter."""

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        if self.counter is None:
            return self._cut(context, budget)
        cut = self._cut(*recounted(context, budget, partial(_counted, self.counter)))
        return cut and replace(cut, cleared=tuple(_by(budget.counter, item) for item in cut.cleared))


def _counted(counter: TokenCounter, text: str) -> int:
    """The tokens of the text by a counter of a user's.

    Raises:
        UsageError: it gives no count.
    """
    tokens = counter(text)
    if is_kept_whole(tokens):
        return tokens
    raise UsageError(
        f"the counter {name_of(counter)} gave {shown(tokens)}: it must give a whole number of at least 0"
    )


def _by(counter: TokenCounter, item: ClearedItem) -> ClearedItem:
    """The item with its length as the log is to hold it."""
    return replace(item, tokens=count_message(item.message, counter))


@dataclass(frozen=True, slots=True)
class Chain:
    """Strategies carried out one after the other, until the request is down to the target.

    Called, it answers with the first cut that a step makes. `target` is a share of the limit; None: where
    compaction aims at anyway; `NEVER`: every step is carried out. `name` is how results call it.

    Raises:
        UsageError: there is no step, one is no strategy, or the target is not above 0 and at most 1.

    Example:
        >>> from agentloop.strategies import KeepRecentTurns, TurnWindow
        >>> budget = Budget(window=8_000, fixed=0, model="m")
        >>> Chain((TurnWindow(9), KeepRecentTurns()), target=0.4)(Context(), budget) is None
        True
    """

    steps: tuple[Strategy, ...]
    target: float | None = None
    name: str = "then"

    def __post_init__(self) -> None:
        check_strategies(self.name, self.steps)
        if self.target is not None and self.target is not NEVER:
            fraction("target", self.target)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        return next((cut for step in self.steps if (cut := step(context, budget))), None)


@dataclass(frozen=True, slots=True)
class Tiers(Chain):
    """Strategies tried in turn, each on the context as it was: the first that makes the request fit wins.

    It fits at `target`, a share of the limit; None: at the size at which the trigger fires, or at the limit.
    Where none makes it fit, the last one is carried out. Results count them from 1.

    Example:
        >>> from agentloop.strategies import KeepRecentTurns, TurnWindow
        >>> Tiers((TurnWindow(9), KeepRecentTurns())).most(Budget(window=8_000, fixed=0, model="m"))
        7000
    """

    def most(self, budget: Budget) -> int:
        """The largest request that fits, in tokens."""
        if self.target is not None:
            return int(self.target * budget.limit)
        return budget.limit if budget.threshold is None else min(budget.threshold, budget.limit)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        cut = None
        for step in self.steps:
            cut = step(context, budget) or cut
            if cut and budget.least_size(context, _saved(cut, context)) <= self.most(budget):
                break
        return cut


def _saved(cut: Cut, context: Context) -> int:
    """The most that the cut makes the context shorter by, in tokens."""
    shown, positions = {entry.seq: entry.tokens for entry in context.visible}, cut.positions
    covered = sum(entry.tokens for entry in context.visible if entry.seq in positions)
    return covered + sum(shown.get(item.seq, item.tokens) - item.tokens for item in cut.cleared)


def check_strategies(name: str, strategies: Sequence[object]) -> None:
    """Refuse none at all, and what is no strategy.

    Raises:
        UsageError: with the name of what is made of them.
    """
    if not strategies:
        raise UsageError(f"{name} must be given at least 1 strategy")
    for strategy in strategies:
        check_strategy(f"each strategy of {name}", strategy)


def check_strategy(name: str, strategy: object) -> None:
    """Refuse what is no strategy.

    Raises:
        UsageError: with that name, and a strategy to write.
    """
    called(name, strategy, such_as="KeepRecentTurns(8) of agentloop.strategies")


def foldable(context: Context, budget: Budget) -> list[Unit]:
    """What may go, oldest first: single messages, and exchanges, which go whole.

    Never among them: what begins the session, its task while that is short, the newest user message, and the
    newest exchange or answer.

    Example:
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> context = context_of(*said)
        >>> [unit.seqs for unit in foldable(context, Budget(window=8_000, fixed=0, model="m"))]
        [(2,)]
    """
    return may_go(context, task_tokens=budget.task_tokens)


def cut_of(
    context: Context, folded: Sequence[Unit], instead: Instead | None = None, *, at: int | None = None
) -> Cut | None:
    """The cut that folds these units; a `Summary` stands instead where nothing else is given.

    It stands at position `at`, or where the last of the units stood. None where they hold nothing but what
    stands for earlier ones.

    Example:
        >>> context = context_of(*[Message.user("next")] * 5)
        >>> units = foldable(context, Budget(window=8_000, fixed=0, model="m"))
        >>> cut = cut_of(context, units[1:])
        >>> cut.covers, cut.at
        (((3, 4),), 5)
    """
    if not hold_news(folded):
        return None
    behind = max(entry.at for unit in folded for entry in unit.entries) + 1
    return Cut(
        covers=covered_ranges(context, folded),
        at=behind if at is None else at,
        instead=instead or Summary(),
    )
