"""What stands instead of what a compaction covers: descriptions, which the compactor carries out."""

from dataclasses import dataclass
from typing import TypeAlias

from agentloop._plumbing.checks import called, shown, whole_or_none
from agentloop.errors import UsageError
from agentloop.trims import Trim


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One line that says how many messages are no longer shown; no summary stands for them.

    >>> Note()
    Note()
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A record computed from the log without a model, in at most `max_tokens` (None: what there is room for).

    It sorts what was said and done: requests, decisions, files, errors, calls.

    >>> Digest(max_tokens=500)
    Digest(max_tokens=500)

    Raises:
        UsageError: `max_tokens` is below 20.
    """

    max_tokens: int | None = None

    def __post_init__(self) -> None:
        whole_or_none("max_tokens", self.max_tokens, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """One line for each turn, made without a model: what was asked, the tools called, the last answer.

    The newest that `max_tokens` hold (None: what there is room for), oldest first.

    >>> Lines(max_tokens=500)
    Lines(max_tokens=500)

    Raises:
        UsageError: `max_tokens` is below 20.
    """

    max_tokens: int | None = None

    def __post_init__(self) -> None:
        whole_or_none("max_tokens", self.max_tokens, 20)


Computed: TypeAlias = Digest | Lines | Note
"""What needs no model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Written by a model from the log, with an index of identifiers beside it.

    `max_tokens` is the longest summary (None: by the policy); `system` and `instruction` replace our own
    texts; `shadow` is what a user is shown to have asked, with the summary as the assistant's answer (None:
    one user message holds it). The input is read in pieces of at most `piece_tokens`, each message capped at
    `message_chars`, after each of `trims`. Where the text is refused, or no model is to be had, `on_failure`
    stands instead; None leaves everything as it was.

    >>> Summary(max_tokens=1_000, on_failure=Digest()).on_failure
    Digest(max_tokens=None)

    Raises:
        UsageError: a number is below its least (20 tokens, 100 characters), a text is blank, or a part is
            none.
    """

    max_tokens: int | None = None
    system: str | None = None
    instruction: str | None = None
    shadow: str | None = None
    piece_tokens: int | None = None
    message_chars: int | None = None
    trims: tuple[Trim, ...] = ()
    on_failure: Computed | None = None

    def __post_init__(self) -> None:
        whole_or_none("max_tokens", self.max_tokens, 20)
        whole_or_none("piece_tokens", self.piece_tokens, 20)
        whole_or_none("message_chars", self.message_chars, 100)
        for name in ("system", "instruction", "shadow"):
            _check_text(name, getattr(self, name))
        if not isinstance(self.trims, tuple):
            raise UsageError(f"trims must be a tuple of trims, not {shown(self.trims)}")
        for trim in self.trims:
            called("each of trims", trim, "a function of entries, a room and a counter")
        if not isinstance(self.on_failure, Computed | None):
            raise UsageError(
                f"on_failure must be a Digest, Lines, a Note or None, not {shown(self.on_failure)}"
            )


Instead: TypeAlias = Summary | Computed


def _check_text(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and value.strip()):
        raise UsageError(f"{name} must be a text that is not blank, not {shown(value)}")
