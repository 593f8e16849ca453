"""What the messages show the offline model: the request, the files it asks for, the notes of those read.

The stand-in has no memory but the messages. What it learns it writes down as text, one line a file,
`- path: what it does`; these lines, in its own messages and in records, are how it knows what it has read.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import pairwise
from typing import Any

from agentloop.compaction.digest import MORE_FILES, is_digest, parse_records
from agentloop.context import record_in
from agentloop.messages import Json, Message, ToolCall
from agentloop.models import ModelRequest

PLACES = "Done, places in the lists:"
READ = "Done, files read:"
SAID = "Done, files read whose notes were said before:"
TO_READ = "Open, files still to read:"
FOCUS = "Of the focus:"
OWN = (PLACES, READ, SAID, TO_READ, FOCUS)
"""The headings of the stand-in's own sections of a record; the others are those of a digest."""
LEFT_OUT = "…"
"""The line of a digest that stands for lines left out: what follows is under no heading that is known."""
_NOTE = re.compile(r'^- ("(?:[^"\\]|\\.)+"|[^\s:"]+): (.*)$', re.MULTILINE)
_UNDASHED = re.compile(r'^(?=(?:"(?:[^"\\]|\\.)+"|[^\s:"-][^\s:"]*[./][^\s:"]*): )', re.MULTILINE)
_HEADING = re.compile(r"^(?:[A-Z][^\n:]{0,60}:|…)[ \t]*$", re.MULTILINE)
_MORE = re.compile(f"^{MORE_FILES.format(more='([0-9]+)')}$", re.MULTILINE)
_PLACE = re.compile(r'(\d+) files of ("(?:[^"\\]|\\.)+"|\S+), the last one (.+)')
_KINDS: dict[str, tuple[str, ...]] = {
    "python": ("py",),
    "markdown": ("md",),
    "text": ("txt",),
    "yaml": ("yaml", "yml"),
    "javascript": ("js",),
    "typescript": ("ts",),
    "rust": ("rs",),
    "ruby": ("rb",),
    "shell": ("sh",),
    "bash": ("sh",),
    "perl": ("pl",),
    "kotlin": ("kt",),
    "latex": ("tex",),
    "restructuredtext": ("rst",),
    "c++": ("cpp",),
    "c#": ("cs",),
}
_SUFFIXES = """c cfg cpp cs css csv go h html ini java js json log lua md php py rb rs rst sh sql swift tex
toml ts txt xml yml"""
_KINDS |= {name: (name,) for name in _SUFFIXES.split()}
_NOUN = re.compile(r"(?:file|module|script|source|document|doc|note|page|program)s?", re.IGNORECASE)
_MANY = re.compile(
    r"\b(?:every|each|all|any)\b|\b(?:files|modules|scripts|sources|documents|docs|notes)\b", re.I
)
_EACH = re.compile(r"\b(?:every|each|all|any)\b", re.IGNORECASE)
_READS = re.compile(
    r"\b(?:read|go(?:ing)? through|look (?:at|into|through)|open|scan|review|summari[sz]e|describe"
    r"|explain)\b",
    re.I,
)
_TELLS = re.compile(r"\b(?:say|tell|report|what)\b", re.IGNORECASE)
_GLOB = re.compile(r"(?<![\w*?/.-])(?:[\w.-]+/|\*\*/)*[\w?-]*\*[\w*?.-]*(?:\{[\w,]+\})?\w*")
_CHOICE = re.compile(r"([^{]*)(?:\{([^}]*)\})?(.*)")
_SUFFIX = re.compile(r"(?<![\w*/)\]-])\.([A-Za-z]\w{0,7})\b(?!\.?/)")
_FOLDERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:in|under|of|inside|below)\s+(?:the\s+)?(?:folder|directory)\s+[`\"']?([\w./-]*\w)",
        r"([\w./-]*\w)/?[`\"']?\s+(?:folder|directory)\b",
        r"\b(?:in|under|of|inside|below)\s+[`\"']?([\w.-]+(?:/[\w.-]+)*)/",
    )
)
_OTHER_WORDS = """this the that current same whole entire each every my your our working a one its and or for
in is of here"""
_PATH = re.compile(r"(?<![\w/*.:-])(?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,7}\b")
_BETWEEN = "and or plus source code test each every all the"
_LONGEST_TASK = 2_000
_RECORD = "[Conversation compressed"
_GO_ON = re.compile(
    r"\W*(?:please\s+)?(?:continue|go on|carry on|proceed|keep going)\b.{0,30}", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMade:
    """A call made for what is asked, and its result; None where none is in sight."""

    name: str
    arguments: dict[str, Any]
    result: str | None

    @property
    def broken_off(self) -> bool:
        """Whether it has to be made again, since nothing is known of its outcome."""
        return self.result is None or self.result.lower().startswith(("interrupted", "not run:"))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A request as the stand-in sees it.

    `asked` is the text of the newest real user message (of the one before, where that says go on);
    `before` is what stood before it, `since` what came after, `records` the texts of the summaries.
    """

    asked: str
    before: tuple[Message, ...]
    since: tuple[Message, ...]
    records: tuple[str, ...]
    tools: tuple[Json, ...]
    fingerprint: str

    @property
    def own_records(self) -> list[str]:
        """The records that a digest or the stand-in wrote: no other says what was asked or read."""
        return list(filter(is_ours, self.records))

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools offered."""
        return frozenset(name for name, _ in self.tool_functions())

    def tool_functions(self) -> Iterator[tuple[str, Json]]:
        """Each tool's name and its description in wire form."""
        for tool in self.tools:
            function = tool.get("function", {})
            yield str(function.get("name", "")), function

    def calls_made(self) -> Iterator[CallMade]:
        """The calls made since it was asked, oldest first."""
        results = {message.tool_call_id: message.text for message in self.since if message.role == "tool"}
        for message in self.since:
            for call in message.tool_calls:
                yield CallMade(
                    name=call.name, arguments=_decoded(call.arguments), result=results.get(call.id)
                )

    def call(self, name: str, arguments: Json, number: int = 1) -> ToolCall:
        """A call whose id is another in each request and for each number."""
        text = json.dumps(arguments, ensure_ascii=False)
        return ToolCall(id=f"call_{self.fingerprint}_{number}", name=name, arguments=text)


def view_of(request: ModelRequest) -> View:
    """The request, read."""
    messages = [Message.from_openai(message) for message in request.messages]
    records = tuple(record_in(message)[1] for message in messages if is_record(message))
    said = [message for message in messages if not is_record(message)]
    at = _asked_at(said)
    return View(
        asked=said[at].text if at is not None else _last_asked(records),
        before=tuple(said[: at or 0]),
        since=tuple(said[at + 1 :] if at is not None else said),
        records=records,
        tools=request.tools,
        fingerprint=hashlib.sha256(json.dumps(request.messages, default=str).encode()).hexdigest()[:10],
    )


def _asked_at(said: Sequence[Message]) -> int | None:
    users = [at for at, message in enumerate(said) if message.role == "user"]
    if len(users) > 1 and _GO_ON.fullmatch(said[users[-1]].text):
        return users[-2]
    return users[-1] if users else None


def _last_asked(records: Sequence[str]) -> str:
    asked = [line for record in filter(is_ours, records) for line in questions_in(record)]
    return asked[-1] if asked else ""


def _decoded(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def is_record(message: Message) -> bool:
    """Whether the message stands for what was compressed."""
    return message.role == "user" and message.text.startswith(_RECORD)


def is_ours(record: str) -> bool:
    """Whether every line of the record is of a form that a digest or the stand-in writes."""
    return is_digest(record, (*OWN, LEFT_OUT))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """Files to read: those of the patterns, and those named."""

    patterns: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def takes_in(self, path: str) -> bool:
        """Whether a file is meant, by its name."""
        name = path.rpartition("/")[2]
        return path in self.paths or any(fnmatch(name, each.rpartition("/")[2]) for each in self.patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a list that is in order was gone through: about `count` files, all up to `last`, are read."""

    count: int
    last: str


NO_PLACE = Place(count=0, last="")


def file_task(text: str) -> FileTask | None:
    """The files of a kind that the text asks to have read or told about; None where it asks for none."""
    text = text[:_LONGEST_TASK]
    globs = list(_globs(text))
    kinds = list(dict.fromkeys((*_suffixes(text), *_kinds(text))))
    words = _words(text)
    many = bool(globs or _MANY.search(text)) and bool(globs or kinds or any(map(_NOUN.fullmatch, words)))
    if not many or not (_READS.search(text) or (_TELLS.search(text) and _EACH.search(text))):
        return None
    folder = _folder(text)
    if not kinds and not globs:
        kinds = ["py"] if re.search(r"\bmodules?\b", text, re.IGNORECASE) else ["*"]
    patterns = (f"{folder}**/*.{kind}".replace("*.*", "*") for kind in ([] if globs else kinds))
    return FileTask(patterns=tuple(dict.fromkeys((*globs, *patterns))))


def named_files(text: str) -> FileTask | None:
    """The files that the text names and asks to have read or told about; None where it names none."""
    text = text[:_LONGEST_TASK]
    paths = tuple(dict.fromkeys(_PATH.findall(text)))
    return FileTask(paths=paths) if paths and (_READS.search(text) or _TELLS.search(text)) else None


def _globs(text: str) -> Iterator[str]:
    for glob in (found.rstrip(".") for found in _GLOB.findall(text)):
        if "." in glob or "/" in glob:
            head, choice, tail = _CHOICE.match(glob).groups()  # type: ignore[union-attr]
            for each in (choice or "").split(","):
                yield f"{'' if '/' in glob else '**/'}{head}{each}{tail}"


def _suffixes(text: str) -> Iterator[str]:
    return (suffix.lower() for suffix in _SUFFIX.findall(text))


def _kinds(text: str) -> Iterator[str]:
    """The kinds right before a word for files, with nothing between but words such as "and" or "source"."""
    pending: list[str] = []
    for word in (word.lower() for word in _words(text)):
        if word in _KINDS:
            pending += _KINDS[word]
        elif _NOUN.fullmatch(word):
            yield from pending
            pending = []
        elif word not in _BETWEEN.split():
            pending = []


def _words(text: str) -> list[str]:
    return [word.strip(".,;:!?`\"'()") for word in text.split()]


def _folder(text: str) -> str:
    for pattern in _FOLDERS:
        for found in pattern.findall(text):
            name = found.strip("/")
            if name.lower() not in _OTHER_WORDS.split() and name != "." and ".." not in name.split("/"):
                return f"{name}/"
    return ""


def notes_in_record(record: str) -> dict[str, str]:
    """The notes that stand in a record in what the assistant said, under no heading, or under their own."""
    notes = notes_in(with_dashes("\n".join(parse_records([("digest", record)]).decided)))
    for title, body in sections(record):
        if title in (READ, LEFT_OUT, ""):
            notes |= notes_in(body)
    return notes


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


def questions_in(record: str) -> list[str]:
    """What a record says that users said, one text each."""
    return list(parse_records([("digest", record)]).asked)


def paths_in(record: str, heading: str) -> list[str]:
    """The paths that a record names under that heading, `TO_READ` or `SAID`."""
    return [_path(line) for line in _items_under(record, heading)]


def path_lines(paths: Iterable[str]) -> list[str]:
    """The paths as lines of a record."""
    return [f"- {_shown(path)}" for path in paths]


def said_in(record: str) -> list[str]:
    """Paths of files that were read, oldest first: those of which the record has no note, and a digest's."""
    done = [path for path, action in parse_records([("digest", record)]).files if action == "read"]
    return list(dict.fromkeys((*paths_in(record, SAID), *done)))


def places_in(records: Iterable[str], patterns: Iterable[str]) -> dict[str, Place]:
    """How far each of these patterns' lists was gone through by the records."""
    places: dict[str, Place] = {}
    for record in records:
        own, read = own_places(record), said_in(record)
        more = sum(map(int, _MORE.findall(record)))
        for pattern in patterns:
            found = own.get(pattern) or _guessed_place(pattern, read, more)
            if found.count > places.get(pattern, NO_PLACE).count:
                places[pattern] = found
    return places


def own_places(record: str) -> dict[str, Place]:
    """How far lists were gone through by a record of the stand-in, by their patterns."""
    told = filter(None, map(_PLACE.fullmatch, _items_under(record, PLACES)))
    return {_path(each[2]): Place(count=int(each[1]), last=_path(each[3])) for each in told}


def _guessed_place(pattern: str, read: Sequence[str], more: int) -> Place:
    """By a digest that names not all of the files: the newest is the last, since they are read in order."""
    read = [path for path in read if more and FileTask(patterns=(pattern,)).takes_in(path)]
    return Place(count=more + len(read), last=read[-1]) if read else NO_PLACE


def is_in_order(paths: Sequence[str]) -> bool:
    """Whether a list has the order of its paths: only then it has places."""
    return all(first < second for first, second in pairwise(paths))


def place_lines(places: Mapping[str, Place]) -> list[str]:
    """How far each list was gone through, as lines of a record."""
    return [
        f"- {place.count} files of {_shown(pattern)}, the last one {_shown(place.last)}"
        for pattern, place in places.items()
    ]


def listed_in(result: str) -> list[str]:
    """The paths in a list's result: whole lines up to where it was cut, if it was, without remarks."""
    whole, cut, _ = result.partition("... [")
    lines = whole.split("\n")
    if cut:
        lines.pop()
    return [line for line in lines if line and not line.startswith(("[", "(", ".. "))]


def sections(record: str) -> Iterator[tuple[str, str]]:
    """The headings of a record, each with what stands under it; what stands before the first has none."""
    start, title = 0, ""
    for heading in _HEADING.finditer(record):
        yield title, record[start : heading.start()]
        title, start = heading.group().strip(), heading.end()
    yield title, record[start:]


def _items_under(record: str, heading: str) -> list[str]:
    return [item for title, body in sections(record) if title == heading for item in items(body)]


def items(body: str) -> list[str]:
    """The items of a section, each with the lines that belong to it."""
    found = (item.strip().replace("\n  ", "\n") for item in re.split(r"^- ", body, flags=re.MULTILINE))
    return [item for item in found if item]


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
