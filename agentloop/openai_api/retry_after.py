"""How long a server asks to wait: https://www.rfc-editor.org/rfc/rfc9110#field.retry-after."""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

_NUMBER = re.compile(r"\s*[0-9]+(\.[0-9]+)?\s*")
_UNREADABLE = (ValueError, OverflowError, TypeError, LookupError)
"""What `parsedate_to_datetime` raises, and the dates that no calendar has."""


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long the server asks to wait, from `retry-after-ms` or `retry-after` (seconds or an HTTP date).

    Advice that cannot be read is none. Never raises.

    Example:
        >>> retry_after_seconds({"retry-after": "20"}), retry_after_seconds({"retry-after-ms": "1500"})
        (20.0, 1.5)
        >>> retry_after_seconds({"retry-after": "soon"}) is None
        True
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if _NUMBER.fullmatch(text):
            return float(text) * unit
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except _UNREADABLE:
        return None
