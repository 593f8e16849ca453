"""What shortens the text that the writer of a `Summary` reads; the log and the context stay as they are."""

import hashlib
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from agentloop._plumbing.checks import whole
from agentloop._plumbing.files import beginning_of
from agentloop._plumbing.private_files import refused
from agentloop._plumbing.truncate import ends, last_lines
from agentloop.context import Entry, TokenCounter, render
from agentloop.prompts import CLEARED, SPILLED
from agentloop.tools import spill

BLOCK_OVERHEAD = 2
"""Tokens between two messages as a summariser reads them."""

TELLING_CHARS = 20
"""Where neither so much of a text's beginning nor of its end is left, nothing of it is read."""


class Trim(Protocol):
    """Shortens what a summariser reads; the log and the context stay as they are."""

    def __call__(self, entries: Sequence[Entry], room: int, counter: TokenCounter, /) -> Sequence[Entry]:
        """The entries to read, oldest first, where there is room for so many tokens.

        What is read of an entry is its `original`. One that is left out, or has nothing left of its text, is
        reported as unread.
        """
        ...


@dataclass(frozen=True, slots=True)
class DropOldest:
    """Drops the oldest messages until what is left fits into one request of the summariser.

    Earlier records stay, and so does the newest message. After an overflow it is asked again, with the room
    that the server's refusal leaves, and drops more.

    Example:
        >>> said = [Message.user("the first"), Message.user("the second"), Message.user("the third")]
        >>> entries = [Entry(seq=at, message=m, tokens=8, original=m) for at, m in enumerate(said, 1)]
        >>> [entry.original.text for entry in DropOldest()(entries, 60, len)]
        ['the second', 'the third']
    """

    def __call__(self, entries: Sequence[Entry], room: int, counter: TokenCounter, /) -> Sequence[Entry]:
        said = [at for at, entry in enumerate(entries) if entry.kind == "said"]
        return _without(said[:-1], entries, room, counter)


@dataclass(frozen=True, slots=True)
class DropAgentItems:
    """Drops what the agent did, newest first, until what is left fits into one request of the summariser.

    Calls, results and assistant texts are such items. What users said stays, and so do earlier records.

    Example:
        >>> said = [Message.user("Why?"), Message.assistant("Rust."), Message.assistant("It rained.")]
        >>> entries = [Entry(seq=at, message=m, tokens=8, original=m) for at, m in enumerate(said, 1)]
        >>> [entry.original.text for entry in DropAgentItems()(entries, 60, len)]
        ['Why?', 'Rust.']
    """

    def __call__(self, entries: Sequence[Entry], room: int, counter: TokenCounter, /) -> Sequence[Entry]:
        said = ((at, entry.original.role) for at, entry in enumerate(entries) if entry.kind == "said")
        agents = [at for at, role in said if role in ("tool", "assistant")]
        return _without(agents[::-1], entries, room, counter)


@dataclass(frozen=True, slots=True)
class LastLines:
    """Shows each tool result by its last `lines` lines, after one that says how many were left out.

    Where a `folder` is given, the whole of what was cut is kept there in a file of mode 0600,
    `result_<position>_<hash>.txt`, and the line names it; the same result is written once. Where a file has
    held the whole since the result came, that one is named.

    Example:
        >>> result = Message.tool("call_1", "collected\\nok\\nok\\n2 passed")
        >>> entry = Entry(seq=3, message=result, tokens=12, original=result)
        >>> print(LastLines(2)([entry], 1_000, len)[0].original.text)
        [2 earlier lines left out]
        ok
        2 passed

    Raises:
        UsageError: `lines` is no whole number of at least 1.
        StoreError: when called: a file could not be written.
    """

    lines: int = 50
    folder: Path | str | None = None

    def __post_init__(self) -> None:
        whole("lines", self.lines, 1)

    def __call__(self, entries: Sequence[Entry], room: int, counter: TokenCounter, /) -> Sequence[Entry]:
        return [self._shown(entry) if _is_result(entry) else entry for entry in entries]

    def _shown(self, entry: Entry) -> Entry:
        text = entry.original.text
        if last_lines(text, self.lines) == text:
            return entry
        path = entry.spilled or (_kept(Path(self.folder), entry.seq, text) if self.folder else None)
        rest = SPILLED.format(path=path) if path else ""
        return _with_text(entry, last_lines(text, self.lines, rest=rest))


