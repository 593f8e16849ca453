"""One run to its exit status."""

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

from agentloop._plumbing.to_text import strict
from agentloop.cli.app import exit_status
from agentloop.cli.build import MEMORY, Built, build, runner_for, stored_nowhere, window_notice
from agentloop.cli.faults import word_and_line
from agentloop.cli.input import Prompt, checked_words, is_terminal, prompt_for
from agentloop.cli.process import before_leaving
from agentloop.cli.progress import RunFigures, compacted_and_kept, final_line, progress_on
from agentloop.cli.settings import Settings, settings_for, when_busy
from agentloop.cli.terminal import StandardOutput, error_console, few, run_to_end, say
from agentloop.context import Finish, next_step
from agentloop.errors import SessionNotFoundError, UsageError
from agentloop.messages import Usage
from agentloop.redaction import Secrets, secrets_in_address
from agentloop.sessions import Session, check_free, new_session_id
from agentloop.stores import SessionInfo, SessionStore, checked_session_id
from agentloop.stream import RunEnded, RunStarted, RunStatus, StreamEvent, to_json
from agentloop.workspace import end_all

_STRICT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended; `status` is a word of the exit table, `error` one line where it was no answer."""

    status: RunStatus
    output: str = ""
    session_id: str | None = None
    run_id: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    compactions: int = 0
    error: str | None = None


class AnswerWriter(Protocol):
    """Writes a run to standard output."""

    async def event(self, event: StreamEvent, /) -> None:
        """Something happened."""
        ...

    async def end(self, outcome: Outcome, /) -> None:
        """Nothing more will happen; called once, also where nothing happened at all."""
        ...

    def last_words(self, outcome: Outcome, /) -> None:
        """The process leaves now, whatever is stuck: say how it ended, where nobody is to be waited for."""
        ...


class TextWriter:
    """The answer alone, at the end: text that a retry makes void is never shown."""

    def __init__(self, output: StandardOutput) -> None:
        self._output = output

    async def event(self, event: StreamEvent) -> None:
        """Nothing yet."""

    async def end(self, outcome: Outcome) -> None:
        """The answer, or what there is of it, and a line end."""
        if outcome.output:
            await self._output.write(outcome.output.removesuffix("\n") + "\n")

    def last_words(self, outcome: Outcome) -> None:
        """Nothing: a text has no word for it."""


class JsonWriter:
    """One object at the end."""

    def __init__(self, output: StandardOutput) -> None:
        self._output = output
        self._ended = False

    async def event(self, event: StreamEvent) -> None:
        """Nothing yet."""

    async def end(self, outcome: Outcome) -> None:
        """The outcome."""
        self._ended = True
        await self._output.write(json_line(asdict(outcome)))

    def last_words(self, outcome: Outcome) -> None:
        """The outcome, unless it is told already."""
        self._output.write_at_once("" if self._ended else json_line(asdict(outcome)))


class StreamJsonWriter:
    """Each event as one line; `run_ended` is always the last, also where no run began."""

    def __init__(self, output: StandardOutput) -> None:
        self._output = output
        self._ended = False

    async def event(self, event: StreamEvent) -> None:
        """One line."""
        self._ended = self._ended or isinstance(event, RunEnded)
        await self._output.write(json_line(to_json(event)))

    async def end(self, outcome: Outcome) -> None:
        """The last line, unless the run has said it itself, and whatever is not handed over yet."""
        await (self._output.write("") if self._ended else self.event(_ending(outcome)))

    def last_words(self, outcome: Outcome) -> None:
        """The last line, unless the run has said it itself."""
        self._output.write_at_once("" if self._ended else json_line(to_json(_ending(outcome))))


def writer_for(shape: str, output: StandardOutput) -> AnswerWriter:
    """The writer for `text`, `json` or `stream-json`."""
    if shape == "json":
        return JsonWriter(output)
    return StreamJsonWriter(output) if shape == "stream-json" else TextWriter(output)


def json_line(value: Mapping[str, Any]) -> str:
    """One line of strict JSON in strict UTF-8."""
    try:
        text = _STRICT.encode(value)
    except ValueError:
        # NaN and the infinities, which a model's server may have sent, are no JSON.
        text = _STRICT.encode(json.loads(json.dumps(value, default=str), parse_constant=lambda _: None))
    return strict(text) + "\n"


def _ending(outcome: Outcome) -> RunEnded:
    return RunEnded(
        session_id=outcome.session_id or "",
        run_id=outcome.run_id or "",
        time=time.time(),
        status=outcome.status,
        output=outcome.output,
        usage=outcome.usage,
        cost=outcome.cost,
        error=outcome.error,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChoice:
    """At most one of: the newest of the folder, one that exists, exactly this id."""

    latest: bool = False
    existing: str | None = None
    exact: str | None = None

    @property
    def continues(self) -> bool:
        """Whether there may be a session with work pending."""
        return self.latest or self.existing is not None or self.exact is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Whether a session is there and its last run was left before its answer; how many compactions it has."""

    exists: bool
    pending: bool
    compactions: int


