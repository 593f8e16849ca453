"""How far the stand-in's one job is: what each file does that was read, and its place in each list of files.

The stand-in has no memory but the messages. What it learns it writes down as text, one line a file,
`- path: what it does`, and its records tell the same, oldest first, behind the places in the lists. A record
is written by `Job.text`, and read, with what was said since, by `job_in`: by nothing else.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from agentloop.compaction.digest import MORE_FILES, parse_records
from agentloop.context import TokenCounter
from agentloop.messages import Message
from agentloop.providers.offline.view import (
    ANY_FILE,
    LEFT_OUT,
    PLACES,
    READ,
    CallMade,
    FileTask,
    calls_made,
    sections,
)

GONE = "…"
"""Stands for a note that a record had no room for: it was said in the session, and the file is read."""
_NOTE = re.compile(r'^- ("(?:[^"\\]|\\.)+"|[^\s:"]+): (.*)$', re.MULTILINE)
_UNDASHED = re.compile(r'^(?=(?:"(?:[^"\\]|\\.)+"|[^\s:"-][^\s:"]*[./][^\s:"]*): )', re.MULTILINE)
_MORE = re.compile(f"^{MORE_FILES.format(more='([0-9]{1,9})')}$", re.MULTILINE)
_PLACE = re.compile(r"(\d{1,9}) files, up to (.+)")
_WIDTHS = (120, 80, 50, 30, 15)


@dataclass(frozen=True, slots=True)
class Place:
    """How far a list that is in order was gone through: about `count` files, all up to `last`, are read."""

    count: int = 0
    last: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The note of each file that was read, and the place in the list of each pattern.

    Where not even the name of a file has room, the place says that it need not be read again; `more` is how
    many such files there are, all of them read before those with a note. It is what is left where no list is
    in sight, and gives the place in one that is made again.
    """

    notes: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    more: int = 0

    def text(self, *, most_tokens: int, counter: TokenCounter, again: bool = False) -> str:
        """The job as sections of a record.

        What does not fit is told in fewer words; then of the oldest notes only the names are left, and then
        the oldest names go.
        """

        def is_too_long(notes: Mapping[str, str]) -> bool:
            return counter(self._with(notes)) > most_tokens

        notes = dict(self.notes)
        for width in _WIDTHS[2 if again else 0 :]:
            notes = {path: shorten(what, width) for path, what in notes.items()}
            if not is_too_long(notes):
                return self._with(notes)
        while is_too_long(notes) and len(told := [path for path in notes if notes[path] != GONE]) > 1:
            notes |= dict.fromkeys(told[: len(told) // 8 + 1], GONE)
        while is_too_long(notes) and (names := [path for path in notes if notes[path] == GONE]):
            for path in names[: len(names) // 8 + 1]:
                del notes[path]
        return self._with(notes)

    def _with(self, notes: Mapping[str, str]) -> str:
        places = {
            pattern: f"{place.count} files, up to {_shown(place.last)}"
            for pattern, place in self.places.items()
        }
        more = self.more + len(self.notes) - len(notes)
        read = [*([MORE_FILES.format(more=more)] if more else []), *note_lines(notes)]
        parts = ((PLACES, note_lines(places)), (READ, read))
        return "\n\n".join("\n".join((title, *lines)) for title, lines in parts if lines)


def job_in(records: Iterable[str], messages: Sequence[Message], task: FileTask | None) -> Job:
    """How far the job is by records, and by what was said since.

    A place goes on in its list as long as the next file is read. Records may tell of the same files.
    """
    lists = lists_in(messages)
    notes: dict[str, str] = {}
    places: dict[str, Place] = {}
    read_before = 0
    for record in records:
        found = dict(_notes_in_record(record, task))
        notes |= {path: what for path, what in found.items() if what != GONE or path not in notes}
        read_before = max(read_before, _more_in(record) + len(found))
        patterns = (*lists, *(task.patterns if task and task != ANY_FILE else ()))
        for pattern, place in _places_in_record(record, patterns).items():
            places[pattern] = max(place, places.get(pattern, place), key=lambda each: each.count)
    more = max(0, read_before - len(notes))
    for message in messages:
        if message.role == "assistant":
            notes |= notes_in(message.text)
    for pattern, made in lists.items():
        paths, place = paths_in(made), places.pop(pattern, Place())
        if is_in_order(paths):
            read = list(takewhile(notes.__contains__, (path for path in paths if path > place.last)))
            places |= {pattern: Place(place.count + len(read), read[-1]) if read else place}
    places = {pattern: place for pattern, place in places.items() if place.count}
    return Job(notes=notes, places=places, more=more)


def _notes_in_record(record: str, task: FileTask | None) -> Iterator[tuple[str, str]]:
    """The files that a digest says are read, and the notes in what it or the stand-in wrote."""
    yield from ((path, GONE) for path in _named(record, task))
    yield from notes_in(with_dashes("\n".join(parse_records([("digest", record)]).decided))).items()
    yield from _notes_of_job(record).items()


def _notes_of_job(record: str) -> dict[str, str]:
    told = (body for title, body in sections(record) if title in (READ, LEFT_OUT, ""))
    return {path: what for body in told for path, what in notes_in(body).items()}


def _more_in(record: str) -> int:
    """How many files a record says are read before those that it names."""
    own = "\n".join(body for title, body in sections(record) if title == READ)
    return parse_records([("digest", record)]).more_files + sum(map(int, _MORE.findall(own)))


def _places_in_record(record: str, patterns: Iterable[str]) -> dict[str, Place]:
    """The places that the stand-in wrote.

    By a record that names not all files they are at the newest, since files are read in order.
    """
    more, places = _more_in(record), {}
    for task in (FileTask(patterns=(pattern,)) for pattern in patterns if more):
        own = [path for path in _notes_of_job(record) if task.takes_in(path)]
        if paths := list(dict.fromkeys((*_named(record, task), *own))):
            places[task.patterns[0]] = Place(more + len(paths), paths[-1])
    for title, body in sections(record):
        told = notes_in(body) if title == PLACES else {}
        found = {pattern: _PLACE.fullmatch(what) for pattern, what in told.items()}
        places |= {pattern: Place(int(at[1]), _path(at[2])) for pattern, at in found.items() if at}
    return places


def _named(record: str, task: FileTask | None) -> list[str]:
    """The files of the task that a digest says are read, oldest first."""
    files = parse_records([("digest", record)]).files
    return [path for path, action in files if action == "read" and task and task.takes_in(path)]


def lists_in(messages: Iterable[Message]) -> dict[str, list[CallMade]]:
    """The lists of files that were made, by their patterns, each part by its offset."""
    lists: dict[str, list[CallMade]] = {}
    for done in calls_made(messages):
        pattern = done.arguments.get("pattern")
        if done.name == "list_files" and isinstance(pattern, str) and not done.broken_off:
            lists.setdefault(pattern, []).append(done)
    return {pattern: sorted(made, key=lambda done: done.offset) for pattern, made in lists.items()}


def paths_in(made: Iterable[CallMade]) -> list[str]:
    """The paths in the parts of a list, each once."""
    return list(dict.fromkeys(path for done in made for path in done.listed))


def is_in_order(paths: Sequence[str]) -> bool:
    """Whether a list has the order of its paths: only then it has places."""
    return all(first < second for first, second in pairwise(paths))


def notes_in(text: str) -> dict[str, str]:
    """The notes that stand in a text, the newest of each path."""
    return {_path(shown): what.strip() for shown, what in _NOTE.findall(text) if what.strip()}


def note_lines(notes: Mapping[str, str]) -> list[str]:
    """The notes as lines; a path with a blank or a colon stands in quotes."""
    return [f"- {_shown(path)}: {what}" for path, what in notes.items()]


def is_note(line: str) -> bool:
    """Whether a line is a note."""
    return bool(_NOTE.fullmatch(line))


def with_dashes(text: str) -> str:
    """The text with a dash before each note of a path, which a digest takes away."""
    return _UNDASHED.sub("- ", text)


def _shown(path: str) -> str:
    odd = re.search(r"[\s:\"]", path)
    return json.dumps(path, ensure_ascii=not path.isprintable()) if odd else path


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
