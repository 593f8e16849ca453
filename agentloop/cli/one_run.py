"""One run, from its prompt to its exit status."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console
from rich.text import Text

from agentloop.cli.answers import AnswerWriter, Outcome
from agentloop.cli.building import MEMORY, Built, runner_for, window_notice
from agentloop.cli.console import say
from agentloop.cli.exits import exit_status
from agentloop.cli.faults import word_and_line
from agentloop.cli.finding import SessionChoice, past_of, session_id_for
from agentloop.cli.hints import resume_hint
from agentloop.cli.process import before_leaving
from agentloop.cli.progress import final_line, progress_on
from agentloop.cli.prompt import Prompt
from agentloop.cli.settings import Settings
from agentloop.cli.tally import Tally, compacted_and_kept
from agentloop.stream import RunStarted, RunStatus, StreamEvent
from agentloop.workspace import end_all

_NO_END = "the run ended without saying how"
_INTERRUPTED = "interrupted: what is finished is kept"
_LAST_WORDS_SECONDS = 2.0
"""How long an interrupted run may take to hand over what it has to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
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


async def run_once(call: Call, writer: AnswerWriter, console: Console) -> int:
    """Run it, show it, answer; the exit status. Never raises for what a run can end with."""
    for notice in (*call.built.notices, *call.prompt.notices):
        say(console, notice, style="yellow")
    tally = Tally()
    last_words = partial(_last_words, writer, tally)
    with before_leaving(last_words), before_leaving(end_all):
        outcome = await _watched(call, writer, console, tally)
        if call.settings.store != MEMORY:
            for line in compacted_and_kept(tally, call.settings.transcripts):
                console.print(Text(line, style="yellow"))
        if tally.context:
            console.print(final_line(tally))
        status = await report_outcome(outcome, writer, console)
    if _is_stored(call, tally):
        say(console, resume_hint(tally.session_id, call.settings), style="dim")
    return status


def _last_words(writer: AnswerWriter, tally: Tally) -> None:
    writer.last_words(_outcome(tally, "interrupted", _INTERRUPTED))


def _is_stored(call: Call, tally: Tally) -> bool:
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


async def _watched(call: Call, writer: AnswerWriter, console: Console, tally: Tally) -> Outcome:
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


async def _events(call: Call, tally: Tally, console: Console) -> AsyncGenerator[StreamEvent, None]:
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


def _outcome(tally: Tally, word: RunStatus, error: str | None) -> Outcome:
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
