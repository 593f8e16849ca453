"""What a function makes of texts, remembered without the texts."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_REMEMBERED = 16_384
"""Of so many texts, twice over: more than a window of a million tokens shows."""


class Remembered(Generic[T]):
    """A function of a text that is asked about no text twice, as long as not too many others came.

    A text is known by its hash and length, and not kept itself. What is made of it is shared, and must not be
    changed. Safe to share between threads: where two ask about the same text at once, both write the same.
    """

    __slots__ = ("_make", "_new", "_old")

    def __init__(self, make: Callable[[str], T]) -> None:
        self._make = make
        self._new: dict[tuple[int, int], T] = {}
        self._old: dict[tuple[int, int], T] = {}

    def __call__(self, text: str) -> T:
        key = hash(text), len(text)
        if key in (new := self._new):
            return new[key]
        old = self._old
        found = old[key] if key in old else self._make(text)
        if len(self._new) >= MOST_REMEMBERED:
            self._new, self._old = {}, self._new
        self._new[key] = found
        return found