def choice_of(*, latest: bool, existing: str | None, exact: str | None, stored: bool) -> SessionChoice:
    """The choice, checked before any store is touched.

    Raises:
        UsageError: two of the options, or an id that is none.
    """
    asked = [("--continue", latest), ("--resume", existing is not None), ("--session", exact is not None)]
    names = [name for name, given in [*asked, ("--no-session", not stored)] if given]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} cannot stand together: give one of them")
    if existing is not None and not existing.strip():
        raise UsageError("--resume: the id is empty; `agentloop sessions list --all` shows them")
    if exact is not None:
        checked_session_id(exact)
    return SessionChoice(latest=latest, existing=existing, exact=exact)


async def session_id_for(
    choice: SessionChoice, store: SessionStore, folder: Path, *, owner: str | None = None
) -> str:
    """The id of the session to use: found among those of the owner, all for None, or a new one.

    Raises:
        SessionNotFoundError: what should exist does not.
        UsageError: what should be one is several, or the id is taken by another owner.
    """
    if choice.exact is not None:
        await check_free(choice.exact, store, owner)
        return choice.exact
    if choice.existing is not None:
        return (await find_session(choice.existing, store, owner=owner)).id
    return await _newest(store, folder, owner) if choice.latest else new_session_id()


async def find_session(name: str, store: SessionStore, *, owner: str | None = None) -> SessionInfo:
    """The stored session with this id, this title, or an id that begins so; of this owner, all for None.

    Raises:
        SessionNotFoundError: there is none.
        UsageError: there are several, or the name is empty.
    """
    if not name.strip():
        raise UsageError("the session's id is empty: `agentloop sessions list --all` shows them")
    if exact := await _with_id(name, store, owner):
        return exact
    stored = await store.list(owner=owner)
    for group in (
        [info for info in stored if info.title == name],
        [info for info in stored if info.id.startswith(name)],
    ):
        if len(group) == 1:
            return group[0]
        if group:
            raise UsageError(
                f"{name!r} may be any of {few([info.id for info in group])}: write more of the id"
            )
    raise SessionNotFoundError(
        f"no session has the id, title or prefix {name[:60]!r}: `agentloop sessions list --all` shows them"
    )


async def _with_id(name: str, store: SessionStore, owner: str | None) -> SessionInfo | None:
    """The session with exactly this id, found without a list; None where it is another owner's."""
    try:
        checked_session_id(name)
    except UsageError:
        return None  # a title, then
    info = await store.info(name)
    return info if info and owner in (None, info.owner) else None


async def past_of(session_id: str, store: SessionStore) -> Past:
    """What was before in that session; nothing where it is new."""
    session = await Session.open(session_id, store)
    said = session.context.messages
    return Past(
        exists=session.context.length > 0,
        pending=bool(said) and not isinstance(next_step(said), Finish),
        compactions=session.context.compaction_count,
    )


async def _newest(store: SessionStore, folder: Path, owner: str | None) -> str:
    stored = await store.list(folder=str(folder), owner=owner)
    if not stored:
        raise SessionNotFoundError(f"no session of the folder {str(folder)!r} to continue: leave -c out")
    return stored[0].id


_VARIABLES = {"--store": "AGENTLOOP_STORE", "--base-url": "OPENAI_BASE_URL"}
"""The addresses, and what they are called in the environment."""

_BARE_USER = re.compile(r"postgres(?:ql)?://[^:@/?]*:?@[^@]*")


def program_name() -> str:
    """How this program was called, for a hint that can be typed as it stands."""
    called = sys.argv[0] if sys.argv else ""
    if Path(called).name in ("__main__.py", "-m", "-c", ""):
        return f"{_found_by(sys.executable, 'python')} -m agentloop"
    return _found_by(called, Path(called).name)


