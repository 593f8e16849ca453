"""The offline model's one job: list the files, read them a few side by side, note what each says, answer.

Where it stands is read from the messages alone: listings, reads not yet noted, and the job as it was told
(`job`). A listing that was shortened counts for the part in sight; one that is gone is made again, from the
place in it. No file that is noted is read again, nor one whose note a record had no room for: its note was
said in the session, and the answer says so. What a file says of itself is found by its kind (`_FINDERS`).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from agentloop._plumbing.truncate import few
from agentloop.messages import Json, Message
from agentloop.providers.offline.job import (
    GONE,
    Place,
    is_in_order,
    job_in,
    lists_in,
    note_lines,
    paths_in,
    shorten,
)
from agentloop.providers.offline.view import CallMade, FileTask, View, calls_made

LONGEST = 120
_MOST_NAMES = 6
Finder = Callable[[str], str | None]
_SENTENCE = re.compile(r".+?(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)(?<!\betc)[.!?](?=\s|$)", re.IGNORECASE)
_DOCSTRING = re.compile(
    r"\A(?:[ \t]*(?:\#[^\n]*)?\n)*[rRuU]{0,2}(\"\"\"|'''|\"|')(?P<text>.*?)(?:(?<!\\)\1|\Z)", re.DOTALL
)
_COMMENT = re.compile(r"[ \t]*(?:\#(?!include|define|if|undef|pragma|!\[)|//|/\*|\*|--|;|%|<!--)(?P<text>.*)")
_PREPROCESSOR = re.compile(r"#(?:include|define|if|undef|pragma)")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_MARKS = re.compile(r"^[\s/*#;%!<>=~-]+|[\s/*#=~>-]+$")
_NO_DESCRIPTION = re.compile(
    r"copyright|\(c\)|licen[sc]e|all rights reserved|permission is hereby|redistribution|warrant|\bauthor"
    r"|contact:|spdx|coding[:=]|-\*-|\bvim?:|pylint|ruff:|noqa|mypy:|eslint|^!|@ts-",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"^[ \t]{0,3}#{1,6}[ \t]+(?P<text>.+?)[ \t#]*$|^(?P<under>\S.*)\n[=-]{3,}[ \t]*$", re.MULTILINE
)
_DEFINITION = re.compile(
    r"^(?:(?:export|default|pub|public|private|static|async|abstract|final)[ \t]+)*"
    r"(?:def|class|function|fn|func|struct|enum|trait|interface|type|module)[ \t]+(\w+)",
    re.MULTILINE,
)
LISTED_AT_ONCE = 100
LINES_READ = 60
TRIES = 2
_SAID_BEFORE = "was read; its note was said before, in this session"
_NUMBERED = re.compile(r"^\s*\d+\t(.*)$")
_CUT = re.compile(r"\.\.\. \[[^\n]*")


@dataclass(frozen=True, slots=True)
class _Listing:
    """The paths of one pattern in sight, and where the next listing begins; None at the end of the list."""

    paths: tuple[str, ...]
    goes_on_at: int | None
    complaint: str | None = None


def reading_step(task: FileTask, view: View, side_by_side: int) -> Message:
    """The next message of the job: notes of what was just read, beside the next calls; or the answer."""
    if missing := {"list_files", "read_file"} - view.tool_names:
        return Message.assistant(f"To read files I need the tool {' and '.join(sorted(missing))}.")
    job = job_in(view.own_records, view.since, task)
    fresh = {path: what for path, what in _read(view) if path not in job.notes}
    known = {**job.notes, **fresh}
    lists = lists_in(view.since)
    listings = {
        pattern: _listing(pattern, view, lists.get(pattern), job.places.get(pattern, Place()))
        for pattern in task.patterns
    }
    wanted = [*task.paths, *(path for listing in listings.values() for path in listing.paths)]
    pending = [path for path in dict.fromkeys(wanted) if path not in known]
    notes = "\n".join(note_lines(fresh))
    if pending:
        calls = [{"path": path, "limit": LINES_READ} for path in pending[:side_by_side]]
        return _call_message(view, "read_file", calls, notes)
    open_lists = {
        pattern: each.goes_on_at for pattern, each in listings.items() if each.goes_on_at is not None
    }
    if open_lists:
        calls = [_list_call(pattern, offset) for pattern, offset in open_lists.items()]
        return _call_message(view, "list_files", calls, notes or "I look which files there are.")
    return Message.assistant(_answer(task, known, listings, job.places))


def _call_message(view: View, tool: str, arguments: list[dict[str, object]], text: str) -> Message:
    """The calls, with a limit where the tool takes one."""
    parameters: Json = dict(view.tool_functions())[tool].get("parameters") or {}
    if "limit" not in (parameters.get("properties") or {}):
        arguments = [{name: value for name, value in each.items() if name != "limit"} for each in arguments]
    calls = [view.call(tool, each, number) for number, each in enumerate(arguments, 1)]
    return Message.assistant(text or None, calls)


def _list_call(pattern: str, offset: int) -> dict[str, object]:
    call: dict[str, object] = {"pattern": pattern, "limit": LISTED_AT_ONCE}
    return call | ({"offset": offset} if offset else {})


def _read(view: View) -> Iterator[tuple[str, str]]:
    """The files read since it was asked, each with what it says of itself."""
    broken_off: Counter[str] = Counter()
    for done in calls_made(view.since):
        path = done.arguments.get("path")
        if done.name != "read_file" or not isinstance(path, str):
            continue
        if not done.broken_off:
            yield path, _describe_result(path, done.result or "")
        else:
            broken_off[path] += 1
            if broken_off[path] >= TRIES:
                yield path, f"could not be read: broken off {TRIES} times"


def _describe_result(path: str, result: str) -> str:
    lines = list(_numbered(_CUT.sub("", result)))
    if lines:
        return describe_file(path, lines)
    first = " ".join(result.split())[:120]
    if remark := re.fullmatch(r"\[.*? (is [^\]]*)\]", first):
        return remark[1]
    if not first or re.search(r"\bempty\b", first, re.IGNORECASE):
        return "is empty"
    return f"could not be read: {first}"


def _numbered(result: str) -> Iterator[str]:
    """The lines of the file: the first stretch of numbered lines."""
    begun = False
    for line in result.split("\n"):
        if numbered := _NUMBERED.match(line):
            begun = True
            yield numbered.group(1)
        elif begun:
            return


def _listing(pattern: str, view: View, made: Sequence[CallMade] | None, place: Place) -> _Listing:
    """What is in sight of the list behind the place; without any, it goes on one before that.

    What was listed may have begun too late, since files come and go: then the list goes on before that.
    """
    if not made:
        asked = [
            done.arguments.get("pattern") for done in calls_made(view.since) if done.name == "list_files"
        ]
        if asked.count(pattern) >= TRIES:
            return _Listing((), None, "the list was broken off")
        return _Listing((), max(0, place.count - 1))
    paths, first, newest = paths_in(made), made[0].offset, made[-1]
    last = place.last if is_in_order(paths) else ""
    if first and last and (not paths or paths[0] > last):
        return _Listing((), max(0, first - LISTED_AT_ONCE))
    found, lines = len(newest.listed), len((newest.result or "").strip().split("\n"))
    ended = found == 0 or (found == lines and found < LISTED_AT_ONCE)
    behind = tuple(path for path in paths if path > last)
    return _Listing(behind, None if ended else newest.offset + found, None if found else newest.result)


def _answer(
    task: FileTask, known: Mapping[str, str], listings: Mapping[str, _Listing], places: Mapping[str, Place]
) -> str:
    """Each file with its note; of those whose names went, too, how many there are."""
    lines = [
        f"{path}: {_SAID_BEFORE if known[path] == GONE else known[path]}"
        for path in sorted(known)
        if task.takes_in(path)
    ]
    gone = [
        f"The first {place.count} files of {pattern} are read, up to {place.last}; "
        "their notes were said before, in this session."
        for pattern, place in places.items()
        if pattern in task.patterns and place.count > sum(map(FileTask(patterns=(pattern,)).takes_in, known))
    ]
    if lines or gone:
        return "\n".join((*gone, *lines))
    complaints = [" ".join(each.complaint.split())[:200] for each in listings.values() if each.complaint]
    pattern = ", ".join(task.patterns)
    return f"I found no file of the kind {pattern} here." + "".join(
        f" list_files: {text}" for text in complaints
    )


def describe_file(path: str, lines: Sequence[str]) -> str:
    """The first that the file has of: its own description, a leading comment, its names, a line."""
    text = "\n".join(line.rstrip() for line in lines).lstrip("\ufeff")
    if not text.strip():
        return "is empty"
    for finder in (*_FINDERS.get(PurePosixPath(path).suffix.lower(), _CODE), _first_line):
        if what := finder(text):
            return what
    return "says nothing of itself"


def first_sentence(text: str) -> str:
    """The first sentence of the first paragraph on one line, cut between words at `LONGEST` characters."""
    paragraph = " ".join(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0].split())
    found = _SENTENCE.match(paragraph)
    return shorten(found.group() if found else paragraph, LONGEST)


def _docstring(text: str) -> str | None:
    found = _DOCSTRING.match(text)
    return first_sentence(found["text"]) or None if found else None


def _comment(text: str) -> str | None:
    """The first sentence of the leading comment that is no licence, author or setting of an editor."""
    lines: list[str] = []
    for line in text.split("\n"):
        found = _COMMENT.match(line)
        if found:
            lines.append(_MARKS.sub("", found["text"]))
        elif line.strip() and not _PREPROCESSOR.match(line):
            break
        else:
            lines.append("")
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    telling = (each for each in paragraphs if each.strip() and not _NO_DESCRIPTION.search(each))
    return next((first_sentence(each) for each in telling), None)


def _heading(text: str) -> str | None:
    found = _HEADING.search(_FRONT_MATTER.sub("", text))
    return first_sentence(found["text"] or found["under"]) if found else None


def _first_line(text: str) -> str | None:
    return first_sentence(text) or None


def _definitions(text: str) -> str | None:
    """The names that it defines: public ones first, and how many more there are."""
    ordered = sorted(dict.fromkeys(_DEFINITION.findall(text)), key=lambda name: name.startswith("_"))
    return shorten(f"defines {few(ordered, _MOST_NAMES)}", LONGEST) if ordered else None


_CODE = (_comment, _definitions)
_FINDERS: Mapping[str, tuple[Finder, ...]] = {
    ".py": (_docstring, *_CODE),
    ".pyi": (_docstring, *_CODE),
    ".md": (_heading,),
    ".rst": (_heading,),
    ".txt": (),
}
