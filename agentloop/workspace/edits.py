"""Tools that write: whole files, and one place in a file."""

import threading
from dataclasses import dataclass, field

from agentloop.tools import tool
from agentloop.workspace.folder import Folder, WorkspaceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """The tools that write, for one folder; calls side by side take turns."""

    folder: Folder
    turn: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @tool
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

    @tool
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
            text = self.folder.read(path).decode("utf-8", "surrogateescape")
            old, new = _line_ends_of(text, old, new)
            count = _checked_count(path, text.count(old), replace_all)
            self.folder.replace(path, text.replace(old, new).encode("utf-8", "surrogateescape"))
        return f"replaced {count} place{'s' if count > 1 else ''} in {path}"


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
