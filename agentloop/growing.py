"""A sequence and a set that only grow, so that many versions of one can share their items."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar, overload

T = TypeVar("T")

_GROWTH = threading.Lock()
"""Two threads may grow one version; which of them shares its items is decided once."""


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
        with _GROWTH:
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


class GrowingSet(Generic[T]):
    """An immutable set whose `plus` costs what is added, shared between versions as `Growing` is."""

    __slots__ = ("_places", "_size")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._places = {item: place for place, item in enumerate(dict.fromkeys(items))}
        self._size = len(self._places)

    def plus(self, *items: T) -> "GrowingSet[T]":
        """This set with these items too."""
        new = [item for item in dict.fromkeys(items) if item not in self]
        if not new:
            return self
        grown: GrowingSet[T] = GrowingSet()
        with _GROWTH:
            shared = len(self._places) == self._size
            grown._places = self._places if shared else {item: at for at, item in enumerate(self)}
            grown._places.update((item, at) for at, item in enumerate(new, self._size))
        grown._size = self._size + len(new)
        return grown

    def __len__(self) -> int:
        return self._size

    def __contains__(self, item: object) -> bool:
        return self._places.get(item, self._size) < self._size  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        return islice(self._places, self._size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GrowingSet) and set(self) == set(other)

    __hash__ = None  # type: ignore[assignment]
