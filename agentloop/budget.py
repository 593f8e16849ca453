"""How much room there is, in tokens: the one number that decides everything."""

from dataclasses import dataclass
from math import ceil

from agentloop.context import Context

TARGET = 0.5
"""Where clearing and compaction bring a request to: this share of the largest that may be sent."""

SHARE_OF_TASK = 0.1
"""The session's first user message stays verbatim while it takes at most this share of the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a request may hold.

    `window` is the most tokens the model takes, answer included; `reserve` is kept free for the answer;
    `fixed` is the size of instructions, tool schemas and overhead, by our own count. `model` names whose
    reports sizes rest on; `least_ratio` is the provider's count over ours that an overflow has proved.
    """

    window: int
    reserve: int
    fixed: int
    model: str
    least_ratio: float = 1.0

    @property
    def limit(self) -> int:
        """The largest request that may be sent."""
        return self.window - self.reserve

    @property
    def room(self) -> int:
        """What the limit leaves for the context."""
        return max(0, self.limit - self.fixed)

    @property
    def task_share(self) -> int:
        """Up to this length the session's first user message stays verbatim."""
        return int(self.window * SHARE_OF_TASK)

    def counted(self, context: Context) -> int:
        """The next request by our own count."""
        return self.fixed + context.tokens

    def size(self, context: Context) -> int:
        """The next request, resting on the provider's last count where that still holds.

        What was added since, or everything where no report holds, is our count, raised by the ratio by
        which this provider was last seen to count more than we do.
        """
        counted = self.counted(context)
        ratio = self.ratio(context)
        anchor = context.anchor
        if anchor and anchor.model == self.model and counted >= anchor.counted:
            return anchor.measured + ceil(ratio * (counted - anchor.counted))
        return ceil(ratio * counted)

    def own(self, tokens: int, context: Context) -> int:
        """A number of the provider's tokens in tokens of our own count."""
        return int(tokens / self.ratio(context))

    def ratio(self, context: Context) -> float:
        """By how much the provider counts more than we do; never below 1."""
        return max(1.0, self.least_ratio, context.ratios.get(self.model, 1.0))

    def measured(self, context: Context) -> bool:
        """Whether `size` rests on the provider's count of this very context."""
        return context.anchor is not None and context.anchor.model == self.model


def default_reserve(window: int, max_output_tokens: int | None) -> int:
    """What is kept free for the answer: its limit where it has one, else an eighth up to 4,096."""
    return min(max_output_tokens or min(4096, window // 8), window // 2)
