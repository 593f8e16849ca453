"""The digest: what users asked for, what was decided and done, computed from the log within a budget.

`digest` makes sections of what `statements.py` and `calls.py` found, weighed by `weight.py`, lets them take
items in turns until the budget is used, and puts the index of `index.py` below.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeAlias, TypeVar

from agentloop._plumbing.to_text import strict
from agentloop._plumbing.truncate import head
from agentloop.compaction.digest.calls import (
    Call,
    EarlierLine,
    changes_file,
    earlier_lines,
    failure_lines,
    last_done,
    lines_by_action,
    newest_of_each,
    outcome_line,
)
from agentloop.compaction.digest.earlier import Earlier, indented, parse_records, quoted, quoted_within
from agentloop.compaction.digest.fold import Folds
from agentloop.compaction.digest.index import IndexItems, Named, index_items, index_lines, named_in
from agentloop.compaction.digest.language import ASKED, DECIDED, DONE, FAILED, FILES, NAMED
from agentloop.compaction.digest.weight import Said, Spoken, as_lines, by_weight, said_together, weigh
from agentloop.context import Entry, Kind, TokenCounter, identifiers, record_in
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

    What is `light` comes behind what is not, what is wanted `later` when all else has found its room.
    """

    title: str
    wanted: list[T]
    text_of: Callable[[T], str]
    written: Callable[[Sequence[T]], Iterable[str]]
    light: list[T] = field(default_factory=list)
    later: list[T] = field(default_factory=list)
    kept: list[T] = field(default_factory=list)

    def fill(self, most: int, counter: TokenCounter) -> int:
        """Take items up to `most` tokens, and say how many they take."""
        left: list[T] = []
        room = most
        items = iter(self.wanted)
        for item in items:
            tokens = self._tokens(item, room, counter)
            if tokens <= room:
                self.kept.append(item)
                room -= tokens
                continue
            left.append(item)
            if len(left) == MOST_MISSES or room <= LINE_TOKENS:
                break
        self.wanted = [*left, *items]
        return most - room

    def _tokens(self, item: T, room: int, counter: TokenCounter) -> int:
        text = self.text_of(item)
        if len(text) > max(0, room) * SURELY_LONG:
            return room + 1
        heading = 0 if self.kept else counter(self.title) + LINE_TOKENS
        return counter(text) + LINE_TOKENS + heading

    def __str__(self) -> str:
        return "\n".join((self.title, *map(indented, self.written(self.kept)))) if self.kept else ""


FOLDS = Folds()
"""What is kept of the logs that this process made digests of."""

Sections: TypeAlias = dict[str, Section[Any]]

_NEWEST_CHARS = 1_000
"""Where no section fits, so much of the newest words is tried first: about 250 tokens, and no budget that
leaves room for more is too small for a section."""

PROSE_SHARE = 0.45
"""The share of the budget that a model's earlier prose may take."""

TELLING = (("asked", 0.55), ("files", 0.3), ("decided", 0.15), ("failed", 0.05))
"""The share of the budget that each section may take at first, in this order."""

LIGHT_SHARE = 0.9
"""What is light comes behind what is not; before the index it fills up to so much of its section's share."""

INDEX_SHARE = 0.2
"""The index takes what it needs, up to this share, before what tells less."""

REST = (("asked", 1.0), ("files", 1.0), ("decided", 0.5), ("failed", 0.5), ("done", 0.5), ("failed", 1.0))
"""The share of what is then left that each may take, one after the other; what tells least comes last."""

SHORT_CHARS = 0.4
"""A message with at most so many characters for each token of the budget, a tenth of it, is not torn."""

NAMED_BY = " = "
"""Between a name and its value in an index; a number without a name stood in a result."""


