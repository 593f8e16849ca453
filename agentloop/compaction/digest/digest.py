"""The digest: what users asked for, what was decided and done, computed from the log within a budget.

`digest` makes sections of what `statements.py` and `calls.py` found, lets them take items in turns until the
budget is used, and puts the index of `index.py` below.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from agentloop._plumbing.to_text import strict
from agentloop._plumbing.truncate import head
from agentloop.compaction.digest.calls import (
    calls_of,
    changes_file,
    earlier_lines,
    failure_lines,
    last_done,
    lines_by_action,
    newest_of_each,
    outcome_line,
)
from agentloop.compaction.digest.earlier import Earlier, indented, parse_records, quoted, quoted_within
from agentloop.compaction.digest.index import index_of
from agentloop.compaction.digest.language import ASKED, DECIDED, DONE, FAILED, FILES, NAMED
from agentloop.compaction.digest.statements import (
    Spoken,
    Stated,
    as_lines,
    by_weight,
    forget_superseded,
    retold,
    spoken,
    tells,
    weigh,
)
from agentloop.context import Entry, Kind, TokenCounter, record_in
from agentloop.messages import Message

T = TypeVar("T")

MOST_MISSES = 12
"""After so many items that were too long for what is left, a section is full."""

LINE_TOKENS = 2
"""What an item takes beside its text: a dash and the end of a line."""

SURELY_LONG = 20
"""A text with so many characters for each token of room is too long, and need not be counted."""


@dataclass(slots=True, kw_only=True)
class Section(Generic[T]):
    """Items in the order in which they are wanted, and how those kept are written under the heading.

    What is wanted `later` comes when all else has found its room.
    """

    title: str
    wanted: list[T]
    text_of: Callable[[T], str]
    written: Callable[[Sequence[T]], Iterable[str]]
    later: list[T] = field(default_factory=list)
    kept: list[T] = field(default_factory=list)
    used: int = 0

    def fill(self, most: int, counter: TokenCounter) -> list[int]:
        """Take items up to `most` tokens, and say how many each of them takes."""
        taken: list[int] = []
        left: list[T] = []
        misses = 0
        items = iter(self.wanted)
        for item in items:
            tokens = self._tokens(item, most, counter)
            if tokens <= most:
                self.kept.append(item)
                taken.append(tokens)
                most -= tokens
                continue
            left.append(item)
            misses += 1
            if misses == MOST_MISSES or most <= LINE_TOKENS:
                break
        self.wanted = [*left, *items]
        self.used += sum(taken)
        return taken

    def _tokens(self, item: T, room: int, counter: TokenCounter) -> int:
        text = self.text_of(item)
        if len(text) > max(0, room) * SURELY_LONG:
            return room + 1
        heading = 0 if self.kept else counter(self.title) + LINE_TOKENS
        return counter(text) + LINE_TOKENS + heading

    def __str__(self) -> str:
        return "\n".join((self.title, *map(indented, self.written(self.kept)))) if self.kept else ""


@dataclass(slots=True, kw_only=True)
class Filling:
    """What a budget still holds; what was taken from where is remembered, so that it can be given back."""

    counter: TokenCounter
    left: int
    taken: list[tuple[Section[Any], int]] = field(default_factory=list)

    def fill(self, section: Section[T], most: int) -> None:
        """Let a section take items until it has used `most` tokens in all."""
        taken = section.fill(min(self.left, most - section.used), self.counter)
        self.left -= sum(taken)
        self.taken.extend((section, tokens) for tokens in taken)

    def give_back(self, tokens: int) -> None:
        """Give back what was taken last, at least so many tokens of it."""
        while tokens > 0 and self.taken:
            section, used = self.taken.pop()
            section.kept.pop()
            tokens -= used


Sections: TypeAlias = dict[str, Section[Any]]

_NEWEST_CHARS = 1_000
"""Where no section fits, so much of the newest words is tried first: about 250 tokens, and no budget that
leaves room for more is too small for a section."""

PROSE_SHARE = 0.45
"""The share of the budget that a model's earlier prose may take."""

