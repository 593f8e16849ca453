"""One run from the words of the call to its exit status.

`start` runs once or opens the chat; `run_once` runs, shows and answers. Above them stand the writers of the
answer in its three shapes, below them the hint how to go on.
"""

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
from typing import Any

from rich.console import Console
from rich.text import Text

from agentloop._plumbing.to_text import strict
from agentloop.cli.app import exit_status
from agentloop.cli.build import MEMORY, AgentSetup, build, make_runner, store_nothing, window_notice
from agentloop.cli.faults import word_and_line
from agentloop.cli.input import Prompt, is_terminal, one_prompt, prompt_for
from agentloop.cli.process import before_leaving
from agentloop.cli.progress import RunFigures, compaction_report, final_line, progress_on
from agentloop.cli.session_choice import (
    SessionChoice,
    read_past,
    session_choice,
    session_id_for,
)
from agentloop.cli.settings import Settings, read_when_busy, settings_for
from agentloop.cli.terminal import StandardOutput, error_console, run_to_end, say
from agentloop.errors import UsageError
from agentloop.messages import Usage
from agentloop.redaction import Secrets, secrets_in_address
from agentloop.stream import RunEnded, RunStarted, RunStatus, StreamEvent, to_json
from agentloop.workspace import end_all

_STRICT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)
_VARIABLES = {"--store": "AGENTLOOP_STORE", "--base-url": "OPENAI_BASE_URL"}
"""The addresses, and what they are called in the environment."""
_BARE_USER = re.compile(r"postgres(?:ql)?://[^:@/?]*:?@[^@]*")
_NO_END = "the run ended without saying how"
_INTERRUPTED = "interrupted: what is finished is kept"
_LAST_WORDS_SECONDS = 2.0
"""How long an interrupted run may take to hand over what it has to say."""


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


class AnswerWriter:
    """Writes a run to standard output: the answer alone, at the end.

    So text that a retry makes void is never shown.
    """

    def __init__(self, output: StandardOutput) -> None:
        self._output = output
        self._ended = False

    async def event(self, event: StreamEvent) -> None:
        """Something happened."""

    async def end(self, outcome: Outcome) -> None:
        """Nothing more will happen; called once, also where nothing happened at all."""
        if outcome.output:
            await self._output.write(outcome.output.removesuffix("\n") + "\n")

    def last_words(self, outcome: Outcome) -> None:
        """The process leaves now, whatever is stuck: say how it ended, where nobody is to be waited for.

        A text has no word for it.
        """


class JsonWriter(AnswerWriter):
    """One object at the end."""

    async def end(self, outcome: Outcome) -> None:
        """The outcome."""
        self._ended = True
        await self._output.write(json_line(asdict(outcome)))

    def last_words(self, outcome: Outcome) -> None:
        """The outcome, unless it is told already."""
        self._output.write_at_once("" if self._ended else json_line(asdict(outcome)))


class StreamJsonWriter(AnswerWriter):
    """Each event as one line; `run_ended` is always the last, also where no run began."""

    async def event(self, event: StreamEvent) -> None:
        """One line."""
        self._ended = self._ended or isinstance(event, RunEnded)
        await self._output.write(json_line(to_json(event)))

    async def end(self, outcome: Outcome) -> None:
        """The last line, unless the run has said it itself, and whatever is not handed over yet."""
        await (self._output.write("") if self._ended else self.event(_run_ended(outcome)))

    def last_words(self, outcome: Outcome) -> None:
        """The last line, unless the run has said it itself."""
        self._output.write_at_once("" if self._ended else json_line(to_json(_run_ended(outcome))))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCall:
    """What is to be run, on which session."""

    settings: Settings
    built: AgentSetup
    prompt: Prompt
    choice: SessionChoice


