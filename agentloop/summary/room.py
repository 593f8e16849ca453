"""The room of a summary's requests."""

from dataclasses import replace

from agentloop.context import Budget
from agentloop.models import ChatModel

PROMPT_TOKENS = 400
"""What our own texts take in a summary's request, rounded up."""

LEAST_OUTPUT = 100


def summary_budget(model: ChatModel, agent: Budget, *, longest: int) -> Budget:
    """The room of a summary's requests: the summariser's window, the longest summary as its output."""
    window = min(model.window or agent.window, agent.window) if model.name == agent.model else model.window
    window = window or agent.window
    return replace(
        agent,
        window=window,
        max_output_tokens=min(longest, longest_in(window)),
        lowered_reserve=None,
        fixed=PROMPT_TOKENS,
        model=model.name,
    )


def longest_in(window: int) -> int:
    """The longest summary in such a window: one request reads it, beside what is new, and writes it again."""
    return max(LEAST_OUTPUT, (window - PROMPT_TOKENS) // 3)


def smaller(budget: Budget, window: int | None, *, refused: int) -> Budget:
    """The budget after an overflow, in which the next request is a smaller one.

    `refused` is the request that was too long, answer included, by our own count. The window is the one that
    the server named where that explains the refusal, else half of what was refused.
    """
    known = min(budget.window, refused)
    learnt = window if window is not None and window < known else known // 2
    longest = min(budget.reserve, longest_in(learnt))
    return replace(budget, window=learnt, max_output_tokens=longest)
