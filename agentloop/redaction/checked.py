"""A redaction of somebody else: refused where it is none, ended by one clear error where it fails later."""

import inspect
from dataclasses import dataclass
from typing import Any

from agentloop._plumbing.checks import shown
from agentloop.errors import UsageError
from agentloop.redaction.held import HoldsBack
from agentloop.redaction.secrets import Redact, Secrets

_PROBE = "text"


def checked_redaction(given: object) -> Redact:
    """The redaction given; later each failure of it is a `UsageError` that repeats no text.

    Raises:
        UsageError: it is no function, or fails for a text or gives none.
    """
    if isinstance(given, Secrets | _Checked):
        return given
    if not callable(given) or isinstance(given, type):
        raise UsageError(f"redact must be a function from text to text such as Secrets(), not {shown(given)}")
    checked = _Holding(given) if isinstance(given, HoldsBack) else _Checked(given)
    checked(_PROBE)
    return checked


@dataclass(frozen=True, slots=True)
class _Checked:
    """Gives a text, or raises a UsageError."""

    given: Any

    def __call__(self, text: str, /) -> str:
        try:
            clean = self.given(text)
        except Exception as error:  # noqa: BLE001 — it may raise anything, and its words may hold the text
            raise UsageError(f"redact must take any text: it raised {type(error).__name__}") from None
        if inspect.iscoroutine(clean):
            clean.close()
        if not isinstance(clean, str):
            raise UsageError(f"redact must give a text for a text, not {type(clean).__name__}")
        return clean


class _Holding(_Checked):
    """One that says what can be shown already, too."""

    __slots__ = ()

    def settled(self, text: str, /) -> int:
        """How much is settled; nothing where that cannot be told."""
        try:
            end = self.given.settled(text)
        except Exception as error:  # noqa: BLE001 — as above
            raise UsageError(f"redact.settled must take any text: it raised {type(error).__name__}") from None
        if not isinstance(end, int) or not 0 <= end <= len(text):
            raise UsageError("redact.settled must give a place in the text")
        return end
