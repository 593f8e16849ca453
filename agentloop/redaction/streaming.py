"""A redaction at work on a text that comes in pieces or is cut."""

from collections.abc import Iterable
from itertools import takewhile
from typing import Protocol, runtime_checkable

from agentloop.redaction.secrets import Redact
from agentloop.redaction.shapes import has_break

_GROWTH = 8
"""What is held back is looked at again once it has grown by one part in so many."""


@runtime_checkable
class HoldsBack(Protocol):
    """A redaction that knows how much of a text can be shown before the rest is there."""

    def settled(self, text: str, /) -> int:
        """How many characters what follows can change no more; they can be redacted by themselves."""
        ...


class Held:
    """Holds back what may still become a secret, so that no piece shows a part of one.

    All that is shown, joined, is the redacted whole. A redaction that does not say what is settled gets the
    whole at the end. What is held back is looked at again at a blank, and where it is long only once it has
    grown by an eighth: all looks together take time linear in the text.
    """

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._pieces: list[str] = []
        self._chars = self._next_look = 0

    def add(self, piece: str) -> str:
        """What can be shown with this piece; it is often nothing."""
        self._pieces.append(piece)
        self._chars += len(piece)
        if not isinstance(self._redact, HoldsBack) or self._chars < self._next_look or not has_break(piece):
            return ""
        text = "".join(self._pieces)
        end = self._redact.settled(text)
        self._keep(text[end:])
        return self._redact(text[:end])

    def rest(self) -> str:
        """What is left, now that nothing follows."""
        text = self._redact("".join(self._pieces))
        self.drop()
        return text

    def drop(self) -> None:
        """Forget what is held back."""
        self._keep("")

    def _keep(self, text: str) -> None:
        self._pieces = [text]
        self._chars = len(text)
        self._next_look = len(text) + len(text) // _GROWTH


SLACK_CHARS = 32 * 1024
"""So much beyond a cut is looked at; a secret that is longer may be shown in part."""


def head_before(text: str, slack: int, redact: Redact) -> str:
    """The text without its last `slack` characters, redacted as the whole is.

    Of a secret that the cut goes through nothing is left: it is as far as the text and its part agree.
    """
    whole, part = redact(text), redact(text[: max(0, len(text) - slack)])
    return part[: _agreeing(whole, part)]


def tail_behind(text: str, slack: int, redact: Redact) -> str:
    """The same for the text without its first `slack` characters."""
    whole, part = redact(text), redact(text[slack:])
    return part[len(part) - _agreeing(reversed(whole), reversed(part)) :]


def _agreeing(one: Iterable[str], other: Iterable[str]) -> int:
    """How many letters both have before they differ."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
