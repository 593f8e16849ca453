"""The tools on files of one folder: list, read, search, write, edit.

Glob patterns are over POSIX paths: `*`, `?`, `[…]` inside a name, `**` for any folders, `{a,b}` for either;
matching takes time proportional to pattern times path, whatever the pattern. A model's regular expression is
matched in a process of its own, `line_finder`, which can be killed: Python's `re` may take for ever over a
bad one and lets no other thread run meanwhile, so that not even a time limit would fire.
"""

import contextlib
import fnmatch
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

from agentloop._plumbing.checks import shown
from agentloop._plumbing.encodings import decoded, encoding_of
from agentloop._plumbing.truncate import head
from agentloop.errors import UsageError
from agentloop.rules import KINDS
from agentloop.tools import RunContext, tool
from agentloop.workspace.commands import Commands
from agentloop.workspace.folder import Folder, WorkspaceError

_MOST_ALTERNATIVES = 64
_MOST_CHARS = 1_000
SEARCH_SECONDS = 30.0
_PROGRAM = Path(__file__).with_name("line_finder.py")
MOST_LISTED = 100_000
MOST_LINE_CHARS = 2_000
_BINARY_LOOK_BYTES = 8_192


def workspace_tools(
    workdir: Path | str, *, allow: Collection[str] = (), pass_env: Collection[str] = ()
) -> tuple[Callable[..., Any], ...]:
    """The built-in tools for the folder `workdir`, which the file tools cannot leave, by links neither.

    Always `list_files`, `read_file` and `search_files`. "write" in `allow` adds `write_file` and
    `edit_file`, "shell" adds `run_command`, which runs anywhere the user's shell may. Its commands don't see
    variables that look like secrets, but for those named in `pass_env`.

    Raises:
        UsageError: there is no such folder, or `allow` has another word.
    """
    if not isinstance(allow, Iterable) or isinstance(allow, bytes):
        raise UsageError(f"allow must be a list of {' and '.join(KINDS)}, not {shown(allow)}")
    allowed = [allow] if isinstance(allow, str) else list(allow)
    if unknown := [each for each in allowed if each not in KINDS]:
        raise UsageError(f"nothing called {shown(unknown[0])} can be allowed: use {' or '.join(KINDS)}")
    folder = Folder.at(workdir)
    passed = frozenset({pass_env} if isinstance(pass_env, str) else pass_env)
    files, edits = Files(folder=folder), Edits(folder=folder)
    commands = Commands(folder=folder, pass_env=passed)
    return (
        *(files.list_files, files.read_file, files.search_files),
        *((edits.write_file, edits.edit_file) if "write" in allowed else ()),
        *((commands.run_command,) if "shell" in allowed else ()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The tools that look, for one folder."""

    folder: Folder

    @tool(idempotent=True)
    def list_files(self, pattern: str = "**/*", path: str = ".", offset: int = 0, limit: int = 500) -> str:
        """List the files below a folder, one path a line, relative to the working folder.

        Hidden files are left out, unless the pattern names them: `.github/**`.

        Args:
            pattern: Glob relative to `path`; `**/` stands for any folders: `**/*.py`, `src/*.{c,h}`.
            path: The folder to look in.
            offset: How many files to skip.
            limit: The most files to list.
        """
        _at_least(0, offset=offset)
        _at_least(1, limit=limit)
        paths = sorted(islice(self._matching(pattern, path), MOST_LISTED))
        shown = paths[offset : offset + limit]
        if not shown:
            return _none_listed(pattern, path, offset, len(paths))
        lines = [*shown]
        if more := len(paths) - offset - len(shown):
            lines.append(f"... [{more} more; call list_files with offset={offset + len(shown)}]")
        return "\n".join(lines)

    @tool(idempotent=True)
    def read_file(
        self, path: str, offset: int = 1, limit: int = 1000, context: RunContext[Any] | None = None
    ) -> str:
        """Read a text file. Each line comes with its number and a tab, which are no part of the file.

        Args:
            path: The file, relative to the working folder.
            offset: The number of the first line to read, from 1.
            limit: The most lines to read.
        """
        _at_least(1, limit=limit)
        data = self.folder.read(path)
        if not data:
            return f"[{path} is empty]"
        if _is_binary(data):
            return f"[{path} is a binary file of {len(data):,} bytes, not text]"
        text = _redacted(decoded(data), context)
        return _numbered(path, text, max(1, offset), limit, _is_damaged(data))

    @tool(idempotent=True)
    def search_files(
        self,
        query: str,
        pattern: str = "**/*",
        path: str = ".",
        limit: int = 100,
        context: RunContext[Any] | None = None,
    ) -> str:
        """Find the lines that match a regular expression; each comes as `path:line number: text`.

        Args:
            query: A Python regular expression; `(?i)` in front ignores case.
            pattern: Glob relative to `path`, for the files to search: `**/*.py`.
            path: The folder to search in, or one file.
            limit: The most lines to give.
        """
        _at_least(1, limit=limit)
        texts = ((name, _redacted(text, context)) for name, text in self._texts(pattern, path))
        lines = find_lines(query, texts, limit=limit + 1)
        if not lines:
            return f"[no line matches {query!r}]"
        if len(lines) > limit:
            lines[limit:] = [f"... [more than {limit} lines match; narrow the query, pattern or path]"]
        return "\n".join(lines)

    def _matching(self, pattern: str, path: str) -> Iterator[str]:
        matches = matcher(pattern)
        names = self.folder.inside(path)
        skipped = len("/".join(names)) + 1 if names else 0
        walked = self.folder.walk(path, also=hidden_names(pattern))
        return (found for found in walked if matches(found[skipped:]))

    def _texts(self, pattern: str, path: str) -> Iterator[tuple[str, str]]:
        """The path and text of each file to search; what is binary or cannot be read is passed over."""
        if self.folder.is_file(path):
            yield "/".join(self.folder.inside(path)), _text_of(self.folder.read(path))
            return
        for found in sorted(islice(self._matching(pattern, path), MOST_LISTED)):
            try:
                yield found, _text_of(self.folder.read(found))
            except WorkspaceError:
                continue


def _at_least(least: int, **given: int) -> None:
    for name, value in given.items():
        if value < least:
            raise WorkspaceError(f"{name} must be at least {least}, not {value}")


def _none_listed(pattern: str, path: str, offset: int, count: int) -> str:
    if count:
        return f"[only {count} files match {pattern!r} in {path}; offset={offset} is beyond the last]"
    hint = "" if "**" in pattern else f"; {'**/' + pattern!r} looks into its folders too"
    return f"[no file matches {pattern!r} in {path}{hint}]"


def _numbered(path: str, text: str, offset: int, limit: int, damaged: bool) -> str:
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if offset > len(lines):
        return f"[{path} has {len(lines)} lines; offset={offset} is beyond the last]"
    last = min(len(lines), offset + limit - 1)
    shown = [f"{number:>6}\t{_cut(lines[number - 1])}" for number in range(offset, last + 1)]
    if damaged:
        shown.append("... [bytes that are no text are shown as \ufffd]")
    if last < len(lines):
        where = f"lines {offset} to {last} of {len(lines)}"
        shown.append(f"... [{where}; call read_file with offset={last + 1} for more]")
    return "\n".join(shown)


def _cut(line: str) -> str:
    if len(line) <= MOST_LINE_CHARS:
        return line
    shown = head(line, MOST_LINE_CHARS)
    return f"{shown}... [{len(line) - len(shown):,} more characters in this line]"


def _redacted(text: str, context: RunContext[Any] | None) -> str:
    """The text as the run may show it: whole, since of what is shown of it a secret may be half."""
    return context.redact(text) if context else text


def _is_damaged(data: bytes) -> bool:
    try:
        data.decode(encoding_of(data))
    except UnicodeDecodeError:
        return True
    return False


def _is_binary(data: bytes) -> bool:
    return encoding_of(data) == "utf-8" and b"\0" in data[:_BINARY_LOOK_BYTES]


def _text_of(data: bytes) -> str:
    return "" if _is_binary(data) else decoded(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """The tools that write, for one folder; calls side by side take turns."""

    folder: Folder
    turn: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def real_path(self, path: str) -> str:
        """The path below the folder without links; the same where it leads out of it."""
        try:
            return "/".join(self.folder.inside(path))
        except WorkspaceError:
            return path

    @tool(kind="write")
    def write_file(self, path: str, content: str) -> str:
        """Write a file as a whole, replacing what was there; folders that it needs are made.

        Args:
            path: The file, relative to the working folder.
            content: All of the file's new text.
        """
        data = _encoded(content, "content")
        with self.turn:
            replaced = self.folder.replace(path, data)
        return f"{'replaced' if replaced else 'made'} {path}: {len(content):,} characters"

    @tool(kind="write")
    def edit_file(self, path: str, old: str, new: str, replace_all: bool = False) -> str:
        """Replace a piece of a text file. `old` must stand in the file exactly once.

        Args:
            path: The file, relative to the working folder.
            old: The text to replace, exactly as in the file: with its spaces, without line numbers.
            new: What to put instead.
            replace_all: Replace every place where `old` stands.
        """
        if not old or old == new:
            raise WorkspaceError("old must be a text of the file, and new must differ from it")
        _encoded(old + new, "old or new")
        with self.turn:
            data = self.folder.read(path)
            text, encoding, kept = _editable(path, data)
            old, new = _line_ends_of(text, old, new)
            count = _checked_count(path, text.count(old), replace_all)
            self.folder.replace(path, text.replace(old, new).encode(encoding, kept))
        return f"replaced {count} place{'s' if count > 1 else ''} in {path}"


def _editable(path: str, data: bytes) -> tuple[str, str, str]:
    """The file's text, its encoding, and how that keeps what is no text in it."""
    encoding = encoding_of(data)
    kept = "surrogateescape" if encoding == "utf-8" else "surrogatepass"
    try:
        return data.decode(encoding, kept), encoding, kept
    except UnicodeDecodeError as error:
        raise WorkspaceError(f"{path!r} is damaged UTF-16 and is not edited: write it as a whole") from error


def _line_ends_of(text: str, old: str, new: str) -> tuple[str, str]:
    """`old` and `new` with the file's line ends, where those are CRLF and `old` is not found as it is."""
    if old in text or "\r\n" not in text or "\r\n" in old:
        return old, new
    return old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")


def _checked_count(path: str, count: int, replace_all: bool) -> int:
    if not count:
        raise WorkspaceError(
            f"old does not stand in {path}; nothing was changed: read the file and copy the text exactly"
        )
    if count > 1 and not replace_all:
        raise WorkspaceError(
            f"old stands in {path} {count} times; nothing was changed: "
            "add lines around it until it is unique, or set replace_all"
        )
    return count


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise WorkspaceError(
            f"{name} has a lone surrogate at {error.start}, which no file can hold"
        ) from error


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a relative path matches the pattern as a whole.

    Raises:
        WorkspaceError: the pattern has more than 1,000 characters.
    """
    if len(pattern) > _MOST_CHARS:
        raise WorkspaceError(f"the pattern has {len(pattern):,} characters: use at most {_MOST_CHARS:,}")
    alternatives = [_compile(each) for each in islice(_alternatives(pattern), _MOST_ALTERNATIVES)]
    return lambda path: any(_matches(path.split("/"), names) for names in alternatives)


def hidden_names(pattern: str) -> Callable[[str], bool]:
    """Whether the pattern asks for a hidden name such as this one: a name in it begins with a dot, too.

    Example:
        >>> hidden_names(".git*/**")(".github"), hidden_names("**/*")(".github")
        (True, False)
    """
    parts = {part for each in islice(_alternatives(pattern), _MOST_ALTERNATIVES) for part in each.split("/")}
    names = [re.compile(fnmatch.translate(part)) for part in parts if part[:1] == "." and part.strip(".")]
    return lambda name: any(each.match(name) for each in names)


def _compile(pattern: str) -> list[re.Pattern[str] | None]:
    """One expression a name, None for `**`."""
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _alternatives(pattern: str) -> Iterator[str]:
    found = re.search(r"\{([^{}]*,[^{}]*)\}", pattern)
    if not found:
        yield pattern
        return
    for choice in found[1].split(","):
        yield from _alternatives(pattern[: found.start()] + choice + pattern[found.end() :])


def _matches(path: list[str], names: list[re.Pattern[str] | None]) -> bool:
    reached = {0}  # how many parts of the path the names so far may stand for
    for name in names:
        if name is None:
            reached = set(range(min(reached, default=len(path) + 1), len(path) + 1))
        else:
            reached = {place + 1 for place in reached if place < len(path) and name.match(path[place])}
    return len(path) in reached


def find_lines(
    query: str, texts: Iterable[tuple[str, str]], *, limit: int, seconds: float = SEARCH_SECONDS
) -> list[str]:
    """The first `limit` lines that match, as `path:number: text`, from pairs of path and text.

    Raises:
        WorkspaceError: the expression is not valid, or took longer than `seconds`.
    """
    answer = _ask_finder({"query": query, "limit": limit}, texts, seconds)
    try:
        result = json.loads(answer)
    except ValueError as error:  # killed before it had written all of its answer
        raise WorkspaceError(
            f"the search was stopped after {seconds:g} s: use a simpler expression, without repeats inside "
            "repeats, or fewer files"
        ) from error
    if "error" in result:
        raise WorkspaceError(
            f"{query!r} is no valid regular expression ({result['error']}): "
            "put a backslash before characters that stand for themselves"
        )
    lines: list[str] = result["lines"]
    return lines


def _ask_finder(order: dict[str, object], texts: Iterable[tuple[str, str]], seconds: float) -> bytes:
    command = [sys.executable, "-I", "-S", "-W", "ignore", str(_PROGRAM)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        watch = threading.Timer(seconds, process.kill)
        watch.daemon = True
        watch.start()
        try:
            assert process.stdin
            assert process.stdout
            _feed(process.stdin, order, texts)
            return process.stdout.read()
        finally:
            watch.cancel()
            process.kill()


def _feed(stdin: IO[bytes], order: dict[str, object], texts: Iterable[tuple[str, str]]) -> None:
    """Write until there is no more, or the program has enough and closes its end."""
    with contextlib.suppress(BrokenPipeError), contextlib.closing(stdin):
        stdin.write(json.dumps(order).encode() + b"\n")
        for path, text in texts:
            stdin.write(json.dumps({"path": path, "text": text}).encode() + b"\n")
