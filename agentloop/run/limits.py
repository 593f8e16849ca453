"""Limits of a run, and what it has used of them."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain
from typing import Any

from agentloop._plumbing.checks import finite_above_zero_or_none, instance_or_none, whole_or_none
from agentloop.context import TokenCounter, count_message
from agentloop.errors import UsageError
from agentloop.messages import ToolCall, Usage
from agentloop.models import Answer, ChatModel, Priced, Used
from agentloop.stream import CompactionResult, LimitName


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has used so far: answers to the agent, tokens, seconds, and US dollars.

    `cost` is None where a request was answered and nobody can tell what it cost. `repeats` is how often one
    call gave the same result, at most, and `repeated` its tool.
    """

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cost: float | None = 0.0
    repeats: int = 0
    repeated: str = ""


@dataclass(frozen=True, slots=True)
class ReachedLimit:
    """A limit that a run has reached, by its name in `Limits`, and in words with its figures."""

    name: LimitName
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one call of `run`, `stream` or `resume` may use; each is None for no limit.

    `steps` are answers to the agent, where None the agent's `max_steps`; `tokens` are those of all requests
    and answers, `cost` is their price in US dollars, those for summaries counted too; `seconds` are measured
    by `clock` from the start of that call; `repeats` are results of one tool for the same arguments that are
    the same, too, counted over compactions. They are looked at before each step that asks the model, seconds
    and repeats before each call too: at a limit the run ends in order with the status `limit`, and what is
    under way is never cut off, so the last step may go beyond. Going on with `resume` begins to count anew; a
    worker that takes over a durable run counts on, but for repeats and what finished sub-agents used.

    Tokens and cost are what the provider reports. Where it reports nothing, our own count of requests and
    answers takes its place. A limit on cost is refused before anything is sent where the model says that its
    price is not known (`models.Priced`); a model that says nothing of prices is held to the costs in its
    answers, and an answer without one ends the run.

    Example:
        >>> Limits(tokens=200_000, cost=0.5).reached(Spent(tokens=203_411, cost=0.12)).words
        'the limit of 200,000 tokens is reached: 203,411 are used'
        >>> Limits(tokens=200_000, cost=0.5).reached(Spent(tokens=90_000, cost=0.12))

    Raises:
        UsageError: `steps` or `tokens` is no whole number of at least 1, `repeats` none of at least 2, or
            `seconds` or `cost` no finite number above 0.
    """

    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    repeats: int | None = None
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole_or_none("steps", self.steps, 1)
        whole_or_none("tokens", self.tokens, 1)
        finite_above_zero_or_none("seconds", self.seconds)
        finite_above_zero_or_none("cost", self.cost)
        whole_or_none("repeats", self.repeats, 2)

    def reached(self, spent: Spent) -> ReachedLimit | None:
        """Which limit is reached; None where another step may be made."""
        return next((ReachedLimit(name, words) for name, words in self._reasons(spent)), None)

    def _reasons(self, spent: Spent) -> Iterator[tuple[LimitName, str]]:
        if self.steps is not None and spent.steps >= self.steps:
            yield (
                "steps",
                f"the limit of {self.steps:,} model call{'' if self.steps == 1 else 's'} is reached",
            )
        if self.tokens is not None and spent.tokens >= self.tokens:
            yield "tokens", f"the limit of {self.tokens:,} tokens is reached: {spent.tokens:,} are used"
        if self.seconds is not None and spent.seconds >= self.seconds:
            over = f"{spent.seconds:,.1f}" if spent.seconds >= 1 else f"{spent.seconds:.2g}"
            yield "seconds", f"the limit of {self.seconds:,g} seconds is reached: {over} are over"
        if self.cost is not None and spent.cost is None:
            yield "cost", f"the limit of ${self.cost:,g} cannot be held: the model does not say what it cost"
        elif self.cost is not None and spent.cost is not None and spent.cost >= self.cost:
            yield "cost", f"the limit of ${self.cost:,g} is reached: ${spent.cost:,.4f} are spent"
        if self.repeats is not None and spent.repeats >= self.repeats:
            words = f"the limit of {self.repeats:,} repeats is reached: {spent.repeated} gave the same again"
            yield "repeats", words


def with_step_limit(limits: Limits | None, most_steps: int) -> Limits:
    """These limits, with at most so many steps where they say nothing of that.

    Raises:
        UsageError: they are none.
    """
    instance_or_none("limits", limits, Limits)
    limits = limits or Limits()
    return limits if limits.steps is not None else replace(limits, steps=most_steps)


def check_priced(limits: Limits, *models: ChatModel) -> None:
    """Refuse a limit on cost where nobody would know what these models cost.

    Raises:
        UsageError: one of them says that its price is not known.
    """
    if limits.cost is None:
        return
    for model in models:
        if isinstance(model, Priced) and model.price(Usage()) is None:
            raise UsageError(
                f"a limit on cost cannot be held: the price of {model.name!r} is not known; limit tokens, "
                "or say what it costs: OpenAIChat(…, price=Price(input=…, output=…))"
            )


def charge(model: ChatModel, usage: Usage, cost: float | None) -> float | None:
    """What a request cost in US dollars: as its answer says, else by the model's price, else None."""
    if cost is not None:
        return cost
    return model.price(usage) if isinstance(model, Priced) else None


