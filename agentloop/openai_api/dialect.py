"""What differs between servers in the form of a request."""

from dataclasses import dataclass, replace

from agentloop.errors import ModelRefusedError
from agentloop.openai_api.errors import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between servers, learnt from a refusal and kept."""

    limit_field: str = "max_tokens"
    asks_for_usage: bool = True

    def after(self, error: ModelRefusedError) -> "Dialect":
        """The dialect to speak after this refusal; the same where it was about something else."""
        if names(error, "max_completion_tokens"):
            return replace(self, limit_field="max_completion_tokens")
        if names(error, "stream_options"):
            return replace(self, asks_for_usage=False)
        return self
