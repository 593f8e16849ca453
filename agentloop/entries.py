"""What stands in the context: messages as they are shown, and as the log holds them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from agentloop.messages import Message
from agentloop.prompts import ACKNOWLEDGEMENT, ACKNOWLEDGEMENT_TOKENS

Kind = Literal["said", "summary", "acknowledgement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message in sight.

    `message` is how it is shown and `tokens` the length of that; `original` is what the log holds. `at`
    orders entries: a position for what was said, the place given by its compaction for a summary. An
    acknowledgement, which no record holds, has the position of the entry that it stands before.
    """

    seq: int
    message: Message
    tokens: int
    original: Message
    kind: Kind = "said"
    at: int = 0
    keep: bool = False
    spilled: str | None = None

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


def acknowledged(entries: Iterable[Entry]) -> Iterator[Entry]:
    """In order, a short assistant message between two user messages of which one is a summary."""
    before: Entry | None = None
    for entry in sorted(entries, key=lambda entry: (entry.at, entry.kind == "said", entry.seq)):
        if entry.kind == "acknowledgement":
            continue
        if before and _speak_as_users(before, entry) and "summary" in (before.kind, entry.kind):
            yield Entry(
                seq=entry.seq,
                message=_ACKNOWLEDGED,
                tokens=ACKNOWLEDGEMENT_TOKENS,
                original=_ACKNOWLEDGED,
                kind="acknowledgement",
                at=entry.at,
            )
        yield entry
        before = entry


def _speak_as_users(*entries: Entry) -> bool:
    return all(entry.message.role == "user" for entry in entries)


_ACKNOWLEDGED = Message.assistant(ACKNOWLEDGEMENT)
