"""What a context is made of: entries, and sequences that grow."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Literal, TypeVar, overload

from agentloop._plumbing.processes import free_in_forks
from agentloop.messages import Message

Kind = Literal["said", "summary", "note"]
"""Said by somebody; a record of what is covered; words around such a record, which say nothing themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message in sight.

    `message` is how it is shown and `tokens` the length of that; `original` is what the log holds. `at`
    orders entries: a position for what was said, the place given by its compaction for what stands instead.
    `time` is when it was said, in seconds since the epoch.
    """

    seq: int
    message: Message
    tokens: int
    original: Message
    kind: Kind = "said"
    at: int = 0
    keep: bool = False
    spilled: str | None = None
    run_id: str = ""
    finish: str | None = None
    time: float = field(default=0.0, compare=False)

    @property
    def cleared(self) -> bool:
        """Whether it is shown shortened."""
        return self.message is not self.original

    @property
    def is_user(self) -> bool:
        """Whether a real user said it: summaries start no turn."""
        return self.kind == "said" and self.message.role == "user"


class Shown(Sequence[Message]):
    """Entries seen as the messages they show."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [entry.message for entry in self._entries[index]]
        return self._entries[index].message

    def __iter__(self) -> Iterator[Message]:
        return (entry.message for entry in self._entries)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """The entries as they stand in the context: a summary right before what it was placed at."""
    return sorted(entries, key=lambda entry: (entry.at, entry.kind == "said", entry.seq))


T = TypeVar("T")

_GROWTH = free_in_forks(threading.Lock())
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
