"""What the messages show the offline model: the request, the files it asks for, the notes of those read.

The stand-in has no memory but the messages. What it learns it writes down as text, one line a file,
`- path: what it does`; these lines, in its own messages and in records, are how it knows what it has read.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from agentloop.compaction.digest import parse_records
from agentloop.messages import Json, Message, ToolCall
from agentloop.models import ModelRequest

READ = "Done, files read:"
TO_READ = "Open, files still to read:"
FOCUS = "Of the focus:"
"""The headings of the stand-in's own sections of a record; the others are those of a digest."""
_NOTE = re.compile(r'^- ("(?:[^"\\]|\\.)+"|[^\s:"]+): (.*)$', re.MULTILINE)
_UNDASHED = re.compile(r'^(?=(?:"(?:[^"\\]|\\.)+"|[^\s:"-][^\s:"]*[./][^\s:"]*): )', re.MULTILINE)
_HEADING = re.compile(r"^(?:[A-Z][^\n:]{0,40}):[ \t]*$", re.MULTILINE)
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
    records = tuple(message.text for message in messages if is_record(message))
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
    asked = [line for record in records for line in questions_in(record)]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """Files to read: those of the patterns, and those named."""

    patterns: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def takes_in(self, path: str) -> bool:
        """Whether a file is meant, by its name."""
        name = path.rpartition("/")[2]
        return path in self.paths or any(fnmatch(name, each.rpartition("/")[2]) for each in self.patterns)


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
    notes = notes_in(with_dashes("\n".join(parse_records([record]).decided)))
    for title, body in sections(record):
        if title in (READ, ""):
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
    return list(parse_records([record]).asked)


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
