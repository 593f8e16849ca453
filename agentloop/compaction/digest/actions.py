"""What a tool or a command does to files, by its name, and the files that its arguments name."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agentloop._plumbing.patterns import pattern
from agentloop.context import kind_of

CHANGING = ("edited", "written", "moved", "deleted")
LOOKING = ("read", "searched", "listed")

_VERBS = (
    ("deleted", r"delet|remov|unlink|rm\b|trash"),
    ("moved", r"mov|renam|mv\b"),
    (
        "edited",
        r"edit|patch|replac|updat|modif|insert|append|apply|change|sed -i|str_replace|refactor|format",
    ),
    ("written", r"writ|creat|save|new_|put|touch|mkdir|upload|generat|add"),
    ("run", r"run|exec|test|build|compil|python|node|pytest|bash|sh\b|make|launch"),
    ("searched", r"search|grep|find|glob|rg\b"),
    ("listed", r"list|ls\b|tree|dir\b"),
    ("read", r"read|cat|view|open|get|show|fetch|load|head|tail|less|inspect|look|print|parse|check|sed"),
)
_ACTIONS = tuple((action, pattern(rf"(?:^|[^a-z])(?:{verbs})", re.IGNORECASE)) for action, verbs in _VERBS)
_ELSEWHERE = pattern(r"^(?:cd \S+ ?(?:&&|;) ?|[A-Z_]+=\S+ |sudo |time |timeout \S+ )+")
"""What says where and how a command is run."""


def action_of(name: str) -> str:
    """What a tool or a command of this name does to a file; "used" where the name does not tell."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name[:60])
    for text in (snake.split(" ", 1)[0], snake):
        for action, verbs in _ACTIONS:
            if verbs.search(text):
                return action
    return "used"


def only_looks(name: str, command: str) -> bool:
    """Whether a call only looks at something, so that what it shows may speak of errors of others."""
    return action_of(_ELSEWHERE.sub("", command) if command else name) in LOOKING


MOST_PATHS = 40
"""So many paths of one call are taken note of."""

MOST_PATH_CHARS = 300

MOST_NESTED = 7
"""So deep in the arguments paths are looked for."""

_KEY = pattern(
    r"(?:^|_)(?:path|paths|file|files|filename|filenames|filepath|dir|directory|folder|notebook)(?:$|_)|"
    r"(?:path|file|filename)$",
    re.IGNORECASE,
)
_SHELL_KEYS = ("command", "cmd", "script", "bash", "shell", "args", "argv")
_HEREDOC = pattern(r"<<-?\s*[\"']?\w+")
_NO_FILE = pattern(r"[sy]/|[@$%+=-]|/[\w-]*$|.*[{}$*?]")
"""Scripts of sed, packages, options, and what a shell would still expand."""
_NAMED = pattern(
    r"^(?:\*\*\* (?:Update|Add|Delete|Move to):? ?(?:File: ?)?|(?:\+\+\+|---) (?:[ab]/)?)(\S+)", re.MULTILINE
)
_WORDS = pattern(r"[^\s\"'`|;&<>()=,]+")


def paths_in(arguments: Mapping[str, Any]) -> list[str]:
    """The paths that these arguments name, in order, each once."""
    return list(dict.fromkeys(_in_value("", arguments, depth=0)))[:MOST_PATHS]


def _in_value(key: str, value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from _in_text(key, value)
    elif isinstance(value, Mapping) and depth < MOST_NESTED:
        for name, each in value.items():
            yield from _in_value(str(name), each, depth + 1)
    elif isinstance(value, list) and depth < MOST_NESTED:
        for item in value[:MOST_PATHS]:
            yield from _in_value(key, item, depth + 1)


def _in_text(key: str, text: str) -> Iterator[str]:
    text = text[:20_000].strip()
    if key in _SHELL_KEYS:
        yield from paths_of_command(text)
    elif "\n" in text:
        yield from (match.group(1) for match in _NAMED.finditer(text) if match.group(1) != "/dev/null")
    elif is_path(text) or (_KEY.search(key) and 0 < len(text) < MOST_PATH_CHARS and "://" not in text):
        yield text


def paths_of_command(command: str) -> Iterator[str]:
    """The words of a command line that look like files; the body of a here-document is no command."""
    heredoc = _HEREDOC.search(command)
    line = command[: heredoc.start()] if heredoc else command
    rest = command[heredoc.end() :].split("\n", 1)[0] if heredoc else ""
    for word in _WORDS.findall(f"{line} {rest}"[:4_000]):
        if is_path(word.rstrip(":.,")) and not _NO_FILE.match(word):
            yield word.rstrip(":.,")


def is_path(word: str) -> bool:
    """Whether a word looks like a path: a known extension, or parts with slashes between."""
    return len(word) < MOST_PATH_CHARS and " " not in word and kind_of(word) == "path" and word[-1] != "$"