def _found_by(path: str, name: str) -> str:
    """The name, where a shell finds that program by it, else its path."""
    found = shutil.which(name)
    is_found = path == name or (found and Path(found).absolute() == Path(path).absolute())
    return name if is_found else shlex.quote(path)


def resume_hint(session_id: str, settings: Settings) -> str:
    """The line that says how to go on with a session, its options repeated.

    An address with a secret in it is named in words alone. To take a session over is decided each time.
    """
    given = [option for option in settings.given if not _takes_over(option)]
    hidden = [option[0] for option in given if _holds_secret(*option)]
    words = [word for option in given if option[0] not in hidden for word in option]
    line = f"go on with: {program_name()} {shlex.join([*words, '-r', session_id])}"
    same = (f" and the same {name} ({_VARIABLES[name]}), which holds a secret" for name in hidden)
    return line + "".join(same)


def _takes_over(option: Sequence[str]) -> bool:
    return option[0] == "--when-busy" and when_busy(option[-1]) == "take_over"


def _holds_secret(name: str, value: str = "") -> bool:
    """Whether an address may hold one; the name alone of a user of a database is none."""
    if name not in _VARIABLES:
        return False
    if secrets_in_address(value) or Secrets()(value) != value:
        return True
    bare_user = name == "--store" and _BARE_USER.fullmatch(value)
    return "passw" in value.lower() or ("@" in value and not bare_user)


_NO_END = "the run ended without saying how"
_INTERRUPTED = "interrupted: what is finished is kept"
_LAST_WORDS_SECONDS = 2.0
"""How long an interrupted run may take to hand over what it has to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCall:
    """What is to be run, on which session."""

    settings: Settings
    built: Built
    prompt: Prompt
    choice: SessionChoice


class OutputError(Exception):
    """Standard output did not take an event, for that reason; no fault of the run's own."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


async def run_once(call: RunCall, writer: AnswerWriter, console: Console) -> int:
    """Run it, show it, answer; the exit status. Never raises for what a run can end with."""
    for notice in (*call.built.notices, *call.prompt.notices):
        say(console, notice, style="yellow")
    tally = RunFigures()
    last_words = partial(_last_words, writer, tally)
    with before_leaving(last_words), before_leaving(end_all):
        outcome = await _watched(call, writer, console, tally)
        if tally.context:
            console.print(final_line(tally))
        status = await report_outcome(outcome, writer, console)
    if _is_stored(call, tally):
        for line in compacted_and_kept(tally, call.settings.transcripts):
            console.print(Text(line, style="yellow"))
        say(console, resume_hint(tally.session_id, call.settings), style="dim")
    return status


def _last_words(writer: AnswerWriter, tally: RunFigures) -> None:
    writer.last_words(_outcome(tally, "interrupted", _INTERRUPTED))


def _is_stored(call: RunCall, tally: RunFigures) -> bool:
    """Whether there is something to go on with: of this run, or of the session that it was to go on with."""
    kept = tally.context is not None or (tally.goes_on and tally.run_id != "")
    return kept and call.settings.store != MEMORY


async def report_outcome(outcome: Outcome, writer: AnswerWriter, console: Console) -> int:
    """Write the end to standard output and what went wrong to standard error; the exit status."""
    limit = _LAST_WORDS_SECONDS if outcome.status == "interrupted" else None
    try:
        async with asyncio.timeout(limit):
            await writer.end(outcome)
    except TimeoutError:
        pass  # an interrupted run has waited long enough for a reader that does not read
    except asyncio.CancelledError:
        outcome = replace(outcome, status="interrupted", error=_INTERRUPTED)
    except OSError as error:
        outcome = _unwritten(outcome, error)
    if outcome.error and outcome.status != "answered":
        say(console, outcome.error, style="bold red")
    return exit_status(outcome.status)


async def _watched(call: RunCall, writer: AnswerWriter, console: Console, tally: RunFigures) -> Outcome:
    progress = progress_on(console, tally)
    try:
        async with aclosing(_events(call, tally, console)) as events:
            async for event in events:
                tally.add(event)
                if isinstance(event, RunStarted) and (notice := window_notice(call.built.agent.model)):
                    say(console, notice, style="yellow")
                progress.show(event)
                await _write(event, writer)
    except asyncio.CancelledError:
        return _outcome(tally, "interrupted", _INTERRUPTED)
    except OutputError as error:
        return _unwritten(_outcome(tally, "failed", None), error.reason)
    except Exception as error:  # noqa: BLE001 — every end of a run has its word and its line, faults of ours too
        word, line = word_and_line(error)
        return _outcome(tally, tally.ended.status if tally.ended else word, line)
    finally:
        progress.stop()
    ended = tally.ended
    return _outcome(tally, ended.status, ended.error) if ended else _outcome(tally, "failed", _NO_END)


