"""The built-in tools: they see one folder and nothing outside of it."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from agentloop.errors import UsageError
from agentloop.workspace.commands import Commands
from agentloop.workspace.edits import Edits
from agentloop.workspace.files import Files
from agentloop.workspace.folder import Folder, WorkspaceError

__all__ = ["WorkspaceError", "workspace_tools"]

_WORDS = ("write", "shell")


def workspace_tools(workdir: Path | str, *, allow: Collection[str] = ()) -> tuple[Callable[..., Any], ...]:
    """The built-in tools for the folder `workdir`, which the file tools cannot leave, by links neither.

    Always `list_files`, `read_file` and `search_files`. "write" in `allow` adds `write_file` and
    `edit_file`, "shell" adds `run_command`, which runs anywhere the user's shell may.

    Raises:
        UsageError: there is no such folder, or `allow` has another word.
    """
    allowed = {allow} if isinstance(allow, str) else set(allow)
    if unknown := sorted(allowed.difference(_WORDS)):
        raise UsageError(f"nothing called {unknown[0]!r} can be allowed: use {' or '.join(_WORDS)}")
    root = Path(workdir)
    if not root.is_dir():
        raise UsageError(f"no working folder at {str(workdir)!r}: make it or name another")
    folder = Folder(root=root.resolve())
    files, edits, commands = Files(folder=folder), Edits(folder=folder), Commands(folder=folder)
    return (
        *(files.list_files, files.read_file, files.search_files),
        *((edits.write_file, edits.edit_file) if "write" in allowed else ()),
        *((commands.run_command,) if "shell" in allowed else ()),
    )
