"""Budget triggers with a limit of their own: turns, or tokens by the one number or by a counter of yours."""

from dataclasses import dataclass, field

from agentloop._plumbing.checks import called, whole
from agentloop.context import Budget, Context, Finish, Shown, TokenCounter, next_step
from agentloop.triggers.base import Fired
from agentloop.triggers.tally import Tally


@dataclass(frozen=True, slots=True)
class TurnCount:
    """Fires when more than `turns` complete turns stand behind the newest summary.

    A turn begins with a real user's message on the main line: summaries and what sub-agents were told begin
    none. The newest is complete once the model's answer ended it.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = [Message.user("hi"), Message.assistant("hello"), Message.user("and now?")]
        >>> events = [MessageAdded(message=message, tokens=8) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(events, 1))
        >>> budget = Budget(window=8_000, fixed=100, model="m")
        >>> TurnCount(0)(context, budget)
        Fired(why='complete turns 1 > 0', reason='threshold')
        >>> TurnCount(20)(context, budget)

    Raises:
        UsageError: `turns` is no whole number of at least 0.
    """

    turns: int

    def __post_init__(self) -> None:
        whole("turns", self.turns, 0)

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        if context.turns <= self.turns:
            return None
        answered = isinstance(next_step(Shown(context.said)), Finish)
        turns = context.turns if answered else context.turns - 1
        return Fired(f"complete turns {turns:,} > {self.turns:,}") if turns > self.turns else None


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Fires at `tokens` or above.

    Without a counter what is measured is the next request, fixed part included, by `budget.size`. With one it
    is what the visible messages say: their text, and names and arguments of their calls, as the counter
    counts them; it is asked about each text once in its life, and images count nothing. What it said is
    remembered beside the value, shared by all that hold it, and no part of what compares: several threads may
    ask at once, and at worst a text is counted once in each.

    Example:
        >>> TokenCount(4000)(Context(), Budget(window=8_000, fixed=4_012, model="m"))
        Fired(why='tokens 4,012 >= 4,000', reason='threshold')
        >>> TokenCount(4000, counter=len)(Context(), Budget(window=8_000, fixed=4_012, model="m"))

    Raises:
        UsageError: `tokens` is no whole number of at least 1, or the counter cannot be called.
    """

    tokens: int
    counter: TokenCounter | None = field(default=None, repr=False)
    _tally: Tally | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        whole("tokens", self.tokens, 1)
        if self.counter is not None:
            called("counter", self.counter, "a function that gives the tokens of a text")
        object.__setattr__(self, "_tally", Tally(self.counter) if self.counter else None)

    def threshold(self, budget: Budget, /) -> int | None:
        """The limit itself; None with a counter, since what that counts is no size of a request."""
        return None if self._tally else self.tokens

    def __call__(self, context: Context, budget: Budget, /) -> Fired | None:
        if self._tally is None:
            tokens, words = budget.size(context), ""
        else:
            tokens, words = self._tally(context), ", by the trigger's own counter"
        return Fired(f"tokens {tokens:,} >= {self.tokens:,}{words}") if tokens >= self.tokens else None
