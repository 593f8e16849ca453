"""The stand-in's notes: what each file does that it read, one line a file, `- path: what it does`.

The stand-in has no memory but the messages, so what it learns it writes down as text. Its records tell the
same, oldest first, in a section of their own.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from agentloop.compaction.digest import parse_records
from agentloop.context import TokenCounter
from agentloop.messages import Message
from agentloop.providers.offline.view import READ, FileTask

GONE = "…"
"""Stands for a note that a record had no room for: it was said in the session, and the file is read."""
_PATH = r'"(?:[^"\\]|\\.)+"|[^\s:"-][^\s:"]*[./][^\s:"]*'
_NOTE = re.compile(rf"^- ({_PATH}): (.*)$", re.MULTILINE)
_UNDASHED = re.compile(rf"^(?=(?:{_PATH}): )", re.MULTILINE)
_SECTION = re.compile(rf"^{READ}\n((?:- .*\n?)*)", re.MULTILINE)
_WIDTHS = (120, 80, 50, 30, 15)


def notes_of(records: Iterable[str], messages: Sequence[Message], task: FileTask | None) -> dict[str, str]:
    """The notes in records and in what was said since; a digest names files of the task without one."""
    notes: dict[str, str] = {}
    for record in records:
        told = parse_records([("digest", record)])
        for path, action in told.files:
            if action == "read" and task and task.takes_in(path):
                notes.setdefault(path, GONE)
        for text in (_UNDASHED.sub("- ", "\n".join(told.decided)), *_SECTION.findall(record)):
            found = notes_in(text)
            notes |= {path: what for path, what in found.items() if what != GONE or path not in notes}
    for message in messages:
        if message.role == "assistant":
            notes |= notes_in(message.text)
    return notes


def notes_section(
    notes: Mapping[str, str], *, most_tokens: int, counter: TokenCounter, again: bool = False
) -> str:
    """The notes as a section of a record.

    What does not fit is told in fewer words; then of the oldest notes only the names are left, and then the
    oldest names go.
    """
    notes = dict(notes)
    for width in _WIDTHS[2 if again else 0 :]:
        notes = {path: shorten(what, width) for path, what in notes.items()}
        if counter(_section(notes)) <= most_tokens:
            return _section(notes)
    while notes and counter(_section(notes)) > most_tokens:
        told = [path for path in notes if notes[path] != GONE]
        if len(told) > 1:
            notes |= dict.fromkeys(told[: len(told) // 8 + 1], GONE)
        else:
            for path in list(notes)[: len(notes) // 8 + 1]:
                del notes[path]
    return _section(notes)


def _section(notes: Mapping[str, str]) -> str:
    return "\n".join((READ, *note_lines(notes))) if notes else ""


def notes_in(text: str) -> dict[str, str]:
    """The notes that stand in a text, the newest of each path."""
    return {_path(shown): what.strip() for shown, what in _NOTE.findall(text) if what.strip()}


def without_notes(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not _NOTE.fullmatch(line))


def note_lines(notes: Mapping[str, str]) -> list[str]:
    """The notes as lines; a path that could be something else stands in quotes."""
    return [f"- {_shown(path)}: {what}" for path, what in notes.items()]


def _shown(path: str) -> str:
    return path if re.fullmatch(_PATH, path) else json.dumps(path, ensure_ascii=not path.isprintable())


def _path(shown: str) -> str:
    if not shown.startswith('"'):
        return shown
    try:
        return str(json.loads(shown))
    except ValueError:
        return shown


def shorten(text: str, longest: int) -> str:
    """The text itself, or its beginning up to `longest` characters, cut between words and marked with …."""
    if len(text) <= longest:
        return text
    cut = text[: max(1, longest - 1)]
    return (cut.rpartition(" ")[0] or cut).rstrip(" ,;:.-") + "…"