def total(*charges: float | None) -> float | None:
    """All of them together, None where one is not known."""
    known = [charge for charge in charges if charge is not None]
    return sum(known) if len(known) == len(charges) else None


@dataclass(slots=True, kw_only=True)
class Spending:
    """What the requests of one run used, held against `limits`; time is counted from when it is made.

    `model` answers and `writer` writes summaries; `outcomes` are what the run's compactions came to so far.
    `steps` counts the agent's answers, `answered` is what they used; `charged` is their price as far as a
    limit needs it. `results` says how often each call, by its tool and arguments, gave which result, of which
    a hash is kept; `repeats` is the most of these, `repeated` its tool. What sub-agents used in the run
    (`children`) is a part of it all, but for steps and repeats; `parent` is that of the run that calls this
    one as a sub-agent.
    """

    limits: Limits
    model: ChatModel
    writer: ChatModel
    counter: TokenCounter
    outcomes: Sequence[CompactionResult]
    steps: int = 0
    answered: Used = field(default_factory=Used)
    charged: float | None = 0.0
    results: Counter[tuple[str, str, str]] = field(default_factory=Counter, repr=False)
    repeats: int = 0
    repeated: str = ""
    parent: "Spending | None" = field(default=None, repr=False, compare=False)
    children: "list[Spending]" = field(default_factory=list)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.limits.clock()
        if self.parent is not None:
            self.parent.children.append(self)

    @property
    def usage(self) -> Usage:
        """What all requests used, those for summaries too."""
        return sum((used.usage for used in self._all_used()), Usage())

    @property
    def cost(self) -> float | None:
        """What they cost in US dollars; None where no price is known."""
        known = [used.cost for used in self._all_used() if used.cost is not None]
        return sum(known) if known else None

    def add(self, answer: Answer, counted: int) -> None:
        """Add what one request of the agent used; `counted` is its length by our own count."""
        self.steps += 1
        usage, unreported = answer.usage or Usage(), Usage()
        if not usage.input_tokens:
            output = count_message(answer.message, self.counter)
            unreported = Usage(input_tokens=counted, output_tokens=output)
        self.answered += Used(usage=usage, unreported=unreported, cost=answer.cost)
        if self._is_charged:
            charged = usage if usage.input_tokens else unreported
            self.charged = total(self.charged, charge(self.model, charged, answer.cost))

    def add_beside(self, used: Used) -> None:
        """Add what summaries took that an earlier execution of this run had written."""
        self.answered += used
        if self._is_charged:
            self.charged = total(self.charged, *self._charged_for(used))

    def add_result(self, call: ToolCall, text: str) -> int:
        """How often this call has now given this result."""
        result = (call.name, call.arguments, sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
        self.results[result] += 1
        if self.results[result] > self.repeats:
            self.repeats, self.repeated = self.results[result], call.name
        return self.results[result]

    def limit_reached(self) -> ReachedLimit | None:
        """Which limit is reached, here or above; None where the model may be asked on.

        The steps and repeats of a run above are its own.
        """
        own, *above = self._lineage()
        return own.limits.reached(own._spent()) or _reached_by(above, steps=0, repeats=0)

    def limit_between_calls(self) -> ReachedLimit | None:
        """Which limit is reached, here or above, that calls themselves use up: seconds, or repeats."""
        return _reached_by(self._lineage(), steps=0, tokens=0, cost=0.0)

    def _spent(self) -> Spent:
        tokens = sum((used.unreported for used in self._all_used()), self.usage)
        return Spent(
            steps=self.steps,
            tokens=tokens.input_tokens + tokens.output_tokens,
            seconds=self.limits.clock() - self.started,
            cost=None if self.limits.cost is None else self._charges(),
            repeats=self.repeats,
            repeated=self.repeated,
        )

    def _family(self) -> Iterator["Spending"]:
        """This run's and those of all sub-agents in it."""
        yield self
        for child in self.children:
            yield from child._family()

    def _lineage(self) -> Iterator["Spending"]:
        """This run's and those of the runs above it, the nearest first."""
        yield self
        if self.parent is not None:
            yield from self.parent._lineage()

    @property
    def _is_charged(self) -> bool:
        """Whether a limit on cost, here or above, needs to know what requests cost."""
        return any(each.limits.cost is not None for each in self._lineage())

    def _all_used(self) -> Iterator[Used | CompactionResult]:
        """What its answers used, and each of its compactions; those of all sub-agents in it too."""
        for each in self._family():
            yield each.answered
            yield from each.outcomes

    def _charges(self) -> float | None:
        """What all requests cost, by their answers or by the price of who gave them."""
        charges = list[float | None]()
        for each in self._family():
            charges += (each.charged, *chain.from_iterable(map(each._charged_for, each.outcomes)))
        return total(*charges)

    def _charged_for(self, used: Used | CompactionResult) -> Sequence[float | None]:
        """What a summary cost, by its answers or by the price of who wrote it."""
        parts = ((used.usage, used.cost), (used.unreported, None))
        return [charge(self.writer, usage, cost) for usage, cost in parts if usage != Usage()]


def _reached_by(runs: Iterable[Spending], **uncounted: Any) -> ReachedLimit | None:
    """The first limit of these runs that is reached, once these figures of what they spent are put aside."""
    reached = (each.limits.reached(replace(each._spent(), **uncounted)) for each in runs)
    return next(filter(None, reached), None)
