"""What the chat asks before a call runs that needs a yes: the call is shown, and the person answers."""

import asyncio
import difflib
import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.input.typeahead import clear_typeahead
from rich.console import Console
from rich.text import Text

from agentloop._plumbing.truncate import head
from agentloop.approvals import ApprovalReply, Approve, Pending, Reject
from agentloop.cli.approvals import arguments_in, who
from agentloop.cli.terminal import escaped, line_of, printable
from agentloop.errors import UsageError
from agentloop.workspace import Folder, WorkspaceError

_MOST_LINES_COMPARED = 5_000
"""To compare takes up to the square of the lines: a tenth of a second for so many. Our own figure."""

_SHOWN_CHARS = 100
_MEANINGS = "y runs it, n does not, e changes its arguments; a runs it, and asks no more for: "


class Asking:
    """Asks in the terminal for each call, one after the other; what is always allowed is not asked again."""

    def __init__(self, console: Console, workdir: Path) -> None:
        self._console = console
        self._workdir = workdir
        self._turn = asyncio.Lock()
        self._always: set[str] = set()
        self._line: PromptSession[str] = PromptSession()
        self.alone: Callable[[], AbstractContextManager[object]] = nullcontext
        """What keeps all else off the terminal's last line while a question stands there."""

    async def __call__(self, pending: Pending) -> ApprovalReply | None:
        """What the person says; None where they say nothing."""
        async with self._turn:
            if (key := _key(pending)) in self._always:
                return Approve(by=who())
            try:
                with self.alone():
                    self._show(pending)
                    return await self._asked(pending, key)
            except (EOFError, KeyboardInterrupt):
                return None

    async def _asked(self, pending: Pending, key: str) -> ApprovalReply:
        self._forget_typed()
        while True:
            said = (await self._line.prompt_async("run it? yes, no, edit, always: ")).strip().lower()
            match said:
                case "y" | "yes":
                    return Approve(by=who())
                case "a" | "always":
                    self._always.add(key)
                    self._console.print(Text(f"  not asked again in this chat: {always(pending)}"))
                    return Approve(by=who())
                case "n" | "no":
                    return Reject(await self._line.prompt_async("why not? "), by=who())
                case "e" | "edit":
                    text = escaped(json.dumps(pending.arguments, ensure_ascii=False))
                    try:
                        edited = arguments_in(await self._line.prompt_async("arguments: ", default=text))
                    except UsageError as error:
                        self._console.print(Text(str(error).removeprefix("--"), style="bold red"))
                    else:
                        return Approve(edited, by=who())
                case _:
                    self._console.print(Text(f"  {_MEANINGS}{always(pending)}"))

    def _forget_typed(self) -> None:
        """Drop the keys that were typed before the question stood there: they answer another, or none."""
        keys = self._line.input
        clear_typeahead(keys)
        with keys.raw_mode():
            while keys.read_keys():
                pass
        keys.flush_keys()

    def _show(self, pending: Pending) -> None:
        whose = f" (MCP server {line_of(pending.server)})" if pending.server else ""
        self._console.print(Text(f"? {line_of(pending.tool)}{whose}", style="bold yellow"))
        for line in shown_call(pending, self._workdir):
            self._console.print(line)


def shown_call(pending: Pending, workdir: Path) -> list[Text]:
    """What a person reads before they say yes, all of it: a command as it is, a write as its difference."""
    rest = dict(pending.arguments)
    match rest:
        case {"command": str(command)}:
            lines = [Text(f"  $ {printable(line)}") for line in command.splitlines() or [""]]
            shown = ["command"]
        case {"path": str(path), "content": str(content)}:
            lines, shown = _difference(path, _content(workdir, path), content), ["path", "content"]
        case {"path": str(path), "old": str(old), "new": str(new)}:
            lines, shown = _difference(path, old, new), ["path", "old", "new"]
        case _:
            lines, shown = [], []
    others = {name: value for name, value in rest.items() if name not in shown}
    if others or not lines:
        lines.append(Text(f"  {line_of(json.dumps(others, ensure_ascii=False))}"))
    return lines


def _content(workdir: Path, path: str) -> str:
    """What a file of the folder holds; nothing where the tool could not write it."""
    try:
        return Folder.at(workdir).read(path).decode("utf-8", "replace")
    except (WorkspaceError, UsageError):
        return ""


def _difference(path: str, old: str, new: str) -> list[Text]:
    name = line_of(path)
    before, after = old.splitlines(), new.splitlines()
    if before == after:
        return [Text(f"  {name}: no line is changed")]
    if max(len(before), len(after)) > _MOST_LINES_COMPARED:
        lines: Iterable[str] = (
            f"{name}: {len(before):,} lines become these",
            *(f"+{line}" for line in after),
        )
    else:
        lines = difflib.unified_diff(before, after, name, name, lineterm="")
    colours = {"+": "green", "-": "red", "@": "cyan"}
    return [Text(f"  {printable(line)}", style=colours.get(line[:1], "")) for line in lines]


def always(pending: Pending) -> str:
    """What `always` stands for, in words."""
    for name in ("command", "path"):
        if isinstance(value := pending.arguments.get(name), str):
            return f"{line_of(pending.tool)} with the {name} {head(line_of(value), _SHOWN_CHARS)}"
    return f"{line_of(pending.tool)}, with any arguments"


def _key(pending: Pending) -> str:
    """What always stands for: the very command, or the tool, for a write with that path."""
    what = pending.arguments.get("command", pending.arguments.get("path", ""))
    return f"{pending.server}\0{pending.tool}\0{what}"
