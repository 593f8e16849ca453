"""What a callback may ask for before a compaction: a veto, more to say, or a summary of its own."""

from dataclasses import dataclass
from typing import TypeAlias

from agentloop.errors import UsageError

MOST_FOCUS_CHARS = 4_000
"""So much may be asked of one summary; more would crowd out what is to be summarised."""


@dataclass(frozen=True, slots=True)
class Veto:
    """Do not compact now: the reason is what the result then says.

    Example:
        >>> from agentloop import Callbacks, compact_messages
        >>> class NotNow(Callbacks):
        ...     def before_compaction(self, request):
        ...         return Veto("a migration runs")
        >>> chat = [{"role": "user", "content": "What of the invoice of May? " * 9} for _ in range(30)]
        >>> compact_messages(chat, window="8k", callbacks=[NotNow()]).results[0].error
        'a migration runs'

    Raises:
        UsageError: the reason is no text.
    """

    reason: str

    def __post_init__(self) -> None:
        _text_of(self, self.reason)


@dataclass(frozen=True, slots=True)
class Focus:
    """More to ask of the summary, beside what a person or the model asked of it.

    Example:
        >>> Focus("keep every ticket number").text
        'keep every ticket number'

    Raises:
        UsageError: the text is none, or longer than `MOST_FOCUS_CHARS` characters.
    """

    text: str

    def __post_init__(self) -> None:
        if (length := len(_text_of(self, self.text))) > MOST_FOCUS_CHARS:
            raise UsageError(
                f"Focus takes at most {MOST_FOCUS_CHARS:,} characters, not {length:,}: ask for less"
            )


@dataclass(frozen=True, slots=True)
class Replace:
    """Use this text as the summary; the model is not asked.

    Example:
        >>> from agentloop import Callbacks, compact_messages
        >>> class Brief(Callbacks):
        ...     def before_compaction(self, request):
        ...         return Replace("All about the invoice of May.")
        >>> chat = [{"role": "user", "content": "What of the invoice of May? " * 9} for _ in range(30)]
        >>> short = compact_messages(chat, window="8k", callbacks=[Brief()])
        >>> "All about the invoice of May." in short.results[0].summary
        True

    Raises:
        UsageError: the summary is blank or no text.
    """

    summary: str

    def __post_init__(self) -> None:
        if not _text_of(self, self.summary).strip():
            raise UsageError("Replace takes a summary that says something: return a Veto to keep everything")


def _text_of(reply: "Veto | Focus | Replace", value: object) -> str:
    if isinstance(value, str):
        return value
    raise UsageError(f"{type(reply).__name__} takes a text, not {type(value).__name__}")


Reply: TypeAlias = Veto | Focus | Replace | None
"""What a `before_compaction` may return."""