FIRST_ROUND = (("asked", 0.5), ("files", 0.3), ("decided", 0.09), ("failed", 0.03), ("done", 0.03))
SECOND_ROUND = (("asked", 0.6), ("files", 0.33), ("decided", 0.2), ("failed", 0.08), ("done", 0.12))
"""What each section may take at first, in this order, and then of what others left."""

INDEX_SHARE = 0.05
"""The least that is left for the index."""

LAST_ROUND = (("failed", 0.3), ("done", 0.3), ("asked", 0.3), ("decided", 0.2))
"""What of all that is then left each may take, one after the other; the index has what remains."""

NAMED_BY = " = "
"""Between a name and its value in an index; a number without a name stood in a result."""

LIGHT = 0.0
"""Sentences of users that weigh less come last of all: greetings, and what a user pasted."""

DECIDES = 2.0
"""So do sentences of the assistant that weigh less than this: they report, and leave nothing open."""


def digest(
    covered: Sequence[Entry], *, max_tokens: int, counter: TokenCounter, kept: Sequence[Entry] = ()
) -> str:
    """What users asked for, what was decided and done, as a record of at most `max_tokens`.

    `covered` is everything that the record stands for, oldest first, as the log holds it. An entry of kind
    "summary" stands for what no log holds: a digest is taken apart and merged with what is new, a model's
    prose is quoted. No text of others begins a line but behind a dash, blanks or the sign of a quote, so none
    can pretend to be a heading. The same entries give the same text, in time linear in theirs.
    Rules, goals and facts that users stated come first, then files with the last thing done to each,
    decisions of the assistant, errors, one line for each call, and an index of what must be exact.
    A newer value of the same thing takes the place of the older one, also where it stands in `kept`: what
    stays in sight beside the record. Nothing said gives "".
    """
    said = [entry for entry in covered if entry.kind == "said"]
    earlier = parse_records(record_in(entry.original) for entry in covered if entry.kind == "summary")
    head = quoted_within(earlier.prose, max_tokens=int(max_tokens * PROSE_SHARE), counter=counter)
    filling = Filling(counter=counter, left=max_tokens - (counter(head) + 2 if head else 0))
    sections, gone = _sections(said, earlier, kept)
    _fill(filling, sections)
    _fill_what_is_over(filling, sections, lambda: max_tokens - counter(_written(head, sections)))
    text = _written(head, sections)
    while filling.taken and (over := counter(text) - max_tokens) > 0:
        filling.give_back(over)
        text = _written(head, sections)
    text = _with_index(text, [*_indexed(earlier), *said], gone, max_tokens=max_tokens, counter=counter)
    return strict(text or _newest_words(said or list(_indexed(earlier)), max_tokens, counter))


def _indexed(earlier: Earlier) -> Iterator[Entry]:
    """What an earlier record says as entries of an index's own: each text for itself, as it once stood."""
    in_results = {text for text in earlier.counted if NAMED_BY not in text}
    for at, text in enumerate(texts := earlier.texts, -len(texts)):
        found = text in in_results
        message = Message.tool("", text) if found else Message.assistant(text)
        kind: Kind = "said" if found else "summary"
        yield Entry(seq=at, at=at, message=message, original=message, tokens=0, kind=kind)


def _sections(said: Sequence[Entry], earlier: Earlier, kept: Sequence[Entry]) -> tuple[Sections, list[str]]:
    messages = [entry.original for entry in said]
    found = spoken(messages, before=retold(earlier))
    gone = forget_superseded([*(one.stated for one in found), *_in_sight(said, kept)])
    found = [one for one in found if one.text]
    users = [one for one in found if one.stated.role == "user"]
    others = [one for one in found if one.stated.role == "assistant" and tells(one)]
    weigh(users, task=next((one.at for one in users), None))
    weigh(others, task=None)
    calls = list(calls_of(messages))
    told = earlier_lines(earlier.done, calls)
    gone += set(earlier.done).difference(one.line for one in told)
    return {
        "asked": _spoken(ASKED, users, LIGHT),
        "decided": _spoken(DECIDED, others, DECIDES),
        "files": _files(last_done(calls, earlier.files)),
        "failed": _lines(FAILED, list(failure_lines(calls, earlier.failed))),
        "done": Section(
            title=DONE,
            wanted=[*newest_of_each(calls), *told],
            text_of=outcome_line,
            written=lambda kept: [outcome_line(call) for call in sorted(kept, key=lambda call: call.at)],
        ),
    }, gone


