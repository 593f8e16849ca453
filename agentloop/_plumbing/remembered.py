"""What a function makes of texts, remembered without the texts."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_REMEMBERED = 32_768
"""Of so many texts, twice over: more than a window of a million tokens shows."""


class Remembered(Generic[T]):
    """A function of a text that is asked about no text twice, as long as no more than `most` others came.

    A text is known by its hash and length, so that none is kept alive beyond its session. Safe to share
    between threads: where two ask about the same text at once, both write the same.
    """

    __slots__ = ("_make", "_most", "_new", "_old")

    def __init__(self, make: Callable[[str], T], most: int = MOST_REMEMBERED) -> None:
        self._make = make
        self._most = most
        self._new: dict[tuple[int, int], T] = {}
        self._old: dict[tuple[int, int], T] = {}

    def __call__(self, text: str) -> T:
        key = hash(text), len(text)
        if (found := self._new.get(key)) is not None:
            return found
        found = self._old.get(key)
        found = self._make(text) if found is None else found
        if len(self._new) >= self._most:
            self._new, self._old = {}, self._new
        self._new[key] = found
        return found
