"""What a summariser reads: the covered messages as labelled text, in chunks that fit its window."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.truncate import ends, head
from agentloop.context import Entry, TokenCounter, neutral, render, says_nothing
from agentloop.messages import Message
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
_LABEL = pattern(r"[^:(\n]{0,80}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How chunks are made: each of at most `room` tokens, and of at most `chunk_tokens` where that is less.

    Each message is capped at `message_chars` characters as it is read, head and tail together. Results and
    arguments are cut to the first of `result_chars` with which everything can be read.
    """

    room: int
    chunk_tokens: int | None = None
    message_chars: int | None = None
    result_chars: tuple[int, ...] = RESULT_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The chunks to read, and the positions of what even `MAX_CHUNKS` of them could not hold.

    `records` are earlier records that are not in the chunks: they wait for the request that makes one record
    of all.
    """

    chunks: tuple[str, ...]
    records: str = ""
    unread: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Block:
    """One message as it is read, in parts that fit into a chunk; without any where it is too long for all."""

    seq: int
    order: int
    text: str
    parts: tuple[tuple[str, int], ...]
    tokens: int


def reading_of(entries: Sequence[Entry], *, bounds: Bounds, counter: TokenCounter) -> Reading:
    """The entries in as few chunks as they need: one, with earlier records first, where one request has room.

    User and assistant text is whole, and in one chunk where a chunk has room for it; results and arguments
    give way first. Where what was said is still too much, whole messages are left out: results before
    assistant text before user text, oldest first.
    """
    said = [entry for entry in entries if entry.kind != "note"]
    most = max(bounds.room, LEAST_ROOM)
    chunk = min(most, bounds.chunk_tokens or most)
    blocks: list[_Block] = []
    for chars in bounds.result_chars:
        blocks = list(_blocks(said, chars, bounds, chunk, counter))
        if reading := _together(blocks, most, chunk) or _apart(blocks, most, chunk):
            return reading
    return _most_telling(blocks, most, chunk)


def record_block(text: str) -> str:
    """The text as one more earlier record among what is read."""
    message = Message.user(neutral(text))
    record = Entry(seq=0, message=message, tokens=0, original=message, kind="summary")
    return render([record], max_result_chars=WHOLE)[0]


def _blocks(
    entries: Sequence[Entry], chars: int, bounds: Bounds, chunk: int, counter: TokenCounter
) -> Iterator[_Block]:
    most = bounds.message_chars or WHOLE
    texts = render(entries, max_result_chars=chars)
    wholes = render(entries, max_result_chars=WHOLE) if bounds.message_chars else texts
    for entry, text, whole in zip(entries, texts, wholes, strict=True):
        is_record = entry.kind == "summary"
        if most < len(text) and not is_record and entry.original.role != "tool":
            # Cut from the whole, so that what is left out is counted once; a result was cut from its own.
            text = ends(whole, max_chars=most)
        elif says_nothing(entry.original):
            text = ends(text, max_chars=chars)
        tokens = counter(text) + BETWEEN_TOKENS
        yield _Block(
            seq=entry.seq,
            order=-1 if is_record else _ORDER.get(entry.original.role, 2),
            text=text,
            tokens=tokens,
            parts=tuple(_parts(text, tokens, chunk, counter)),
        )


def _parts(text: str, tokens: int, chunk: int, counter: TokenCounter) -> Iterator[tuple[str, int]]:
    if tokens <= chunk:
        yield text, tokens
    elif tokens <= chunk * MAX_CHUNKS:
        label = _LABEL.match(text)
        yield from _split(text, chunk, counter, f"{label[0] if label else ''}: {CONTINUED} ")


def _split(text: str, chunk: int, counter: TokenCounter, lead: str) -> Iterator[tuple[str, int]]:
    """The text in parts that fit, each but the first behind the lead; it is cut between words."""
    while (tokens := counter(text) + BETWEEN_TOKENS) > chunk and len(text) > len(lead) + 1:
        part = _head(text, len(text) * chunk // tokens, least=len(lead) + 1)
        while (size := counter(part) + BETWEEN_TOKENS) > chunk and len(part) > len(lead) + 1:
            part = _head(text, len(part) * 9 // 10, least=len(lead) + 1)
        yield part, size
        text = lead + text[len(part) :]
    yield text, tokens


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
    return Reading(chunks=(BETWEEN.join(block.text for block in first),) if blocks else ())


def _apart(blocks: Sequence[_Block], room: int, chunk: int) -> Reading | None:
    """In chunks; earlier records wait, unless they take too much of the last request."""
    records = [block for block in blocks if block.order < 0]
    few = sum(block.tokens for block in records) <= room * SHARE_OF_RECORDS
    wait = few or not all(block.parts for block in records)
    read = [block for block in blocks if block.order >= 0 or not wait]
    chunks = _packed(read, chunk) if all(block.parts for block in read) else None
    if chunks is None:
        return None
    return Reading(chunks=chunks, records=BETWEEN.join(block.text for block in records if wait))


def _packed(blocks: Iterable[_Block], chunk: int) -> tuple[str, ...] | None:
    """The blocks packed in their order; None where that takes more than `MAX_CHUNKS`."""
    packed: list[list[str]] = []
    left = 0
    for text, tokens in (part for block in blocks for part in block.parts):
        if tokens > left or not packed:
            packed.append([])
            left = chunk
        packed[-1].append(text)
        left -= tokens
    return tuple(BETWEEN.join(texts) for texts in packed) if len(packed) <= MAX_CHUNKS else None


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
