"""The fields that every request of one model carries, whichever path of the API it takes."""

import json
from collections.abc import Mapping
from typing import Any

from agentloop._plumbing.checks import at_least_or_none, shown
from agentloop._plumbing.strict_json import cleaned, encodes
from agentloop.errors import UsageError

ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""Asks for reasoning in a form that can be sent back, as the server stores nothing."""

OWN_FIELDS: Mapping[str, Any] = {
    "stream_options": {"include_usage": True},
    "include": [ENCRYPTED_REASONING],
}
"""What we ask for beside what a user asks for; an answer comes without it too.

That the server stores nothing is no such field: without `store` it may keep the whole conversation.
"""


def common_fields(temperature: float | None, extra_body: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields that every request carries, in strict UTF-8.

    Raises:
        UsageError: the temperature is no finite number of at least 0, or the others are no dict that can be
            sent as JSON.
    """
    at_least_or_none("temperature", temperature, 0)
    if not isinstance(extra_body, Mapping | None):
        raise UsageError(f"extra_body must be a dict of further fields or None, not {shown(extra_body)}")
    fields = ({} if temperature is None else {"temperature": temperature}) | dict(extra_body or {})
    try:
        text = json.dumps(fields, allow_nan=False, ensure_ascii=False)
        return fields if encodes(text) else dict(cleaned(fields))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"extra_body cannot be sent as JSON: {error}") from error
