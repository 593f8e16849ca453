"""An earlier record taken apart, where no log is behind it: a digest merges it with what is new."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentloop.compaction.digest.index import LABELS
from agentloop.compaction.digest.language import ASKED, DECIDED, DONE, FAILED, FILES, NAMED
from agentloop.compaction.digest.sentences import HEAD_SHARE, sentences
from agentloop.context import TokenCounter
from agentloop.prompts import SUMMARY_INDEX

_FIELDS = {
    ASKED: ASKED,
    DECIDED: DECIDED,
    FILES: FILES,
    FAILED: FAILED,
    DONE: DONE,
    NAMED: NAMED,
    SUMMARY_INDEX: NAMED,
}
"""The headings that are known, and what stands under each."""

_INDEX = tuple(f"{label}: " for label in LABELS.values())
_NUMBERS = f"{LABELS['number']}: "
_LEFT_OUT = "…"
"""A line that stands for lines of prose left out."""

MOST_LINE_CHARS = 100_000
"""So much of a line of prose that is too long is looked at, head and tail together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What an earlier record says: its sections, oldest first, and as `prose` what is under none of ours.

    `asked` and `decided` hold what was said, one text a message; `files` each path with the last thing done
    to it; `failed` and `done` lines without their dash; `named` the entries of the index, `counted` those
    of its numbers that have no name.
    """

    prose: str = ""
    asked: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    failed: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

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


def parse_records(records: Iterable[str]) -> Earlier:
    """What these records say, oldest first; one that is not in our sections is prose. Linear in the text.

    Only whole lines as a digest writes them count: a heading, and below it items with a dash or labelled
    lines of an index, up to the first other line. So what somebody quoted inside an item stays his.

    Example:
        >>> found = parse_records(["Some prose.\\n\\nWhat users said:\\n- Never push.\\n  Ask first."])
        >>> found.prose, found.asked
        ('Some prose.', ('Never push.\\nAsk first.',))
    """
    prose: list[str] = []
    found: dict[str, list[str]] = {title: [] for title in _FIELDS.values()}
    for record in records:
        rest: list[str] = []
        for title, line in _titled(record):
            (rest if title is None else found[title]).append(line)
        prose.append("\n".join(rest).strip())
    return Earlier(
        prose="\n\n".join(part for part in dict.fromkeys(prose) if part),
        asked=tuple(_items(found[ASKED])),
        decided=tuple(_items(found[DECIDED])),
        files=tuple(_files(_items(found[FILES]))),
        failed=tuple(reversed(list(_items(found[FAILED])))),
        done=tuple(_items(found[DONE])),
        named=tuple(_named(line for line in found[NAMED] if not line.startswith(_NUMBERS))),
        counted=tuple(_named(line for line in found[NAMED] if line.startswith(_NUMBERS))),
    )


def prose_within(prose: str, *, max_tokens: int, counter: TokenCounter) -> str:
    """The prose in at most `max_tokens`: whole lines of its head and its end; of a long line sentences."""
    if counter(prose) <= max_tokens:
        return prose
    lines = [piece for line in prose.split("\n") for piece in _short_enough(line, max_tokens, counter)]
    lines = [line for line in lines if line != _LEFT_OUT]
    room = max_tokens - counter(_LEFT_OUT) - 1
    head = _that_fit(lines, int(room * HEAD_SHARE), counter)
    room -= sum(counter(line) + 1 for line in head)
    end = _that_fit(lines[len(head) :][::-1], room, counter)[::-1]
    return "\n".join((*head, _LEFT_OUT, *end)).strip() if head or end else ""


def _titled(record: str) -> Iterator[tuple[str | None, str]]:
    """Each line below a heading of ours with that heading; others with none."""
    title: str | None = None
    for line in record.split("\n"):
        if line.rstrip() in _FIELDS:
            title = _FIELDS[line.rstrip()]
            continue
        if title is not None and not line.startswith(_INDEX if title == NAMED else ("- ", "  ")):
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


def _that_fit(lines: Sequence[str], room: int, counter: TokenCounter) -> list[str]:
    kept: list[str] = []
    for line in lines:
        room -= counter(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept
