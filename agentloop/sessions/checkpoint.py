"""The fold of a log up to a position, as text, kept beside the log so that opening it reads its end alone.

A checkpoint is derived: the log can do without it, and whatever is odd about one makes it none. Its text is a
line with `FOLD` and a checksum of the rest, then JSON in ASCII.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Any

from agentloop.codec import decode, encode
from agentloop.context import Context, Entry, FillerTokens, Growing, GrowingSet, Guard, Report
from agentloop.errors import StoreError
from agentloop.messages import Message
from agentloop.stores.base import Checkpoint

FOLD = 4
"""What a fold means. Whoever changes what `Context` makes of a log raises it, and all are made anew."""

CHECKPOINT_EVERY = 1_000
"""So many records, or as many as are in sight if those are more, stand between two checkpoints.

A context of a million tokens is not written down at every thousand records: each record costs about the same.
"""

TAIL = 48
"""So many of the newest messages said are kept at least, for triggers that look at them."""


def is_due(context: Context, kept: int) -> bool:
    """Whether the log has grown enough since the checkpoint at `kept` for a new one."""
    return context.length - kept >= max(CHECKPOINT_EVERY, len(context.visible))


def checkpoint_of(context: Context, event_id: str, *, tail: int = TAIL) -> Checkpoint:
    """The context as a checkpoint, `in_short`; `event_id` is that of the log's record at its end."""
    data = json.dumps(_to_json(in_short(context, tail=tail)), separators=(",", ":"))
    body = f"{_heading(context.length, event_id, data)}\n{data}"
    return Checkpoint(seq=context.length, event_id=event_id, body=body)


def context_in(checkpoint: Checkpoint) -> Context | None:
    """The context that it holds; None where it is damaged, or of another version."""
    heading, _, data = checkpoint.body.partition("\n")
    if heading != _heading(checkpoint.seq, checkpoint.event_id, data):
        return None
    try:
        return _from_json(json.loads(data))
    except (StoreError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def in_short(context: Context, *, tail: int = TAIL) -> Context:
    """The context without what no step needs; the very context where little was ever said.

    At least the `tail` newest messages said stay, and all from the newest that is no result. A part of a
    log comes to what the whole of it comes to.
    """
    start = _tail_start(context.said, tail)
    if not start and not context.starts_after:
        return context
    newest_said = Growing(context.said[start:])
    standing = {entry.seq for entry in context.visible if entry.kind != "said"}
    newest = context.compactions[-1:]
    older = context.compactions[:-1]
    compactions = tuple(pair for pair in older if pair[0] in standing or pair[1].is_rewind) + newest
    short = replace(
        context,
        starts_after=newest_said[0].seq - 1,
        said=newest_said,
        visible=Growing(_shortened(context.visible, {entry.seq for entry in newest_said})),
        compactions=compactions,
        older_compactions=0,
        clearings=(),
    )
    return replace(short, older_compactions=context.compaction_count - short.compaction_count)


def _tail_start(said: Growing[Entry], tail: int) -> int:
    """Where the newest messages begin: at the newest that is no result, or before it."""
    start = max(0, len(said) - tail)
    while start and said[start].message.role == "tool":
        start -= 1
    return start


def _shortened(visible: Iterable[Entry], tail: Collection[int]) -> Iterable[Entry]:
    """The entries, those shown shortened without the whole of them unless it was said just now."""
    for entry in visible:
        yield replace(entry, original=_copied(entry)) if entry.cleared and entry.seq not in tail else entry


def _copied(entry: Entry) -> Message:
    """A message of its own, since an entry is shown shortened whose two messages are not the same one."""
    return replace(entry.message)


def _heading(seq: int, event_id: str, data: str) -> str:
    text = "\n".join((str(seq), event_id, data)).encode("utf-8", "surrogatepass")
    return f"{FOLD} {blake2b(text, digest_size=16).hexdigest()}"


def _to_json(context: Context) -> dict[str, Any]:
    first = [entry for entry in (context.first, context.task) if entry]
    entries = list({id(entry): entry for entry in (*first, *context.said, *context.visible)}.values())
    places = {id(entry): place for place, entry in enumerate(entries)}
    return {
        "length": context.length,
        "base": context.starts_after,
        "tokens": context.tokens,
        "turns": context.turns,
        "epoch": context.rewritten_at,
        "older_compactions": context.older_compactions,
        "unsaid": [context.filler.tokens, context.filler.voice, dict(context.filler.waiting)],
        "reports": {model: _report(report) for model, report in context.reports.items()},
        "told": {model: list(map(_report, reports)) for model, reports in context.recent_reports.items()},
        "guard": asdict(context.guard),
        "transcript": context.transcript,
        **({"hides_media": True} if context.hides_media else {}),
        "call_ids": list(context.call_ids),
        "compactions": [[seq, encode(event)] for seq, event in context.compactions],
        "clearings": [[seq, encode(event)] for seq, event in context.clearings],
        "entries": list(map(_entry, entries)),
        "said": [places[id(entry)] for entry in context.said],
        "visible": [places[id(entry)] for entry in context.visible],
        "first": context.first and places[id(context.first)],
        "task": context.task and places[id(context.task)],
    }


def _from_json(data: Mapping[str, Any]) -> Context:
    entries = _entries(data["entries"], data["said"])
    first, task = data["first"], data["task"]
    tokens, voice, waiting = data["unsaid"]
    return Context(
        length=data["length"],
        starts_after=data["base"],
        said=Growing(entries[place] for place in data["said"]),
        call_ids=GrowingSet(data["call_ids"]),
        visible=Growing(entries[place] for place in data["visible"]),
        tokens=data["tokens"],
        turns=data["turns"],
        filler=FillerTokens(tokens=tokens, voice=voice, waiting=waiting),
        compactions=_events(data["compactions"]),
        clearings=_events(data["clearings"]),
        older_compactions=data["older_compactions"],
        first=None if first is None else entries[first],
        task=None if task is None else entries[task],
        rewritten_at=data["epoch"],
        reports={model: _report_in(report) for model, report in data["reports"].items()},
        recent_reports={model: tuple(map(_report_in, reports)) for model, reports in data["told"].items()},
        guard=Guard(**data["guard"]),
        transcript=data["transcript"],
        hides_media=data.get("hides_media", False),
    )


_PLAIN = ("seq", "tokens", "kind", "at", "keep", "spilled", "run_id", "time", "finish")


def _entry(entry: Entry) -> list[Any]:
    return [entry.message.to_openai(), entry.cleared, *(getattr(entry, name) for name in _PLAIN)]


def _entries(rows: Iterable[list[Any]], said: Iterable[int]) -> list[Entry]:
    """The entries, each shown shortened with what was said where that is among them."""
    entries = [_entry_in(*row) for row in rows]
    originals = {entries[place].seq: entries[place].message for place in said}
    return [
        replace(entry, original=originals.get(entry.seq) or _copied(entry)) if cleared else entry
        for entry, (_, cleared, *_) in zip(entries, rows, strict=True)
    ]


def _entry_in(message: Any, _: bool, *plain: Any) -> Entry:
    shown = Message.from_openai(message)
    return Entry(message=shown, original=shown, **dict(zip(_PLAIN, plain, strict=True)))


def _events(rows: Iterable[tuple[int, str]]) -> tuple[tuple[int, Any], ...]:
    return tuple((seq, decode(text)) for seq, text in rows)


def _report(report: Report) -> list[int]:
    return [report.seq, report.measured, report.counted]


def _report_in(row: Iterable[int]) -> Report:
    seq, measured, counted = row
    return Report(seq=seq, measured=measured, counted=counted)
