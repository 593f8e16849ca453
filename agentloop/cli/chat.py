"""The chat: one session in a terminal, until the user ends it."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, aclosing, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from rich.console import Console

from agentloop._plumbing.amounts import whole_of
from agentloop._plumbing.private_files import make_private_file, make_private_folder
from agentloop.cli.asking import Asking
from agentloop.cli.build import make_runner, window_notice
from agentloop.cli.compact import compaction_text, preview_text, rewind_text, undo_text
from agentloop.cli.faults import is_refusal_of_message, one_line, show_where, with_option
from agentloop.cli.input import dropped_files
from agentloop.cli.options import MEMORY
from agentloop.cli.process import before_leaving, leave_on_second, on_interrupt
from agentloop.cli.progress import (
    Progress,
    RunFigures,
    failure_line,
    final_line,
    pending_text,
    status_line,
)
from agentloop.cli.resume import Past, read_past, resume_hint, session_id_for
from agentloop.cli.run import RunCall
from agentloop.cli.settings import Settings
from agentloop.cli.terminal import StandardOutput, complain, error_console, say, show, warn
from agentloop.errors import SessionNotFoundError
from agentloop.redaction import Redact, redacted
from agentloop.run import Prompt
from agentloop.runner import Runner
from agentloop.stream import MessageAdded, Retrying, StreamEvent, TextDelta
from agentloop.workspace import end_all

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL | re.IGNORECASE)
_ALONE = {"exit": "exit", "quit": "quit", "help": "help", "?": "help", "/?": "help"}
"""What is a command where it is all that is typed: nobody means it for a model."""


async def chat(call: RunCall) -> int:
    """Talk until the user ends it; the exit status. The call's prompt is the first message, if it has one.

    What is attached goes with that, or with the first that is typed.
    """
    console, settings = error_console(), call.settings
    warn(console, *call.built.notices)
    asking = Asking(console, settings.workdir)
    with before_leaving(end_all):
        async with make_runner(call.built, settings, console, asking) as runner:
            session_id = await session_id_for(call.choice, runner.store, settings)
            talk = Chat(call, runner, session_id, console, asking)
            where = f"session {session_id}" if talk.stored else "nothing is stored"
            say(console, f"{where}; /help lists the commands, Ctrl-D ends", style="dim")
            try:
                if call.choice.continues:
                    await talk.interruptible(talk.catch_up())
                await talk.go_on(call.prompt.text)
            finally:
                if talk.spoke and talk.stored:
                    say(console, resume_hint(talk.session_id, settings), style="dim")
    return 0


class Chat:
    """One session in a terminal."""

    def __init__(
        self, call: RunCall, runner: Runner, session_id: str, console: Console, asking: Asking
    ) -> None:
        self._attached = call.prompt.attached
        self._asking = asking
        self.spoke = False
        self.stored = call.settings.store != MEMORY
        self._runner = runner
        self.session_id = session_id
        self._console = console
        self._limits = call.settings.limits
        self._tally = RunFigures(model=runner.agent.model.name, stored=self.stored)
        self._line: PromptSession[str] = PromptSession(history=_history(call.settings))

    async def go_on(self, message: str | None) -> None:
        """Answer the message, if there is one, then read the next, until the user ends it."""
        while True:
            if message is not None and message.strip() and not await self._handle(message.strip()):
                return
            try:
                message = await self._line.prompt_async("> ", bottom_toolbar=self._toolbar)
            except KeyboardInterrupt:
                message = None
            except EOFError:
                return

    async def answer(self, message: str | None) -> None:
        """One run, shown as it goes; None goes on with what is pending."""
        view = ChatView(self._console, StandardOutput(1), self._tally)
        self._asking.alone = view.away
        try:
            run = self._runner.stream(
                self._with_files(message), session_id=self.session_id, limits=self._limits
            )
            async with aclosing(run) as events:
                async for event in events:
                    if isinstance(event, MessageAdded) and not self.spoke:
                        warn(self._console, window_notice(self._runner.agent.model))
                        self.spoke = True
                    self._tally.add(event)
                    await view.show(event)
        finally:
            await view.stop()
        self._console.print(final_line(self._tally))
        if (ended := self._tally.ended) and ended.error:
            complain(self._console, with_option(ended.error, ended.limit))

    def _with_files(self, message: str | None) -> Prompt | None:
        if message is None or not (files := (*self._attached, *dropped_files(message))):
            return message
        self._attached = ()
        say(self._console, f"with {', '.join(str(file.name) for file in files)}", style="dim")
        return [message, *files]

    async def catch_up(self) -> None:
        """Show where the session stands, and go on with a run that was left unfinished."""
        if (await self._status()).pending:
            warn(self._console, "a run was left unfinished: going on with it")
            await self.answer(None)

    async def _status(self, _: str = "") -> Past:
        past = await read_past(self.session_id, self._runner.store)
        self._tally.earlier, self._tally.compactions = past.compactions, 0
        if past.exists:
            self._tally.context = await self._runner.status(self.session_id)
        self._console.print(final_line(self._tally))
        return past

    async def interruptible(self, work: Coroutine[Any, Any, object]) -> None:
        """Do it; Ctrl-C ends it and not the program, unless it is stuck and a second one comes.

        What goes wrong is one line.
        """
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop(*_: object) -> None:
            loop.call_soon_threadsafe(task.cancel)

        try:
            with on_interrupt(leave_on_second(stop)):
                await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        if task.cancelled():
            warn(self._console, "interrupted: what is finished is kept")
        elif error := task.exception():
            show_where(error)
            complain(self._console, one_line(error))
            if is_refusal_of_message(error):
                warn(self._console, "if it is your message that is refused, /rewind takes it back")

    async def _handle(self, message: str) -> bool:
        """Do what the message asks; False where it ends the chat."""
        command = command_in(message)
        if command is None:
            await self.interruptible(self.answer(message))
            return True
        name, rest = command
        if name not in _BY_NAME:
            meant = get_close_matches(name, _BY_NAME, n=1)
            way = f"did you mean /{meant[0]}?" if meant else "/help lists them"
            complain(self._console, f"no command /{name}: {way}")
            return True
        shown, _, act = _BY_NAME[name]
        if rest and "[" not in shown:
            complain(self._console, f"/{name} takes nothing behind it: write it alone")
        elif act:
            await self.interruptible(act(self, rest))
        else:
            return False
        return True

    async def _help(self, _: str) -> None:
        self._console.print(HELP)

    async def _compact(self, focus: str) -> None:
        result = await self._runner.compact(self.session_id, focus=focus or None)
        for failure in result.callback_failures:
            complain(self._console, failure_line(failure))
        show(self._console, compaction_text(result))
        await self._status()

    async def _preview(self, _: str) -> None:
        show(self._console, preview_text(await self._runner.preview(self.session_id)))

    async def _rewind(self, turns: str) -> None:
        asked = whole_of(turns) if turns else 1
        gone = await self._runner.rewind(self.session_id, turns=asked)
        show(self._console, rewind_text(gone, asked, undo="/undo"))
        await self._status()

    async def _fork(self, at: str) -> None:
        new_id = await self._runner.sessions.fork(self.session_id, at=whole_of(at) if at else None)
        say(self._console, f"session {self.session_id} stays as it is; from here on this is {new_id}")
        self.session_id = new_id
        await self._status()

    async def _approvals(self, _: str) -> None:
        try:
            waiting = await self._runner.pending(self.session_id)
        except SessionNotFoundError:
            waiting = ()
        for each in waiting:
            show(self._console, f"  {pending_text(each)}")
        say(self._console, "your next message asks again" if waiting else "nothing waits for a yes")

    async def _undo(self, _: str) -> None:
        show(self._console, await undo_text(self._runner, self.session_id))
        await self._status()

    def _toolbar(self) -> str:
        return status_line(self._tally) if self._tally.context else ""


_COMMANDS: Sequence[tuple[str, str, Callable[[Chat, str], Coroutine[Any, Any, object]] | None]] = (
    (
        "/compact [FOCUS]",
        "make the context smaller now; FOCUS is what the summary must keep above all",
        Chat._compact,
    ),
    ("/preview", "what /compact would do", Chat._preview),
    (
        "/rewind [TURNS]",
        "take back your newest message and all that came of it, or so many of your messages",
        Chat._rewind,
    ),
    ("/fork [POSITION]", "go on in a copy of the session, up to that position of its log", Chat._fork),
    ("/approvals", "the calls that wait for a yes", Chat._approvals),
    ("/undo", "take the newest compaction or rewind back", Chat._undo),
    ("/status", "how full the window is", Chat._status),
    ("/help", "this list", Chat._help),
    ("/quit, /exit", "end the chat, as Ctrl-D does; the session is kept", None),
)
"""Each command as the list shows it, what it does, and how; those without end the chat."""
_BY_NAME = {name: each for each in _COMMANDS for name in re.findall(r"/([a-z]+)", each[0])}
HELP = "\n".join(
    (*(f"{shown:<18}{does}" for shown, does, _ in _COMMANDS), "Ctrl-C ends an answer and not the chat.")
)


def command_help(name: str) -> str | None:
    """What the command of that name does; None where there is none."""
    return _BY_NAME[name][1] if name in _BY_NAME else None


def command_in(message: str) -> tuple[str, str] | None:
    """The command that the message is and what stands behind it; None for none, such as a path /etc/hosts."""
    if alone := _ALONE.get(message.lower()):
        return alone, ""
    found = _COMMAND.fullmatch(message)
    return (found[1].lower(), (found[2] or "").strip()) if found else None


class ChatView:
    """Text goes to standard output; while it comes, the live line is away, since both are one terminal."""

    def __init__(self, console: Console, output: StandardOutput, tally: RunFigures) -> None:
        self._console = console
        self._output = output
        self._tally = tally
        self._progress = Progress(console, tally)
        self._text = ""

    async def show(self, event: StreamEvent) -> None:
        """Something happened; the tally has taken it in already."""
        match event:
            case TextDelta():
                if not self._text:
                    self._progress.stop()
                self._text += event.text
                await self._output.write(event.text)
                return
            case Retrying() if self._text:
                await self._output.write("\n[broken off: what stands above is void]")
            case MessageAdded() if event.message.role == "assistant" and not self._text:
                await self._whole(event.message.text)
        await self._end_text()
        self._progress.show(event)

    async def stop(self) -> None:
        """Leave the terminal as it was, on a new line."""
        await self._end_text()
        self._progress.stop()

    def away(self) -> AbstractContextManager[None]:
        """Keep the live line off the terminal, for a question."""
        return self._progress.away()

    async def _whole(self, text: str) -> None:
        if text.strip():
            self._progress.stop()
            self._text = text
            await self._output.write(text)

    async def _end_text(self) -> None:
        if self._text:
            await self._output.write("\n")
            self._text = ""
            self._progress.go_on()


def _history(settings: Settings) -> History:
    if settings.store == MEMORY:
        return InMemoryHistory()
    try:
        make_private_folder(settings.home)
        file = settings.home / "history"
        make_private_file(file)
    except OSError:
        return InMemoryHistory()
    return _RedactedHistory(file, settings.redact)


class _RedactedHistory(FileHistory):
    """What was typed, as a session would hold it; where it cannot be kept, the chat goes on without."""

    def __init__(self, file: Path, redact: Redact | None) -> None:
        super().__init__(file)
        self._redact = redact

    def load_history_strings(self) -> list[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        # A redaction that fails is the user's, and the run says so; a full disc is no reason to end a talk.
        with suppress(Exception):
            super().store_string(redacted(string, self._redact))
