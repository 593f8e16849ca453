"""What stands instead of what a compaction covers: a summary, a digest, lines or a note, and its record.

A model writes the summary (`summary.py`); the other three are computed here from the log.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from agentloop._plumbing.truncate import beginning, head
from agentloop.compaction.digest import Findings, digest, first_within
from agentloop.compaction.plan import PLAIN, Plan
from agentloop.context import (
    Entry,
    TokenCounter,
    count_message,
    covered_before,
    model_summaries,
    originals_of,
    prose_of,
    record_in,
    records_without_log,
    turns_of,
)
from agentloop.events import Compacted, Made, Ranges, united
from agentloop.messages import Message
from agentloop.prompts import NOTE, question_message, summary_message
from agentloop.strategies import Computed, Lines, Note

ASKED_CHARS, ANSWERED_CHARS = 120, 160
"""So much is shown of what a user asked, and of the last thing the assistant said to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What stands instead, and how it was made; `unread` are the positions that it does not stand for.

    With `shadow` it is an assistant's answer, and that is what a user is shown to have asked. `fault` says
    why the model's text could not stand, where something else had to.
    """

    text: str
    made: Made
    unread: tuple[int, ...] = ()
    shadow: str | None = None
    fault: str | None = None


NOTHING = Replacement(text="", made="note")
"""What stands for nothing: a compaction that only shortens covers no message."""


def compacted_record(
    plan: Plan, replacement: Replacement, *, transcript: str | None, pinned: str = ""
) -> Compacted:
    """The record of the plan carried out with this replacement, and with what is pinned behind it.

    `transcript` is a file name.
    """
    covers, counter = plan.covers, plan.budget.counter
    positions = in_words(united(covers, covered_before(plan.context, plan.entries)))
    text, answer = _texts(replacement, transcript, positions) if covers else ("", "")
    tokens = count_message(Message.user(text), counter) if text else 0
    answer_tokens = count_message(Message.assistant(answer), counter) if answer else 0
    return Compacted(
        covers=covers,
        replacement=text,
        at=plan.at,
        tokens=tokens + answer_tokens,
        answer=answer,
        answer_tokens=answer_tokens,
        made=replacement.made,
        cleared=plan.cleared,
        group=plan.group,
        reason=plan.occasion.reason,
        why=plan.occasion.why,
        strategy=plan.strategy,
        tier=PLAIN if covers and replacement.made != "summary" else plan.tier,
        transcript=transcript,
        pinned=pinned,
        pinned_tokens=count_message(Message.user(pinned), counter) if pinned else None,
    )


MOST_RANGES = 4
"""So many ranges of positions a header names; of more, where the first begins and the last ends."""


def in_words(ranges: Ranges) -> str:
    """Positions as a header names them.

    >>> in_words(((2, 9), (12, 12))), in_words(tuple((at, at + 1) for at in range(2, 20, 3)))
    ('2–9, 12', '2–18 in part')
    """
    if len(ranges) > MOST_RANGES:
        return f"{ranges[0][0]}–{ranges[-1][1]} in part"
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in ranges)


def _texts(replacement: Replacement, transcript: str | None, positions: str) -> tuple[str, str]:
    """What a user is shown to say, and what an assistant answers, if anything."""
    if replacement.shadow is not None:
        return question_message(replacement.shadow, transcript, positions), replacement.text
    if replacement.made == "note":
        return question_message(replacement.text, transcript, positions), ""
    return summary_message(replacement.text, transcript, positions, made=replacement.made), ""


def computed(instead: Computed, plan: Plan, *, max_tokens: int) -> Replacement:
    """What stands instead where no model is asked, in at most so many tokens."""
    context, counter, reads = plan.context, plan.budget.counter, plan.reads
    if isinstance(instead, Note):
        gone = originals_of(context, plan.entries)
        seqs = tuple(entry.seq for entry in gone)
        return Replacement(text=instead.text or NOTE.format(count=len(gone)), made="note", unread=seqs)
    most = min(instead.max_tokens or max_tokens, max_tokens)
    earlier, read = records_without_log(context, reads), originals_of(context, reads)
    if isinstance(instead, Lines):
        text = turn_lines([*earlier, *read], max_tokens=most, counter=counter)
        return Replacement(text=text, made="digest")
    known = {entry.seq for entry in earlier}
    written = [entry for entry in model_summaries(context, reads) if entry.seq not in known]
    earlier += map(_prose_only, written)
    text = digest([*earlier, *read], max_tokens=most, counter=counter, kept=_kept(plan))
    return Replacement(text=text, made="digest")


def record_beside(plan: Plan) -> Callable[[int, str], str]:
    """Makes the digest of at most so many tokens that stands beside a model's prose.

    It is without the prose of earlier ones, which the model rewrites. What it stands for is read once.
    """

    @cache
    def findings() -> Findings:
        earlier = [_record_only(entry) for entry in records_without_log(plan.context, plan.reads)]
        return Findings.of([*earlier, *originals_of(plan.context, plan.reads)], _kept(plan))

    return lambda max_tokens, prose: findings().record(max_tokens, plan.budget.counter, beside=prose)


def to_read(plan: Plan) -> tuple[Entry, ...]:
    """What a model is to read: of its earlier summaries the prose alone where the log is behind them."""
    reads = plan.reads
    without_log = {entry.seq for entry in records_without_log(plan.context, reads)}
    written = {entry.seq for entry in model_summaries(plan.context, reads)} - without_log
    return tuple(_prose_only(entry) if entry.seq in written else entry for entry in reads)


def _kept(plan: Plan) -> list[Entry]:
    """What stays in sight."""
    covered = {entry.seq for entry in plan.entries}
    return [entry for entry in plan.context.visible if entry.seq not in covered]


def _prose_only(entry: Entry) -> Entry:
    made, record = record_in(entry.original)
    return _recorded(entry, prose_of(record)[0], made)


def _record_only(entry: Entry) -> Entry:
    made, record = record_in(entry.original)
    return entry if made == "digest" else _recorded(entry, prose_of(record)[1], "digest")


def _recorded(entry: Entry, record: str, made: Made) -> Entry:
    return replace(entry, original=Message.user(summary_message(record, None, made=made)))


def turn_lines(covered: Sequence[Entry], *, max_tokens: int, counter: TokenCounter) -> str:
    """The turns, one line each, the newest that fit into `max_tokens`, oldest first.

    Of an entry of kind "summary", which no log is behind, the lines stay: as they are where they begin as
    ours do, else as quotes.
    """
    earlier = (record_in(entry.original)[1] for entry in covered if entry.kind == "summary")
    lines = [line for text in earlier for line in text.splitlines() if line.strip()]
    lines = [line if line.startswith(("- ", "> ")) else f"> {line}" for line in lines]
    lines += [_line(turn) for turn in turns_of(entry for entry in covered if entry.kind == "said")]
    return "\n".join(reversed(first_within(reversed(lines), max_tokens, counter)))


def _line(turn: Sequence[Entry]) -> str:
    asked = next((entry.original.text for entry in turn if entry.is_user), "")
    said = [entry.original for entry in turn if entry.original.role == "assistant"]
    names = dict.fromkeys(call.name for message in said for call in message.tool_calls)
    answered = next((message.text for message in reversed(said) if message.text.strip()), "")
    called = " ".join(", ".join(names).split())
    parts = (_short(asked, ASKED_CHARS), called, _short(answered, ANSWERED_CHARS))
    return "- " + " → ".join(part for part in parts if part)


def _short(text: str, max_chars: int) -> str:
    return beginning(" ".join(head(text, max_chars * 4).split()), max_chars)
