"""A sequence that only grows, so that many versions of it can share one list."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class Growing(Sequence[T], Generic[T]):
    """An immutable sequence whose `plus` costs what is added, not what is there.

    Versions made one from the other share their items; a second growth of an old version copies.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def plus(self, *items: T) -> "Growing[T]":
        """This sequence with these items at its end."""
        if not items:
            return self
        grown: Growing[T] = Growing()
        grown._items = self._items if len(self._items) == self._length else self._items[: self._length]
        grown._items.extend(items)
        grown._length = self._length + len(items)
        return grown

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> "Sequence[T]": ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self._items[at] for at in range(*index.indices(self._length))]
        return self._items[range(self._length)[index]]

    def __iter__(self) -> Iterator[T]:
        for at in range(self._length):
            yield self._items[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Growing) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