async def _write(event: StreamEvent, writer: AnswerWriter) -> None:
    try:
        await writer.event(event)
    except OSError as error:
        raise OutputError(error) from error


async def _events(call: RunCall, tally: RunFigures, console: Console) -> AsyncGenerator[StreamEvent, None]:
    settings = call.settings
    async with runner_for(call.built, settings, console) as runner:
        session_id = await session_id_for(call.choice, runner.store, settings.workdir, owner=settings.owner)
        if call.choice.continues:
            past = await past_of(session_id, runner.store)
            tally.earlier, tally.goes_on = past.compactions, past.exists
        run = runner.stream(call.prompt.text, session_id=session_id, limits=settings.limits)
        async with aclosing(run) as events:
            async for event in events:
                yield event


def _outcome(tally: RunFigures, word: RunStatus, error: str | None) -> Outcome:
    ended = tally.ended
    return Outcome(
        status=word,
        output=ended.output if ended else "",
        session_id=tally.session_id or None,
        run_id=tally.run_id or None,
        usage=ended.usage if ended else tally.usage,
        cost=ended.cost if ended else tally.cost,
        compactions=tally.compactions,
        error=error,
    )


def _unwritten(outcome: Outcome, error: OSError) -> Outcome:
    if isinstance(error, BrokenPipeError):
        return replace(outcome, status="interrupted", error="nobody reads standard output any more")
    reason = error.strerror or str(error)
    return replace(outcome, status="failed", error=f"standard output cannot be written: {reason}")


def start(flags: Mapping[str, Any], words: tuple[str, ...]) -> int:
    """Run once or open the chat; the exit status."""
    shape = _shape(flags)
    if shape == "text" and flags.get("prompt") is None and is_terminal() and os.isatty(1):
        return _chat(flags, words)
    return _one_run(flags, words, shape)


def ended_early(shape: str, error: BaseException) -> int:
    """Tell standard output the end of a call that never came to its run; the exit status."""
    return _report(error, writer_for(shape, StandardOutput(1)))


def _one_run(flags: Mapping[str, Any], words: tuple[str, ...], shape: str) -> int:
    writer = writer_for(shape, StandardOutput.claimed())
    try:
        with ExitStack() as until_end:
            call = _call(flags, words, until_end)
            return run_to_end(run_once(call, writer, error_console()))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 — each end is told where the answer goes
        return _report(error, writer)


def _report(error: BaseException, writer: AnswerWriter) -> int:
    word, line = word_and_line(error)
    return run_to_end(report_outcome(Outcome(status=word, error=line), writer, error_console()))


def _call(flags: Mapping[str, Any], words: tuple[str, ...], until_end: ExitStack) -> RunCall:
    choice, settings = _settings(flags, until_end)
    checked_words(flags.get("prompt"), words)
    built = build(settings)
    prompt = prompt_for(flags.get("prompt"), words, continues=choice.continues)
    return RunCall(settings=settings, built=built, prompt=prompt, choice=choice)


def _chat(flags: Mapping[str, Any], words: tuple[str, ...]) -> int:
    first = checked_words(None, words)
    with ExitStack() as until_end:
        choice, settings = _settings(flags, until_end)
        built = build(settings)
        # The terminal library loads only where there is a terminal.
        chat = import_module("agentloop.cli.chat").chat
        return int(run_to_end(chat(settings, built, choice, first)))


def _settings(flags: Mapping[str, Any], until_end: ExitStack) -> tuple[SessionChoice, Settings]:
    settings = settings_for(flags)
    choice = choice_of(
        latest=bool(flags.get("latest")),
        existing=flags.get("resume"),
        exact=flags.get("session"),
        stored=not flags.get("no_session"),
    )
    if flags.get("no_session"):
        given = flags.get("transcripts") is not None
        settings = until_end.enter_context(stored_nowhere(settings, transcripts_given=given))
    return choice, settings


def _shape(flags: Mapping[str, Any]) -> str:
    shape = str(flags.get("output_format") or ("stream-json" if flags.get("as_json") else "text"))
    if flags.get("as_json") and shape != "stream-json":
        raise UsageError(f"--json and --output-format {shape}: give one of them")
    return shape
