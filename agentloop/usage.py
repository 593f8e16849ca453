"""What one answer used: the tokens that a provider reported, where they can be true."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

MOST_REPORTED_TOKENS = 100_000_000
"""A report of more tokens for one request is none: ten times the largest window offered (10 million)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider reported them; `cached_tokens` is the part of the input read from its cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    @classmethod
    def from_openai(cls, data: Mapping[str, Any]) -> Self:
        """Read the `usage` object of chat completions.

        What is missing, no number, negative or above `MOST_REPORTED_TOKENS` was not reported and is 0; so is
        what is said to be cached where that is more than the whole input.
        """
        details = data.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens") if isinstance(details, Mapping) else 0)
        told = _count(data.get("prompt_tokens"))
        return cls(
            input_tokens=told,
            output_tokens=_count(data.get("completion_tokens")),
            cached_tokens=cached if cached <= told else 0,
        )

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= MOST_REPORTED_TOKENS else 0