def digest(
    covered: Sequence[Entry],
    *,
    max_tokens: int,
    counter: TokenCounter,
    kept: Sequence[Entry] = (),
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
    return Findings.of(covered, kept).record(max_tokens, counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found in what a record is to stand for, to be written at any length.

    `lines` are those of calls in an earlier record; `gone` is what no longer holds, or may not.
    `told` and `results` are what messages and results name, newest first.
    """

    said: Sequence[Entry]
    told: Sequence[Named]
    results: Sequence[Named]
    earlier: Earlier
    users: Sequence[Spoken]
    others: Sequence[Spoken]
    calls: Sequence[Call]
    lines: Sequence[EarlierLine]
    gone: Sequence[str]

    @classmethod
    def of(cls, covered: Sequence[Entry], kept: Sequence[Entry], folds: Folds = FOLDS) -> Self:
        """What stands in these entries, while others stay in sight."""
        said = [entry for entry in covered if entry.kind == "said"]
        earlier = parse_records(record_in(entry.original) for entry in covered if entry.kind == "summary")
        last = said[-1].seq if said else 0
        newer = [entry for entry in kept if entry.kind == "said" and entry.seq > last]
        with folds.of(earlier.told, [*said, *newer]) as fold:
            found = list(fold.statements.standing(last))
            gone = [text for texts in fold.statements.gone.values() for text in texts]
            done = fold.done(len(said))
            calls, told, results = list(done.calls.made), done.told(), done.found()
        users = [one for one in found if one.role == "user"]
        others = [one for one in found if one.role == "assistant"]
        weigh(users, task=next((one.at for one in users), None))
        weigh(others, task=None)
        lines = earlier_lines(earlier.done, calls)
        gone += set(earlier.done).difference(one.line for one in lines)
        return cls(
            said=said,
            told=told,
            results=results,
            earlier=earlier,
            users=users,
            others=others,
            calls=calls,
            lines=lines,
            gone=gone,
        )

    def record(self, max_tokens: int, counter: TokenCounter, *, beside: str = "") -> str:
        """The record of at most so many tokens.

        Names and numbers that the text `beside` says are not said again. Where the whole counts more than its
        parts, they are taken again in less room.
        """
        room = max_tokens
        text = self._within(room, counter, beside)
        while text and room > 0 and (tokens := counter(text)) > max_tokens:
            room = min(room * max_tokens // tokens, room - room // 50 - 1)
            text = self._within(room, counter, beside)
        return text

    def _within(self, max_tokens: int, counter: TokenCounter, beside: str) -> str:
        head = quoted_within(self.earlier.prose, max_tokens=int(max_tokens * PROSE_SHARE), counter=counter)
        left = whole = max_tokens - (counter(head) + 2 if head else 0)
        sections = self._sections(max_tokens)
        if beside:
            told, done = set(identifiers(beside)), sections["done"]
            done.wanted = [one for one in done.wanted if not told.issuperset(identifiers(one.outcome))]
        for name, share in TELLING:
            section = sections[name]
            used = section.fill(min(left, int(whole * share)), counter)
            if section.light:
                section.wanted += section.light
                used += section.fill(min(left, int(whole * share * LIGHT_SHARE)) - used, counter)
            left -= used
        index = self._index("\n".join((beside, _written(head, sections))), max_tokens, counter)
        reserved = counter(index.lines(int(max_tokens * INDEX_SHARE), ""))
        taken = 1
        for rest in ("wanted", "later"):
            for name, share in REST:
                section = sections[name]
                if rest == "later":
                    section.wanted, section.later = section.later, []
                if not section.wanted:
                    continue
                if taken:
                    left = max_tokens - counter(_written(head, sections)) - reserved
                taken = section.fill(min(left, int(max(0, left) * share)), counter)
        text = index.below(_written(head, sections), max_tokens)
        return strict(text or _newest_words(self.said or list(_indexed(self.earlier)), max_tokens, counter))

    def _index(self, known: str, most: int, counter: TokenCounter) -> "_Index":
        """What is to be kept exact beside a text that is `known`."""
        earlier = [named_in(entry) for entry in _indexed(self.earlier)][::-1]
        items = index_items(
            [*self.told, *(one for one in earlier if not one.in_result)],
            [*self.results, *(one for one in earlier if one.in_result)],
            most=most,
            known=known,
            gone="\n".join(self.gone),
        )
        return _Index(items, frozenset(known.split("\n")), counter)

    def _sections(self, max_tokens: int) -> Sections:
        earlier = self.earlier
        return {
            "asked": _spoken(ASKED, self.users, max_tokens),
            "decided": _spoken(DECIDED, self.others, max_tokens),
            "files": _files(last_done(self.calls, earlier.files), earlier.more_files),
            "failed": Section(
                title=FAILED,
                wanted=list(failure_lines(self.calls, earlier.failed)),
                text_of=str,
                written=list,
            ),
            "done": Section(
                title=DONE,
                wanted=[*newest_of_each(self.calls), *self.lines],
                text_of=outcome_line,
                written=lambda kept: [outcome_line(call) for call in sorted(kept, key=lambda call: call.at)],
            ),
        }


@dataclass(frozen=True, slots=True)
class _Index:
    """What is to be kept exact, as it is written below a text. No item stands in one of the `known` lines."""

    items: IndexItems
    known: frozenset[str]
    counter: TokenCounter

    def lines(self, room: int, known: str) -> str:
        """The section in at most so many tokens, "" where there is none."""
        room -= self.counter(f"\n\n{NAMED}\n")
        new = "\n".join(line for line in known.split("\n") if line not in self.known)
        found = index_lines(self.items, max_tokens=room, counter=self.counter, known=new) if room >= 5 else ""
        return f"\n\n{NAMED}\n{found}" if found else ""

    def below(self, text: str, max_tokens: int) -> str:
        """The text with what of the index it does not say, where there is room."""
        whole = (text + self.lines(max_tokens - self.counter(text), text)).strip()
        return whole if self.counter(whole) <= max_tokens else text


def _indexed(earlier: Earlier) -> Iterator[Entry]:
    """What an earlier record says as entries of an index's own: each text for itself, as it once stood."""
    in_results = {text for text in earlier.counted if NAMED_BY not in text}
    for at, text in enumerate(texts := earlier.texts, -len(texts)):
        found = text in in_results
        message = Message.tool("", text) if found else Message.assistant(text)
        kind: Kind = "said" if found else "summary"
        yield Entry(seq=at, at=at, message=message, original=message, tokens=0, kind=kind)


def _spoken(title: str, found: Sequence[Spoken], max_tokens: int) -> Section[Said]:
    heavy, light, rest = by_weight(said_together(found, most_chars=max_tokens * SHORT_CHARS))
    return Section(
        title=title,
        wanted=heavy,
        light=light,
        later=rest,
        text_of=lambda said: " ".join(one.text for one in said),
        written=lambda kept: as_lines(one for said in kept for one in said),
    )


def _files(done: dict[str, str], more: int) -> Section[tuple[str, str]]:
    newest = list(reversed(done.items()))
    return Section(
        title=FILES,
        wanted=sorted(newest, key=lambda pair: not changes_file(pair[1])),
        text_of=lambda pair: pair[0],
        written=lambda kept: lines_by_action(kept, more=len(newest) - len(kept) + more),
    )


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
