"""What stands in the context: messages as they are shown, and as the log holds them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, overload

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
