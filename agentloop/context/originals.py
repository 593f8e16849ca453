"""From entries back to the log: the messages and the compactions that they are or stand for."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from agentloop.context.context import Context, rewound
from agentloop.context.entries import Entry
from agentloop.events import Compacted, Ranges, holds, united
from agentloop.messages import Message


def originals_of(context: Context, entries: Iterable[Entry]) -> list[Entry]:
    """The messages that these entries are or stand for, as the log holds them, oldest first."""
    there = list(entries)
    themselves = {entry.seq for entry in there if entry.kind == "said"}
    _, covered = _compactions_of(context, there)
    gone = rewound(context.compactions)
    return [
        entry
        for entry in context.said
        if entry.seq in themselves or (holds(covered, entry.seq) and not holds(gone, entry.seq))
    ]


def covered_before(context: Context, entries: Iterable[Entry]) -> Ranges:
    """The positions that those of these entries stand for which are records of earlier compactions."""
    return _compactions_of(context, entries)[1]


def model_summaries(context: Context, entries: Iterable[Entry]) -> list[Entry]:
    """Those of the entries that hold a summary which a model wrote."""
    made = {seq: event.made for seq, event in context.compactions}
    return [entry for entry in entries if entry.kind == "summary" and made.get(entry.seq) == "summary"]


def records_without_log(context: Context, entries: Iterable[Entry]) -> list[Entry]:
    """The summaries that these entries are or stand for and that no message of the log is behind."""
    seqs = [entry.seq for entry in context.said]
    found, _ = _compactions_of(context, entries)
    seqs = sorted([*seqs, *(seq for seq, _ in found)])
    return [
        _summary(seq, event)
        for seq, event in reversed(found)
        if event.made != "note" and not _hold_any(event.covers, seqs)
    ]


def _hold_any(ranges: Ranges, seqs: Sequence[int]) -> bool:
    return any(bisect_left(seqs, first) < bisect_right(seqs, last) for first, last in ranges)


def _summary(seq: int, event: Compacted) -> Entry:
    message = Message.assistant(event.answer) if event.answer else Message.user(event.replacement)
    tokens = event.answer_tokens or event.tokens
    return Entry(seq=seq, message=message, tokens=tokens, original=message, kind="summary", at=event.at)


def _compactions_of(context: Context, entries: Iterable[Entry]) -> tuple[list[tuple[int, Compacted]], Ranges]:
    """The compactions that these entries stand for, newest first, and all that they cover."""
    themselves = {entry.seq for entry in entries if entry.kind != "said"}
    found: list[tuple[int, Compacted]] = []
    covered: Ranges = ()
    for seq, event in reversed(context.compactions):
        if seq in themselves or holds(covered, seq):
            found.append((seq, event))
            covered = united(covered, event.covers)
    return found, covered
