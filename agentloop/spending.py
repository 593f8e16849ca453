"""What one run has used, and whether a limit on that is reached."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentloop.compaction import Took
from agentloop.context import TokenCounter, count_message
from agentloop.limits import Limits, Spent, charge, total
from agentloop.messages import Usage
from agentloop.models import Answer, ChatModel
from agentloop.stream import CompactionResult


@dataclass(slots=True, kw_only=True)
class Spending:
    """What the requests of one run used, held against `limits`; time is counted from when it is made.

    `model` answers and `writer` writes summaries; `outcomes` are what the run's compactions came to so far.
    `steps` counts the agent's answers, `answered` is what they used and `unreported` what those did that
    reported nothing; `charged` is their price as far as a limit needs it.
    """

    limits: Limits
    model: ChatModel
    writer: ChatModel
    counter: TokenCounter
    outcomes: Sequence[CompactionResult]
    steps: int = 0
    answered: Usage = field(default_factory=Usage)
    unreported: Usage = field(default_factory=Usage)
    paid: float | None = None
    charged: float | None = 0.0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.limits.clock()

    @property
    def usage(self) -> Usage:
        """What all requests used, those for summaries too."""
        return sum((outcome.usage for outcome in self.outcomes), self.answered)

    @property
    def cost(self) -> float | None:
        """What they cost in US dollars; None where no price is known."""
        costs = [self.paid, *(outcome.cost for outcome in self.outcomes)]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known else None

    def add(self, answer: Answer, counted: int) -> None:
        """Add what one request of the agent used; `counted` is its length by our own count."""
        self.steps += 1
        self.answered += answer.usage or Usage()
        used = answer.usage
        if used is None or not used.input_tokens:
            used = Usage(input_tokens=counted, output_tokens=count_message(answer.message, self.counter))
            self.unreported += used
        if answer.cost is not None:
            self.paid = (self.paid or 0.0) + answer.cost
        if self.limits.cost is not None:
            self.charged = total(self.charged, charge(self.model, used, answer.cost))

    def add_beside(self, took: Took) -> None:
        """Add what summaries took that an earlier execution of this run had written."""
        self.answered += took.usage
        self.unreported += took.unreported
        if took.cost is not None:
            self.paid = (self.paid or 0.0) + took.cost
        if self.limits.cost is not None:
            self.charged = total(self.charged, *self._charged_for(took))

    def limit_reached(self) -> str | None:
        """Which limit is reached, in words; None where the model may be asked on."""
        used = sum((outcome.unreported for outcome in self.outcomes), self.usage + self.unreported)
        spent = Spent(
            steps=self.steps,
            tokens=used.input_tokens + used.output_tokens,
            seconds=self.limits.clock() - self.started,
            cost=None if self.limits.cost is None else self._charges(),
        )
        return self.limits.reached(spent)

    def _charges(self) -> float | None:
        """What all requests cost, by their answers or by the price of who gave them."""
        return total(self.charged, *(each for took in self.outcomes for each in self._charged_for(took)))

    def _charged_for(self, took: Took | CompactionResult) -> Sequence[float | None]:
        """What a summary cost, by its answers or by the price of who wrote it."""
        parts = ((took.usage, took.cost), (took.unreported, None))
        return [charge(self.writer, usage, cost) for usage, cost in parts if usage != Usage()]
