"""Paths in the arguments of calls and in command lines."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agentloop.context import kind_of

MOST_PATHS = 40
"""So many paths of one call are taken note of."""

MOST_PATH_CHARS = 300

MOST_NESTED = 6

_KEY = re.compile(
    r"(?:^|_)(?:path|paths|file|files|filename|filenames|filepath|dir|directory|folder|notebook)(?:$|_)|"
    r"(?:path|file|filename)$",
    re.IGNORECASE,
)
_COMMAND_KEYS = ("command", "cmd", "script", "bash", "shell", "args", "argv")
_HEREDOC = re.compile(r"<<-?\s*[\"']?\w+")
_NO_FILE = re.compile(r"[sy]/|[@$%+=-]|/[\w-]*$|.*[{}$*?]")
"""Scripts of sed, packages, options, and what a shell would still expand."""
_NAMED = re.compile(
    r"^(?:\*\*\* (?:Update|Add|Delete|Move to):? ?(?:File: ?)?|(?:\+\+\+|---) (?:[ab]/)?)(\S+)", re.MULTILINE
)
_WORDS = re.compile(r"[^\s\"'`|;&<>()=,]+")


def paths_in(arguments: Mapping[str, Any]) -> list[str]:
    """The paths that these arguments name, in order, each once."""
    return list(dict.fromkeys(_paths(arguments, depth=0)))[:MOST_PATHS]


def _paths(arguments: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, value in arguments.items():
        yield from _in_value(str(key), value, depth)


def _in_value(key: str, value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from _in_text(key, value)
    elif isinstance(value, Mapping) and depth < MOST_NESTED:
        yield from _paths(value, depth + 1)
    elif isinstance(value, list) and depth < MOST_NESTED:
        for item in value[:MOST_PATHS]:
            yield from _in_value(key, item, depth + 1)


def _in_text(key: str, text: str) -> Iterator[str]:
    text = text[:20_000].strip()
    if key in _COMMAND_KEYS:
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
