"""An earlier record taken apart, where no log is behind it: a digest merges it with what is new."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from agentloop.compaction.digest.index import LABELS
from agentloop.compaction.digest.language import (
    ASKED,
    DECIDED,
    DONE,
    FAILED,
    FILES,
    MORE_FILES,
    NAMED,
    PROSE,
)
from agentloop.compaction.digest.sentences import HEAD_SHARE, sentences
from agentloop.context import TokenCounter, prose_of
from agentloop.events import Made

_TITLES = (PROSE, ASKED, DECIDED, FILES, FAILED, DONE, NAMED)
_INDEX = tuple(f"{label}: " for label in LABELS.values())
_ITEM = ("- ", "  ")
_QUOTE = "> "
_NUMBERS = f"{LABELS['number']}: "
_MORE_FILES = re.compile(MORE_FILES.format(more="([0-9]{1,9})"))
_LEFT_OUT = "…"
"""A line that stands for lines of prose left out."""

MOST_LINE_CHARS = 100_000
"""So much of a line of prose that is too long is looked at, head and tail together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What an earlier record says: its sections, oldest first, and as `prose` what a model wrote.

    `asked` and `decided` hold what was said, one text a message; `files` each path with the last thing done
    to it, `more_files` how many others had no room; `failed` and `done` lines without their dash; `named` the
    entries of the index, `counted` those of its numbers that have no name.
    """

    prose: str = ""
    asked: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    more_files: int = 0
    failed: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What was said, as roles and texts."""
        by_users = (("user", text) for text in self.asked)
        return (*by_users, *(("assistant", text) for text in self.decided))

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text with something to index, the least telling first."""
        paths = tuple(path for path, _ in self.files)
        return (
            *self.counted,
            *self.named,
            *self.done,
            *self.failed,
            *paths,
            *self.decided,
            *self.asked,
            self.prose,
        )


def is_digest(text: str, headings: Collection[str] = ()) -> bool:
    """Whether every line is one that a digest has, or one of these headings."""
    known, begins = {"", *_TITLES, *headings}, (*_ITEM, *_INDEX, _QUOTE)
    return all(line.rstrip() in known or line.startswith(begins) for line in text.split("\n"))


def parse_records(records: Iterable[tuple[Made, str]]) -> Earlier:
    """What these records say, each with who made it, oldest first. Linear in the text.

    The headings of a digest are ours, and no text of others begins a line in it but behind a dash, blanks or
    the sign of a quote (`indented`, `quoted`). What a model wrote is prose, whatever it looks like, but for
    the record that we put below it.

    Example:
        >>> found = parse_records([("digest", "What users said:\\n- Never push.\\n  Ask first.")])
        >>> found.asked, parse_records([("summary", "What users said:\\n- Push.")]).asked
        (('Never push.\\nAsk first.',), ())
    """
    prose: list[str] = []
    found: dict[str, list[str]] = {title: [] for title in _TITLES}
    for made, record in _apart(records):
        if made == "summary":
            prose.append(record.strip())
            continue
        rest: list[str] = []
        for title, line in _titled(record):
            if title is None or title == PROSE:
                rest.append(line.removeprefix(_QUOTE))
            else:
                found[title].append(line)
        prose.append("\n".join(rest).strip())
    return Earlier(
        prose="\n\n".join(part for part in dict.fromkeys(prose) if part),
        asked=tuple(_items(found[ASKED])),
        decided=tuple(_items(found[DECIDED])),
        files=tuple(_files(_items(found[FILES]))),
        more_files=sum(int(more[1]) for more in map(_MORE_FILES.fullmatch, found[FILES]) if more),
        failed=tuple(reversed(list(_items(found[FAILED])))),
        done=tuple(_items(found[DONE])),
        named=tuple(_named(line for line in found[NAMED] if not line.startswith(_NUMBERS))),
        counted=tuple(_named(line for line in found[NAMED] if line.startswith(_NUMBERS))),
    )


def _apart(records: Iterable[tuple[Made, str]]) -> Iterator[tuple[Made, str]]:
    """The records, with what a model wrote and what we computed below it each for itself."""
    for made, record in records:
        prose, below = prose_of(record) if made == "summary" else (record, "")
        yield made, prose
        if below:
            yield "digest", below


def indented(item: str) -> str:
    """An item of a digest, in which no line but its first begins where headings do."""
    return "\n  ".join(item.splitlines())


def quoted(prose: str) -> str:
    """The text as a digest holds what a model wrote, each line behind the sign of a quote."""
    return "\n".join(f"{_QUOTE}{line}" for line in prose.splitlines())


def quoted_within(prose: str, *, max_tokens: int, counter: TokenCounter) -> str:
    """The prose as a section of a digest of at most `max_tokens`, the heading aside.

    Too long, it is whole lines of its head and its end, and of a long line sentences.
    """
    if not prose:
        return ""
    if counter(whole := quoted(prose)) <= max_tokens:
        return f"{PROSE}\n{whole}"
    lines = [piece for line in prose.splitlines() for piece in _short_enough(line, max_tokens, counter)]
    lines = [quoted(line) for line in lines if line.strip() and line != _LEFT_OUT]
    left_out = quoted(_LEFT_OUT)
    room = max_tokens - counter(left_out) - 1
    head = first_within(lines, int(room * HEAD_SHARE), counter)
    room -= sum(counter(line) + 1 for line in head)
    end = first_within(lines[len(head) :][::-1], room, counter)[::-1]
    return "\n".join((PROSE, *head, left_out, *end)) if head or end else ""


def _titled(record: str) -> Iterator[tuple[str | None, str]]:
    """Each line of a digest with the heading that it stands below; others with none."""
    title: str | None = None
    for line in record.split("\n"):
        if line.rstrip() in _TITLES:
            title = line.rstrip()
            continue
        begins = _INDEX if title == NAMED else _QUOTE if title == PROSE else _ITEM
        if title is not None and not line.startswith(begins):
            title = None
        yield title, line


def _items(lines: Iterable[str]) -> Iterator[str]:
    """The items, each with the lines that belong to it."""
    item: list[str] = []
    for line in lines:
        if line.startswith("- ") and item:
            yield "\n".join(item)
            item = []
        item.append(line[2:])
    if item:
        yield "\n".join(item)


def _files(items: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The paths with what was done to them; a record names those touched last first."""
    for item in reversed(list(items)):
        action, _, paths = item.partition(": ")
        yield from ((path, action) for path in reversed(paths.split(", ")) if path)


def _named(lines: Iterable[str]) -> Iterator[str]:
    """The entries of an index; it names the newest first."""
    for line in reversed(list(lines)):
        yield from reversed(line.partition(": ")[2].split(", "))


def _short_enough(line: str, max_tokens: int, counter: TokenCounter) -> Iterator[str]:
    if len(line) <= max_tokens or counter(line) * 3 <= max_tokens:
        yield line
    else:
        yield from (sentence.text for sentence in sentences(line, most_chars=MOST_LINE_CHARS))


def first_within(lines: Iterable[str], room: int, counter: TokenCounter) -> list[str]:
    """The first of these lines, up to one for which there is no room left."""
    kept: list[str] = []
    for line in lines:
        room -= counter(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept
