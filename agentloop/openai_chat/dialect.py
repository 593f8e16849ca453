"""What differs between servers in the form of a request, and the fields that every request carries."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentloop.errors import ModelRefusedError, UsageError
from agentloop.openai_chat.errors import names


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


def checked_fields(extra_body: Mapping[str, Any], temperature: float | None) -> dict[str, Any]:
    """The fields that every request carries.

    Raises:
        UsageError: they cannot be sent as JSON.
    """
    fields = ({} if temperature is None else {"temperature": temperature}) | dict(extra_body)
    try:
        json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"extra_body or temperature cannot be sent as JSON: {error}") from error
    return fields
