"""What stands instead of what a compaction covers: descriptions, which the compactor carries out."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from agentloop.checks import whole
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

    `style` "record" sorts what was said and done; "lines" has one line for each turn.

    >>> Digest(max_tokens=500).style
    'record'

    Raises:
        UsageError: `max_tokens` is below 20.
    """

    max_tokens: int | None = None
    style: Literal["record", "lines"] = "record"

    def __post_init__(self) -> None:
        whole("max_tokens", self.max_tokens, 20)
        if self.style not in ("record", "lines"):
            raise UsageError(f"style must be 'record' or 'lines', not {self.style!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Written by a model from the log, with an index of identifiers beside it.

    `max_tokens` is the longest summary (None: by the policy); `system` and `instruction` replace our own
    texts; `shadow` is what a user is shown to have asked, with the summary as the assistant's answer (None:
    one user message holds it). The input is read in pieces of at most `piece_tokens`, each message capped at
    `message_chars`, after each of `trims`. Where the text is refused, or no model is to be had, `on_failure`
    stands instead; None leaves everything as it was.

    >>> Summary(max_tokens=1_000, on_failure=Digest()).on_failure
    Digest(max_tokens=None, style='record')

    Raises:
        UsageError: a number is below its least: 20 tokens, 100 characters.
    """

    max_tokens: int | None = None
    system: str | None = None
    instruction: str | None = None
    shadow: str | None = None
    piece_tokens: int | None = None
    message_chars: int | None = None
    trims: tuple[Trim, ...] = ()
    on_failure: Digest | Note | None = None

    def __post_init__(self) -> None:
        whole("max_tokens", self.max_tokens, 20)
        whole("piece_tokens", self.piece_tokens, 20)
        whole("message_chars", self.message_chars, 100)


Instead: TypeAlias = Summary | Digest | Note
