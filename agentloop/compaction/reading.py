"""What a summariser reads: the covered messages as labelled text, in chunks that fit its window."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from agentloop._plumbing.truncate import head
from agentloop.context import Entry, Labelled, TokenCounter, render
from agentloop.prompts import CONTINUED

MAX_CHUNKS = 6
"""The most chunks of one reading; the records of several chunks are made into one by one more request."""

RESULT_CHARS = (2_000, 500, 150)
"""What is read of one result or one call's arguments, head and tail together: the most that fits."""

WHOLE = sys.maxsize

LEAST_ROOM = 200

SHARE_OF_RECORDS = 0.5
"""Earlier records wait for the last request while they take at most this share of it."""

BETWEEN = "\n\n"
BETWEEN_TOKENS = 2

LONGEST_WORD = 100

_ORDER = {"user": 0, "assistant": 1}

Part: TypeAlias = tuple[Labelled, int]
"""What is read at a stretch, and how many tokens it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The chunks to read, and the positions of what even `MAX_CHUNKS` of them could not hold.

    `records` are earlier records that are not in the chunks: they wait for the request that makes one record
    of all.
    """

    chunks: tuple[tuple[Labelled, ...], ...]
    records: str = ""
    unread: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Block:
    """One message as it is read, in parts that fit into a chunk; without any where it is too long for all."""

    seq: int
    order: int
    whole: tuple[Labelled, ...]
    parts: tuple[Part, ...]
    tokens: int


def reading_of(
    entries: Sequence[Entry],
    *,
    room: int,
    chunk_tokens: int | None = None,
    message_chars: int | None = None,
    result_chars: int = RESULT_CHARS[0],
    counter: TokenCounter,
) -> Reading:
    """The entries in as few chunks as they need: one, with earlier records first, where one request has room.

    A chunk has at most `room` tokens, and at most `chunk_tokens` where that is less. What a user or the
    assistant said is capped at `message_chars` characters, head and tail together, results and arguments at
    `result_chars`, or at the first of the smaller `RESULT_CHARS` with which everything can be read.

    User and assistant text is whole, and in one chunk where a chunk has room for it; results and arguments
    give way first. Where what was said is still too much, whole messages are left out: results before
    assistant text before user text, oldest first.
    """
    said = [entry for entry in entries if entry.kind != "note"]
    most = max(room, LEAST_ROOM)
    chunk = min(most, chunk_tokens or most)
    blocks: list[_Block] = []
    for chars in (result_chars, *(chars for chars in RESULT_CHARS if chars < result_chars)):
        rendered = render(said, max_result_chars=chars, max_chars=message_chars or WHOLE)
        blocks = list(_blocks(said, rendered, chunk, counter))
        if reading := _together(blocks, most, chunk) or _apart(blocks, most, chunk):
            return reading
    return _most_telling(blocks, most, chunk)


def _blocks(
    entries: Sequence[Entry], rendered: Iterable[tuple[Labelled, ...]], chunk: int, counter: TokenCounter
) -> Iterator[_Block]:
    for entry, whole in zip(entries, rendered, strict=True):
        sizes = [counter(str(each)) + BETWEEN_TOKENS for each in whole]
        parts = zip(whole, sizes, strict=True) if sum(sizes) <= chunk * MAX_CHUNKS else ()
        yield _Block(
            seq=entry.seq,
            order=-1 if entry.kind == "summary" else _ORDER.get(entry.original.role, 2),
            whole=whole,
            parts=tuple(part for each, tokens in parts for part in _split(each, tokens, chunk, counter)),
            tokens=sum(sizes),
        )


def _split(whole: Labelled, tokens: int, chunk: int, counter: TokenCounter) -> Iterator[Part]:
    """What is said in parts that fit, each but the first marked as continued; it is cut between words."""
    lead = f"{CONTINUED} "
    text, least = whole.text, len(lead) + 1
    while tokens > chunk and len(text) > least:
        part = _head(text, len(text) * chunk // tokens, least=least)
        while (size := _size(whole, part, counter)) > chunk and len(part) > least:
            part = _head(text, len(part) * 9 // 10, least=least)
        yield replace(whole, text=part), size
        text = lead + text[len(part) :]
        tokens = _size(whole, text, counter)
    yield replace(whole, text=text), tokens


def _size(whole: Labelled, text: str, counter: TokenCounter) -> int:
    return counter(str(replace(whole, text=text))) + BETWEEN_TOKENS


def _head(text: str, chars: int, *, least: int) -> str:
    """The first `chars` characters or a few less, so that no word is parted; never fewer than `least`."""
    chars = max(chars, least)
    start = max(least, chars - LONGEST_WORD)
    at_blank = max(text.rfind(" ", start, chars), text.rfind("\n", start, chars)) + 1
    return text[:at_blank] if at_blank else head(text, chars) or text[:chars]


def _together(blocks: Sequence[_Block], room: int, chunk: int) -> Reading | None:
    """All in one request, earlier records first."""
    new = sum(block.tokens for block in blocks if block.order >= 0)
    if new > chunk or sum(block.tokens for block in blocks) > room:
        return None
    first = sorted(blocks, key=lambda block: block.order >= 0)
    return Reading(chunks=(tuple(each for block in first for each in block.whole),) if blocks else ())


def _apart(blocks: Sequence[_Block], room: int, chunk: int) -> Reading | None:
    """In chunks; earlier records wait, unless they take too much of the last request."""
    records = [block for block in blocks if block.order < 0]
    few = sum(block.tokens for block in records) <= room * SHARE_OF_RECORDS
    wait = few or not all(block.parts for block in records)
    read = [block for block in blocks if block.order >= 0 or not wait]
    chunks = _packed(read, chunk) if all(block.parts for block in read) else None
    if chunks is None:
        return None
    waiting = (each.text for block in records for each in block.whole if wait)
    return Reading(chunks=chunks, records=BETWEEN.join(waiting))


def _packed(blocks: Iterable[_Block], chunk: int) -> tuple[tuple[Labelled, ...], ...] | None:
    """The blocks packed in their order; None where that takes more than `MAX_CHUNKS`."""
    packed: list[list[Labelled]] = []
    left = 0
    for part, tokens in (part for block in blocks for part in block.parts):
        if tokens > left or not packed:
            packed.append([])
            left = chunk
        packed[-1].append(part)
        left -= tokens
    return tuple(map(tuple, packed)) if len(packed) <= MAX_CHUNKS else None


def _most_telling(blocks: Sequence[_Block], room: int, chunk: int) -> Reading:
    """As many as can be read, those that tell most before the others."""
    left, chosen = chunk * MAX_CHUNKS, []
    for at in sorted(range(len(blocks)), key=lambda at: (blocks[at].order, -at)):
        if blocks[at].order < 0:
            chosen.append(at)
        elif blocks[at].parts and blocks[at].tokens <= left:
            left -= blocks[at].tokens
            chosen.append(at)
    few, many = 0, len(chosen)
    while few < many:
        middle = (few + many + 1) // 2
        fits = _apart([blocks[at] for at in sorted(chosen[:middle])], room, chunk)
        few, many = (middle, many) if fits else (few, middle - 1)
    read = set(chosen[:few])
    reading = _apart([blocks[at] for at in sorted(read)], room, chunk) or Reading(chunks=())
    unread = (block.seq for at, block in enumerate(blocks) if at not in read)
    return replace(reading, unread=tuple(unread))
