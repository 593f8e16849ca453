"""A redaction of all that a run says; a user's own one, checked."""

import inspect
from dataclasses import dataclass
from typing import Any, TypeVar

from agentloop._plumbing.checks import shown
from agentloop.errors import UsageError
from agentloop.redaction.secrets import Redact, Secrets
from agentloop.redaction.streaming import Held, HoldsBack
from agentloop.redaction.values import redact_error, redacted, redacted_or_said_why

T = TypeVar("T")

_PROBE = "text"


@dataclass(frozen=True, slots=True)
class Redaction:
    """A redaction of all that a run says; without `redact` nothing is hidden."""

    redact: Redact | None = None

    def hide(self, value: T) -> T:
        """See `redacted`."""
        return redacted(value, self.redact)

    def hide_or_say_why(self, value: T) -> T:
        """See `redacted_or_said_why`."""
        return redacted_or_said_why(value, self.redact)

    def hide_in(self, error: BaseException) -> None:
        """See `redact_error`."""
        redact_error(error, self.redact)

    def held(self) -> Held | None:
        """What holds back a text in pieces, None where all can be shown at once."""
        return Held(self.redact) if self.redact else None


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
