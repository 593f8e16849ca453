"""One run from the words of the call to its exit status.

`start` runs once or opens the chat; `run_once` runs, shows and answers.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import click
from rich.console import Console
from rich.text import Text

from agentloop._plumbing.files import read_path
from agentloop.approvals import Answers, Pending
from agentloop.cli.answer_writer import AnswerWriter, Outcome
from agentloop.cli.app import exit_status
from agentloop.cli.build import AgentSetup, build, make_runner, store_nothing, window_notice
from agentloop.cli.faults import is_refusal_of_message, with_option, word_and_line
from agentloop.cli.input import Prompt, is_terminal, one_prompt, prompt_for
from agentloop.cli.mcp import ask_for_found
from agentloop.cli.options import MEMORY, flags_of
from agentloop.cli.process import before_leaving
from agentloop.cli.progress import Progress, RunFigures, compaction_report, final_line, pending_text
from agentloop.cli.resume import (
    SessionChoice,
    approve_hint,
    read_past,
    resume_hint,
    resume_settings,
    rewind_hint,
    session_choice,
    session_id_for,
)
from agentloop.cli.settings import Settings, settings_for
from agentloop.cli.terminal import StandardOutput, complain, error_console, run_to_end, say, warn
from agentloop.cli.values import read
from agentloop.errors import UsageError
from agentloop.media import File
from agentloop.runner import Runner, config_of
from agentloop.stream import RunStarted, RunStatus, StreamEvent
from agentloop.workspace import end_all

_NO_END = "the run ended without saying how"
_INTERRUPTED = "interrupted: what is finished is kept"
_LAST_WORDS_SECONDS = 2.0
"""How long an interrupted run may take to hand over what it has to say."""


Answering: TypeAlias = Callable[[Sequence[Pending], Collection[str]], Answers]
"""Gives the answers to what waits in the session, for an agent that has the tools of these names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCall:
    """What is to be run, on which session."""

    settings: Settings
    built: AgentSetup
    prompt: Prompt
    choice: SessionChoice
    answer: Answering | None = None


def start(flags: Mapping[str, Any], words: tuple[str, ...]) -> int:
    """Run once or open the chat; the exit status."""
    shape = _shape(flags)
    if shape == "text" and flags.get("prompt") is None and is_terminal() and os.isatty(1):
        return _open_chat(flags, words)
    return _run_prompt(flags, words, shape)


def answer_and_go_on(name: str, answer: Answering) -> int:
    """Answer the calls that wait in that session, and go on with its run; the exit status."""
    flags = {**flags_of(click.get_current_context()), "resume": name}
    return _run_prompt(flags, (), _shape(flags), answer)


def report_early_end(shape: str, error: BaseException) -> int:
    """Tell standard output the end of a call that never came to its run; the exit status."""
    return _report(error, AnswerWriter(shape, StandardOutput(1)))


async def run_once(call: RunCall, writer: AnswerWriter, console: Console) -> int:
    """Run it, show it, answer; the exit status. Never raises for what a run can end with."""
    warn(console, *call.built.notices, *call.prompt.notices)
    tally = RunFigures(stored=call.settings.store != MEMORY)

    def last_words() -> None:
        writer.last_words(_outcome(tally, "interrupted", _INTERRUPTED))

    with before_leaving(last_words), before_leaving(end_all):
        outcome = await _show_run(call, writer, console, tally)
        if tally.context:
            console.print(final_line(tally))
        status = await report_outcome(outcome, writer, console)
    for each in outcome.pending:
        say(console, f"waits for a yes: {pending_text(each)}", style="bold yellow")
    # Something is to be gone on with: of this run, or of the session that it was to go on with.
    if tally.stored and (tally.context is not None or (tally.goes_on and tally.run_id != "")):
        for line in compaction_report(tally, call.settings.transcripts):
            console.print(Text(line, style="yellow"))
        waiting = [each.call_id for each in outcome.pending] or tally.asked
        hint = partial(approve_hint, calls=waiting) if waiting else resume_hint
        say(console, hint(tally.session_id, call.settings), style="dim")
        if tally.refused:
            say(console, rewind_hint(tally.session_id, call.settings), style="yellow")
    return status


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
        complain(console, with_option(outcome.error, outcome.limit))
    return exit_status(outcome.status)


def _shape(flags: Mapping[str, Any]) -> str:
    shape = str(flags.get("output_format") or ("stream-json" if flags.get("as_json") else "text"))
    if flags.get("as_json") and shape != "stream-json":
        raise UsageError(f"--json and --output-format {shape}: give one of them")
    return shape


def _open_chat(flags: Mapping[str, Any], words: tuple[str, ...]) -> int:
    with ExitStack() as until_end:
        call = _call(flags, words, until_end, in_chat=True)
        # The terminal library loads only where there is a terminal.
        return int(run_to_end(import_module("agentloop.cli.chat").chat(call)))