@dataclass(frozen=True, slots=True)
class CapToolText:
    """Reads at most `max_tokens` tokens of tool results in all, the newest ones whole.

    The result at which the cap is reached is cut to head and tail; older ones are shown as
    `[Old tool result content cleared]`, as small as that is.

    Example:
        >>> said = [Message.tool("call_1", "old " * 50), Message.tool("call_2", "new")]
        >>> entries = [Entry(seq=at, message=m, tokens=60, original=m) for at, m in enumerate(said, 1)]
        >>> [entry.original.text for entry in CapToolText(3)(entries, 1_000, len)]
        ['[Old tool result content cleared]', 'new']

    Raises:
        UsageError: `max_tokens` is no whole number of at least 0.
    """

    max_tokens: int = 50_000

    def __post_init__(self) -> None:
        whole("max_tokens", self.max_tokens, 0)

    def __call__(self, entries: Sequence[Entry], room: int, counter: TokenCounter, /) -> Sequence[Entry]:
        shown, left = list(entries), self.max_tokens
        for at in _results(entries)[::-1]:
            tokens = counter(entries[at].original.text)
            if tokens > left:
                shown[at] = _capped(entries[at], tokens, left, counter)
            left = max(0, left - tokens)
        return shown


@dataclass(frozen=True, slots=True)
class MarkOldResults:
    """Shows all tool results but the newest `keep` as `[Old tool result content cleared]`.

    They stay readable in the log.

    Example:
        >>> said = [Message.tool("call_1", "a long result of old"), Message.tool("call_2", "the newest")]
        >>> entries = [Entry(seq=at, message=m, tokens=9, original=m) for at, m in enumerate(said, 1)]
        >>> [entry.original.text for entry in MarkOldResults(keep=1)(entries, 1_000, len)]
        ['[Old tool result content cleared]', 'the newest']

    Raises:
        UsageError: `keep` is no whole number of at least 0.
    """

    keep: int = 6

    def __post_init__(self) -> None:
        whole("keep", self.keep, 0)

    def __call__(self, entries: Sequence[Entry], room: int, counter: TokenCounter, /) -> Sequence[Entry]:
        results = _results(entries)
        old = set(results[: max(0, len(results) - self.keep)])
        return [_with_text(entry, CLEARED) if at in old else entry for at, entry in enumerate(entries)]


def trimmed(
    entries: Sequence[Entry], trims: Iterable[Trim], room: int, counter: TokenCounter
) -> Sequence[Entry]:
    """What is left to read after all of them, in their order; blocks where one of them writes files."""
    for trim in trims:
        entries = trim(entries, room, counter)
    return entries


def left_unread(before: Sequence[Entry], after: Sequence[Entry]) -> set[int]:
    """The positions of which nothing is read after trimming."""
    left = {entry.seq: entry for entry in after}
    return {entry.seq for entry in before if not _read(entry, left.get(entry.seq))}


def _read(before: Entry, after: Entry | None) -> bool:
    if after is None:
        return False
    was, now = before.original.text.strip(), after.original.text.strip()
    return was == now or now.startswith(was[:TELLING_CHARS]) or now.endswith(was[-TELLING_CHARS:])


def _without(
    may_go: Iterable[int], entries: Sequence[Entry], room: int, counter: TokenCounter
) -> Sequence[Entry]:
    """The entries without the first of those that may go, as many as are too much."""
    sizes = [
        sum(counter(str(each)) + BLOCK_OVERHEAD for each in parts)
        for parts in render(entries, max_result_chars=sys.maxsize)
    ]
    left, gone = sum(sizes), set()
    for at in may_go:
        if left <= room:
            break
        gone.add(at)
        left -= sizes[at]
    return [entry for at, entry in enumerate(entries) if at not in gone]


def _results(entries: Sequence[Entry]) -> list[int]:
    return [at for at, entry in enumerate(entries) if _is_result(entry)]


def _is_result(entry: Entry) -> bool:
    return entry.kind == "said" and entry.original.role == "tool"


def _with_text(entry: Entry, text: str) -> Entry:
    return replace(entry, original=replace(entry.original, content=text))


def _capped(entry: Entry, tokens: int, most: int, counter: TokenCounter) -> Entry:
    """The result by its head and tail, or cleared where that is not short enough."""
    text = entry.original.text
    short = ends(text, max_chars=len(text) * most // tokens * 9 // 10)
    return _with_text(entry, short if counter(short) <= most else CLEARED)


def _kept(folder: Path, seq: int, text: str) -> Path:
    """The file that holds the text, written where it is not there yet."""
    data = text.encode("utf-8", "backslashreplace")
    name = f"{seq}_{hashlib.sha256(data).hexdigest()[:12]}"
    there = folder / f"result_{name}.txt"
    try:
        with suppress(OSError, ValueError):  # it is not there, or no file
            if beginning_of(there, len(data) + 1, follows_links=False) == data:
                return there
        return spill(folder, name, text)
    except OSError as error:
        raise refused(folder, error) from error
