"""What the messages show the offline model: the request, the calls made for it, the files it asks for."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import chain
from typing import Any

from agentloop.compaction.digest import is_digest, parse_records
from agentloop.context import prose_of, record_in
from agentloop.messages import Json, Message, ToolCall
from agentloop.models import ModelRequest

PLACES = "Done, places in the lists:"
READ = "Done, files read:"
FOCUS = "Of the focus:"
OWN = (PLACES, READ, FOCUS)
"""The headings of the stand-in's own sections of a record; the others are those of a digest."""
LEFT_OUT = "…"
"""The line of a digest that stands for lines left out: what follows is under no heading that is known."""
_HEADING = re.compile(r"^(?:[A-Z][^\n:]{0,60}:|…)[ \t]*$", re.MULTILINE)
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
_FAILED = ("failed: ", "timed out", "was not called, ")
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

    @property
    def offset(self) -> int:
        """Where in the list a part begins."""
        offset = self.arguments.get("offset", 0)
        return offset if isinstance(offset, int) else 0

    @property
    def listed(self) -> list[str]:
        """The paths in a list's result: whole lines up to where it was cut, if it was, without remarks.

        There are none in one that says that the call failed, or was not made as its arguments do not fit.
        """
        if (self.result or "").startswith(tuple(f"{self.name} {failed}" for failed in _FAILED)):
            return []
        whole, cut, _ = (self.result or "").partition("... [")
        lines = whole.split("\n")
        if cut:
            lines.pop()
        return [line for line in lines if line and not line.startswith(("[", "(", ".. "))]


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
        """The records that a digest or the stand-in wrote: no other says what was asked or read.

        One that was computed stands also below what a model wrote.
        """
        return list(filter(is_ours, chain.from_iterable(map(prose_of, self.records))))

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools offered."""
        return frozenset(name for name, _ in self.tool_functions())

    def tool_functions(self) -> Iterator[tuple[str, Json]]:
        """Each tool's name and its description in wire form."""
        for tool in self.tools:
            function = tool.get("function", {})
            yield str(function.get("name", "")), function

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
    view = View(
        asked=said[at].text if at is not None else "",
        before=tuple(said[: at or 0]),
        since=tuple(said[at + 1 :] if at is not None else said),
        records=records,
        tools=request.tools,
        fingerprint=hashlib.sha256(json.dumps(request.messages, default=str).encode()).hexdigest()[:10],
    )
    asked_before = [line for record in view.own_records for line in questions_in(record)]
    return view if at is not None or not asked_before else replace(view, asked=asked_before[-1])


def calls_made(messages: Iterable[Message]) -> Iterator[CallMade]:
    """The calls that were made, oldest first."""
    messages = list(messages)
    results = {message.tool_call_id: message.text for message in messages if message.role == "tool"}
    for message in messages:
        for call in message.tool_calls:
            yield CallMade(name=call.name, arguments=call.decoded() or {}, result=results.get(call.id))


def _asked_at(said: Sequence[Message]) -> int | None:
    users = [at for at, message in enumerate(said) if message.role == "user"]
    if len(users) > 1 and _GO_ON.fullmatch(said[users[-1]].text):
        return users[-2]
    return users[-1] if users else None


def is_record(message: Message) -> bool:
    """Whether the message stands for what was compressed."""
    return message.role == "user" and message.text.startswith(_RECORD)


def is_ours(record: str) -> bool:
    """Whether every line of the record is of a form that a digest or the stand-in writes."""
    return is_digest(record, (*OWN, LEFT_OUT))


def questions_in(record: str) -> list[str]:
    """What a record says that users said, one text each."""
    return list(parse_records([("digest", record)]).asked)


def sections(record: str) -> Iterator[tuple[str, str]]:
    """The headings of a record, each with what stands under it; what stands before the first has none."""
    start, title = 0, ""
    for heading in _HEADING.finditer(record):
        yield title, record[start : heading.start()]
        title, start = heading.group().strip(), heading.end()
    yield title, record[start:]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """Files to read: those of the patterns, and those named."""

    patterns: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def takes_in(self, path: str) -> bool:
        """Whether a file is meant, by its name."""
        name = path.rpartition("/")[2]
        return path in self.paths or any(fnmatch(name, each.rpartition("/")[2]) for each in self.patterns)


ANY_FILE = FileTask(patterns=("*",))
"""What is taken for the task where nobody in sight asks for anything."""


def file_task(text: str) -> FileTask | None:
    """The files of a kind that the text asks to have read or told about; None where it asks for none."""
    text = text[:_LONGEST_TASK]
    globs = list(_globs(text))
    suffixes = (suffix.lower() for suffix in _SUFFIX.findall(text))
    kinds = list(dict.fromkeys((*suffixes, *_kinds(text))))
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