def _run_prompt(
    flags: Mapping[str, Any],
    words: tuple[str, ...],
    shape: str,
    answer: Answering | None = None,
) -> int:
    writer = AnswerWriter(shape, StandardOutput.claimed())
    try:
        with ExitStack() as until_end:
            call = replace(_call(flags, words, until_end, in_chat=False), answer=answer)
            return run_to_end(run_once(call, writer, error_console()))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 — each end is told where the answer goes
        return _report(error, writer)


def _call(
    flags: Mapping[str, Any], words: tuple[str, ...], until_end: ExitStack, *, in_chat: bool
) -> RunCall:
    choice, settings = _settings(flags, until_end)
    prompt = Prompt(text=one_prompt(flags.get("prompt"), words))
    if in_chat:
        settings = ask_for_found(settings, error_console())
    built = build(settings)
    attached = tuple(
        File(path=settings.workdir / read("--attach", name, read_path)) for name in flags.get("attach", ())
    )
    if not in_chat:
        continues = choice.continues and not attached
        prompt = prompt_for(flags.get("prompt"), words, continues=continues)
    return RunCall(settings=settings, built=built, prompt=replace(prompt, attached=attached), choice=choice)


def _settings(flags: Mapping[str, Any], until_end: ExitStack) -> tuple[SessionChoice, Settings]:
    settings = settings_for(flags)
    choice = session_choice(flags)
    if flags.get("no_session"):
        given = flags.get("transcripts") is not None
        settings = until_end.enter_context(store_nothing(settings, transcripts_given=given))
    return resume_settings(settings, choice)


def _report(error: BaseException, writer: AnswerWriter) -> int:
    word, line = word_and_line(error)
    return run_to_end(report_outcome(Outcome(status=word, error=line), writer, error_console()))


async def _show_run(call: RunCall, writer: AnswerWriter, console: Console, tally: RunFigures) -> Outcome:
    progress = Progress(console, tally)

    async def show(event: StreamEvent) -> None:
        tally.add(event)
        if isinstance(event, RunStarted):
            warn(console, window_notice(call.built.agent.model))
        progress.show(event)
        try:
            await writer.event(event)
        except OSError as error:
            raise StandardOutputError(error) from error

    try:
        async with make_runner(call.built, call.settings, console) as runner:
            await _run(call, runner, tally, show)
            if tally.ended and tally.ended.status == "needs_approval":
                tally.waiting = await runner.pending(tally.session_id)
    except asyncio.CancelledError:
        return _outcome(tally, "interrupted", _INTERRUPTED)
    except StandardOutputError as error:
        return _output_failed(_outcome(tally, "failed", None), error.reason)
    except Exception as error:  # noqa: BLE001 — every end of a run has its word and its line, faults of ours too
        word, line = word_and_line(error)
        tally.refused = is_refusal_of_message(error)
        return _outcome(tally, tally.ended.status if tally.ended else word, line)
    finally:
        progress.stop()
    ended = tally.ended
    return _outcome(tally, ended.status, ended.error) if ended else _outcome(tally, "failed", _NO_END)


async def _run(
    call: RunCall, runner: Runner, tally: RunFigures, show: Callable[[StreamEvent], Awaitable[None]]
) -> None:
    """One run, each of its events shown, also those of its end where it is cancelled."""
    settings = call.settings
    session_id = await session_id_for(call.choice, runner.store, settings)
    if call.choice.continues:
        past = await read_past(session_id, runner.store)
        tally.earlier, tally.goes_on = past.compactions, past.exists
    events: asyncio.Queue[StreamEvent | None] = asyncio.Queue()
    how: dict[str, Any] = {"limits": settings.limits, "on_event": events.put_nowait}
    if call.answer:
        how["answers"] = call.answer(await runner.pending(session_id), config_of(runner).registry.names)
        tally.asked = [*how["answers"]]
    prompt = call.prompt.whole
    run = asyncio.create_task(
        runner.resume(session_id, **how)
        if prompt is None
        else runner.run(prompt, session_id=session_id, **how)
    )
    run.add_done_callback(lambda _: events.put_nowait(None))

    async def show_all() -> None:
        while (event := await events.get()) is not None:
            await show(event)

    try:
        await show_all()
        await run
    except asyncio.CancelledError:
        run.cancel()
        with suppress(TimeoutError):  # nobody may read any more
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await show_all()
        raise
    finally:
        run.cancel()
        await asyncio.wait({run})


class StandardOutputError(Exception):
    """Standard output did not take an event, for that reason; no fault of the run's own."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


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
        callback_failures=tuple(tally.callback_failures),
        error=error,
        reason=ended.reason if ended else None,
        limit=ended.limit if ended else None,
        pending=tally.waiting,
    )


def _output_failed(outcome: Outcome, error: OSError) -> Outcome:
    if isinstance(error, BrokenPipeError):
        return replace(outcome, status="interrupted", error="nobody reads standard output any more")
    reason = error.strerror or str(error)
    return replace(outcome, status="failed", error=f"standard output cannot be written: {reason}")