class OutputError(Exception):
    """Standard output did not take an event, for that reason; no fault of the run's own."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def start(flags: Mapping[str, Any], words: tuple[str, ...]) -> int:
    """Run once or open the chat; the exit status."""
    shape = _shape(flags)
    if shape == "text" and flags.get("prompt") is None and is_terminal() and os.isatty(1):
        return _open_chat(flags, words)
    return _run_prompt(flags, words, shape)


def _shape(flags: Mapping[str, Any]) -> str:
    shape = str(flags.get("output_format") or ("stream-json" if flags.get("as_json") else "text"))
    if flags.get("as_json") and shape != "stream-json":
        raise UsageError(f"--json and --output-format {shape}: give one of them")
    return shape


def _open_chat(flags: Mapping[str, Any], words: tuple[str, ...]) -> int:
    first = one_prompt(None, words)
    with ExitStack() as until_end:
        choice, settings = _settings(flags, until_end)
        built = build(settings)
        # The terminal library loads only where there is a terminal.
        chat = import_module("agentloop.cli.chat").chat
        return int(run_to_end(chat(settings, built, choice, first)))


def _run_prompt(flags: Mapping[str, Any], words: tuple[str, ...], shape: str) -> int:
    writer = writer_for(shape, StandardOutput.claimed())
    try:
        with ExitStack() as until_end:
            call = _call(flags, words, until_end)
            return run_to_end(run_once(call, writer, error_console()))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 — each end is told where the answer goes
        return _report(error, writer)


def _call(flags: Mapping[str, Any], words: tuple[str, ...], until_end: ExitStack) -> RunCall:
    choice, settings = _settings(flags, until_end)
    one_prompt(flags.get("prompt"), words)
    built = build(settings)
    prompt = prompt_for(flags.get("prompt"), words, continues=choice.continues)
    return RunCall(settings=settings, built=built, prompt=prompt, choice=choice)


def _settings(flags: Mapping[str, Any], until_end: ExitStack) -> tuple[SessionChoice, Settings]:
    settings = settings_for(flags)
    choice = session_choice(
        latest=bool(flags.get("latest")),
        existing=flags.get("resume"),
        exact=flags.get("session"),
        stored=not flags.get("no_session"),
    )
    if flags.get("no_session"):
        given = flags.get("transcripts") is not None
        settings = until_end.enter_context(store_nothing(settings, transcripts_given=given))
    return choice, settings


def _report(error: BaseException, writer: AnswerWriter) -> int:
    word, line = word_and_line(error)
    return run_to_end(report_outcome(Outcome(status=word, error=line), writer, error_console()))


def report_early_end(shape: str, error: BaseException) -> int:
    """Tell standard output the end of a call that never came to its run; the exit status."""
    return _report(error, writer_for(shape, StandardOutput(1)))


async def run_once(call: RunCall, writer: AnswerWriter, console: Console) -> int:
    """Run it, show it, answer; the exit status. Never raises for what a run can end with."""
    for notice in (*call.built.notices, *call.prompt.notices):
        say(console, notice, style="yellow")
    tally = RunFigures()
    last_words = partial(_last_words, writer, tally)
    with before_leaving(last_words), before_leaving(end_all):
        outcome = await _show_run(call, writer, console, tally)
        if tally.context:
            console.print(final_line(tally))
        status = await report_outcome(outcome, writer, console)
    if _is_stored(call, tally):
        for line in compaction_report(tally, call.settings.transcripts):
            console.print(Text(line, style="yellow"))
        say(console, resume_hint(tally.session_id, call.settings), style="dim")
    return status


async def _show_run(call: RunCall, writer: AnswerWriter, console: Console, tally: RunFigures) -> Outcome:
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
        return _output_failed(_outcome(tally, "failed", None), error.reason)
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
    async with make_runner(call.built, settings, console) as runner:
        session_id = await session_id_for(call.choice, runner.store, settings.workdir, owner=settings.owner)
        if call.choice.continues:
            past = await read_past(session_id, runner.store)
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


def _output_failed(outcome: Outcome, error: OSError) -> Outcome:
    if isinstance(error, BrokenPipeError):
        return replace(outcome, status="interrupted", error="nobody reads standard output any more")
    reason = error.strerror or str(error)
    return replace(outcome, status="failed", error=f"standard output cannot be written: {reason}")


def _is_stored(call: RunCall, tally: RunFigures) -> bool:
    """Whether there is something to go on with: of this run, or of the session that it was to go on with."""
    kept = tally.context is not None or (tally.goes_on and tally.run_id != "")
    return kept and call.settings.store != MEMORY


def _last_words(writer: AnswerWriter, tally: RunFigures) -> None:
    writer.last_words(_outcome(tally, "interrupted", _INTERRUPTED))


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
        outcome = _output_failed(outcome, error)
    if outcome.error and outcome.status != "answered":
        say(console, outcome.error, style="bold red")
    return exit_status(outcome.status)


def writer_for(shape: str, output: StandardOutput) -> AnswerWriter:
    """The writer for `text`, `json` or `stream-json`."""
    if shape == "json":
        return JsonWriter(output)
    return StreamJsonWriter(output) if shape == "stream-json" else AnswerWriter(output)


def _run_ended(outcome: Outcome) -> RunEnded:
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


def json_line(value: Mapping[str, Any]) -> str:
    """One line of strict JSON in strict UTF-8."""
    try:
        text = _STRICT.encode(value)
    except ValueError:
        # NaN and the infinities, which a model's server may have sent, are no JSON.
        text = _STRICT.encode(json.loads(json.dumps(value, default=str), parse_constant=lambda _: None))
    return strict(text) + "\n"


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
    return option[0] == "--when-busy" and read_when_busy(option[-1]) == "take_over"


def _holds_secret(name: str, value: str = "") -> bool:
    """Whether an address may hold one; the name alone of a user of a database is none."""
    if name not in _VARIABLES:
        return False
    if secrets_in_address(value) or Secrets()(value) != value:
        return True
    bare_user = name == "--store" and _BARE_USER.fullmatch(value)
    return "passw" in value.lower() or ("@" in value and not bare_user)


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
