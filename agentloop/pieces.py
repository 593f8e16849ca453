"""What a summariser reads: the covered messages as labelled text, in pieces that fit its window."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentloop.entries import Entry
from agentloop.labelled import labelled
from agentloop.tokens import TokenCounter

MAX_PIECES = 6
"""The most requests of one reading."""

RESULT_CHARS = (2_000, 500, 150)
"""What is read of one result or one call's arguments, head and tail together: the most that fits."""

LEAST_ROOM = 200

_ORDER = {"user": 0, "assistant": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The pieces to read, and the positions of what even `MAX_PIECES` of them could not hold."""

    pieces: tuple[str, ...]
    unread: tuple[int, ...] = ()


def reading_of(covered: Sequence[Entry], *, room: int, counter: TokenCounter) -> Reading:
    """The covered messages in as few pieces of at most `room` tokens as they need.

    User and assistant text is whole; results and arguments give way first. Where what was said is still too
    much, whole messages are left out: results before assistant text before user text, oldest first.
    """
    room = max(room, LEAST_ROOM)
    sized: list[tuple[str, int]] = []
    for most in RESULT_CHARS:
        blocks = labelled(covered, max_result_chars=most)
        sized = [(block, counter(block) + 2) for block in blocks]
        if sum(tokens for _, tokens in sized) <= room * (MAX_PIECES - 1):
            return Reading(pieces=tuple(_packed((block for block, _ in sized), room, counter)))
    read = _most_telling(covered, [tokens for _, tokens in sized], room * (MAX_PIECES - 1))
    return Reading(
        pieces=tuple(_packed((sized[at][0] for at in sorted(read)), room, counter)),
        unread=tuple(entry.seq for at, entry in enumerate(covered) if at not in read),
    )


def _most_telling(covered: Sequence[Entry], tokens: Sequence[int], left: int) -> set[int]:
    read = set()
    for at in sorted(range(len(covered)), key=lambda at: (_ORDER.get(covered[at].original.role, 2), -at)):
        if tokens[at] <= left:
            left -= tokens[at]
            read.add(at)
    return read


def _packed(blocks: Iterable[str], room: int, counter: TokenCounter) -> Iterator[str]:
    piece: list[str] = []
    left = room
    for block in (part for whole in blocks for part in _split(whole, room, counter)):
        tokens = counter(block) + 2
        if tokens > left and piece:
            yield "\n\n".join(piece)
            piece, left = [], room
        piece.append(block)
        left -= tokens
    if piece:
        yield "\n\n".join(piece)


def _split(block: str, room: int, counter: TokenCounter) -> Iterator[str]:
    """The block in parts that fit: whole pieces stay even, whatever script they are in."""
    if len(block) < 2 or counter(block) + 2 <= room:
        yield block
        return
    middle = len(block) // 2
    yield from _split(block[:middle], room, counter)
    yield from _split(block[middle:], room, counter)
