"""What was learnt, written down as text: one line a file, `- path: what it does`.

The stand-in has no memory but the messages, so these lines, in its own messages and in records, are how
it knows what it has read.
"""

import json
import re
from collections.abc import Iterator, Mapping

from agentloop.compaction.digest import taken_apart

READ = "Done, files read:"
TO_READ = "Open, files still to read:"
FOCUS = "Of the focus:"
"""The headings of the stand-in's own sections of a record; the others are those of a digest."""

_NOTE = re.compile(r'^- ("(?:[^"\\]|\\.)+"|[^\s:"]+): (.*)$', re.MULTILINE)
_UNDASHED = re.compile(r'^(?=(?:"(?:[^"\\]|\\.)+"|[^\s:"-][^\s:"]*[./][^\s:"]*): )', re.MULTILINE)
_HEADING = re.compile(r"^(?:[A-Z][^\n:]{0,40}):[ \t]*$", re.MULTILINE)


def note_lines(notes: Mapping[str, str]) -> list[str]:
    """The notes as lines; a path with a blank or a colon stands in quotes."""
    return [f"- {_shown(path)}: {what}" for path, what in notes.items()]


def notes_in(text: str) -> dict[str, str]:
    """The notes that stand in a text, the newest of each path."""
    return {_path(shown): what.strip() for shown, what in _NOTE.findall(text) if what.strip()}


def notes_in_record(record: str) -> dict[str, str]:
    """The notes that stand in a record in what the assistant said, under no heading, or under their own."""
    notes = notes_in(dashed("\n".join(taken_apart([record]).decided)))
    for title, body in sections(record):
        if title in (READ, ""):
            notes |= notes_in(body)
    return notes


def dashed(text: str) -> str:
    """The text with a dash before each note of a path, which a digest takes away."""
    return _UNDASHED.sub("- ", text)


def is_note(line: str) -> bool:
    """Whether a line is a note."""
    return bool(_NOTE.fullmatch(line))


def asked_in(record: str) -> list[str]:
    """What a record says that users said, one text each."""
    return list(taken_apart([record]).asked)


def to_read_in(record: str) -> list[str]:
    """The paths that a record names as still to read."""
    lines = [line for title, body in sections(record) if title == TO_READ for line in items(body)]
    return [_path(line) for line in lines]


def to_read_lines(paths: list[str]) -> list[str]:
    """The paths as lines of a record."""
    return [f"- {_shown(path)}" for path in paths]


def sections(record: str) -> Iterator[tuple[str, str]]:
    """The headings of a record, each with what stands under it; what stands before the first has none."""
    start, title = 0, ""
    for heading in _HEADING.finditer(record):
        yield title, record[start : heading.start()]
        title, start = heading.group().strip(), heading.end()
    yield title, record[start:]


def items(body: str) -> list[str]:
    """The items of a section, each with the lines that belong to it."""
    found = (item.strip().replace("\n  ", "\n") for item in re.split(r"^- ", body, flags=re.MULTILINE))
    return [item for item in found if item]


def _shown(path: str) -> str:
    return json.dumps(path, ensure_ascii=False) if re.search(r"[\s:\"]", path) else path


def _path(shown: str) -> str:
    if not shown.startswith('"'):
        return shown
    try:
        return str(json.loads(shown))
    except ValueError:
        return shown
