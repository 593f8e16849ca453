"""Tools that look: list, read and search the files of the working folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agentloop._plumbing.truncate import head
from agentloop.run_context import RunContext
from agentloop.tools import tool
from agentloop.workspace.folder import Folder, WorkspaceError
from agentloop.workspace.globs import matcher
from agentloop.workspace.searching import found_lines

MOST_LISTED = 100_000
MOST_LINE_CHARS = 2_000
_BINARY_LOOK_BYTES = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The tools that look, for one folder."""

    folder: Folder

    @tool(idempotent=True)
    def list_files(self, pattern: str = "**/*", path: str = ".", offset: int = 0, limit: int = 500) -> str:
        """List the files below a folder, one path a line, relative to the working folder.

        Hidden files are left out.

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
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        return _numbered(path, _redacted(text, context), max(1, offset), limit, _is_damaged(data))

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
        lines = found_lines(query, texts, limit=limit + 1)
        if not lines:
            return f"[no line matches {query!r}]"
        if len(lines) > limit:
            lines[limit:] = [f"... [more than {limit} lines match; narrow the query, pattern or path]"]
        return "\n".join(lines)

    def _matching(self, pattern: str, path: str) -> Iterator[str]:
        matches = matcher(pattern)
        names = self.folder.inside(path)
        skipped = len("/".join(names)) + 1 if names else 0
        return (found for found in self.folder.walk(path) if matches(found[skipped:]))

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


def _redacted(text: str, context: RunContext[Any] | None) -> str:
    """The text as the run may show it: whole, since of what is shown of it a secret may be half."""
    return context.redact(text) if context else text


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
        shown.append("... [bytes that are not UTF-8 are shown as \ufffd]")
    if last < len(lines):
        where = f"lines {offset} to {last} of {len(lines)}"
        shown.append(f"... [{where}; call read_file with offset={last + 1} for more]")
    return "\n".join(shown)


def _cut(line: str) -> str:
    if len(line) <= MOST_LINE_CHARS:
        return line
    shown = head(line, MOST_LINE_CHARS)
    return f"{shown}... [{len(line) - len(shown):,} more characters in this line]"


def _is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY_LOOK_BYTES]


def _is_damaged(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _text_of(data: bytes) -> str:
    return "" if _is_binary(data) else data.decode("utf-8", "replace")