def _in_sight(said: Sequence[Entry], kept: Sequence[Entry]) -> list[Stated]:
    """What is said in messages newer than the record, and so may replace what it holds."""
    behind = said[-1].seq if said else 0
    newer = [entry.original for entry in kept if entry.kind == "said" and entry.seq > behind]
    return [one.stated for one in spoken(newer, first=len(said))]


def _spoken(title: str, found: Sequence[Spoken], light: float) -> Section[Spoken]:
    heavy = [one for one in found if one.weight >= light]
    lighter = [one for one in found if one.weight < light]
    return Section(
        title=title,
        wanted=by_weight(heavy),
        later=by_weight(lighter),
        text_of=lambda one: one.text,
        written=as_lines,
    )


def _lines(title: str, lines: list[str]) -> Section[str]:
    return Section(title=title, wanted=lines, text_of=str, written=list)


def _files(done: dict[str, str]) -> Section[tuple[str, str]]:
    newest = list(reversed(done.items()))
    return Section(
        title=FILES,
        wanted=sorted(newest, key=lambda pair: not changes_file(pair[1])),
        text_of=lambda pair: pair[0],
        written=lambda kept: lines_by_action(kept, more=len(newest) - len(kept)),
    )


def _fill(filling: Filling, sections: Sections) -> None:
    whole = filling.left
    filling.left -= int(whole * INDEX_SHARE)
    for name, share in (*FIRST_ROUND, *SECOND_ROUND):
        filling.fill(sections[name], int(whole * share))
    for name in ("asked", "files"):
        filling.fill(sections[name], whole)


def _fill_what_is_over(filling: Filling, sections: Sections, left: Callable[[], int]) -> None:
    """Give out what single items were counted too much, then the rest to what comes last."""
    for name in ("files", "asked", "decided"):
        if sections[name].wanted:
            filling.left = int(left() * (1 - INDEX_SHARE))
            filling.fill(sections[name], sections[name].used + max(0, filling.left))
    filling.left = left()
    for name, share in LAST_ROUND:
        section = sections[name]
        section.wanted += section.later
        section.later = []
        filling.fill(section, section.used + int(max(0, filling.left) * share))


def _written(head: str, sections: Sections) -> str:
    return "\n\n".join(part for part in (head, *map(str, sections.values())) if part)


def _newest_words(said: Sequence[Entry], max_tokens: int, counter: TokenCounter) -> str:
    """The newest thing a user said, else anybody, as far as it fits a budget too small for a section."""
    spoken_last = sorted(said, key=lambda entry: (entry.is_user, entry.seq), reverse=True)
    text = next(
        (head(entry.original.text, _NEWEST_CHARS) for entry in spoken_last if entry.original.text.strip()), ""
    )
    while text and counter(quoted(text)) > max_tokens:
        text = head(text, len(text) * 3 // 4)
    return quoted(text.strip())


def _with_index(
    text: str, entries: Sequence[Entry], gone: Sequence[str], *, max_tokens: int, counter: TokenCounter
) -> str:
    title = f"\n\n{NAMED}\n"
    room = max_tokens - counter(text) - counter(title)
    if room < 5:
        return text
    known = "\n".join((text, *gone))
    index = index_of(entries, max_tokens=room, counter=counter, known=known).strip()
    whole = text + title + index if text else (title + index).strip()
    return whole if index and counter(whole) <= max_tokens else text
