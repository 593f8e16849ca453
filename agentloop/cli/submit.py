"""`submit`: a prompt put in the queue of durable runs."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from agentloop.cli.console import error_console, say
from agentloop.cli.event_loop import run_to_end
from agentloop.cli.exits import exit_status
from agentloop.cli.options import QUEUE_STORE, TTL, flags_of, options
from agentloop.cli.output import StandardOutput
from agentloop.cli.prompt import prompt_for
from agentloop.cli.runs_shown import word_of
from agentloop.cli.settings import settings_for
from agentloop.durable import QUEUE, QueuedRun, RunQueue, not_lost


@click.command()
@click.argument("words", nargs=-1, metavar="PROMPT")
@click.option("--session", metavar="ID", help="In this session: continued if it exists. [default: a new one]")
@click.option("--queue", metavar="NAME", default=QUEUE, show_default=True, help="In this queue.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the answer.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object.")
@options(TTL, QUEUE_STORE)
def submit(
    words: tuple[str, ...], session: str | None, queue: str, wait: bool, as_json: bool, **_: Any
) -> int:
    """Put a prompt in the queue of durable runs.

    Prints the id of its run; - or no prompt reads standard input. Workers do the runs of a queue, those of
    one session one after the other.
    """
    output, settings = StandardOutput.claimed(), settings_for(flags_of(click.get_current_context()))
    option, said = ("-", ()) if words == ("-",) else (None, words)
    prompt = prompt_for(option, said, continues=False, call="agentloop submit")
    for notice in prompt.notices:
        say(error_console(), notice, style="yellow")

    async def work() -> int:
        async with RunQueue(settings.store, owner=settings.owner, redact=settings.redact) as runs:
            run_id = await runs.submit(
                prompt.text or "", session_id=session, queue=queue, ttl_seconds=settings.ttl_seconds
            )
            if wait:
                return await _waited(run_id, runs, output, _answer_as_json if as_json else _answer)
            await output.write(f"{await _order_as_json(run_id, runs) if as_json else run_id}\n")
            return 0

    return run_to_end(work())


async def _waited(
    run_id: str, runs: RunQueue, output: StandardOutput, shown: Callable[[QueuedRun, str], str]
) -> int:
    """Wait for the end of the run and show it; the exit status."""
    console = error_console()
    with not_lost(run_id):
        seen = await runs.run(run_id)
    say(console, f"run {run_id} waits for a worker", style="dim")
    try:
        seen = await runs.wait(run_id)
        answer = await runs.answer(run_id)
    except asyncio.CancelledError:
        output.write_at_once(shown(seen, ""))
        say(console, f"not waited for any longer: {_stays(run_id)}", style="yellow")
        raise
    await output.write(shown(seen, answer))
    if line := seen.error or _cancelled(seen):
        say(console, line, style="bold red")
    return exit_status(word_of(seen))


async def _order_as_json(run_id: str, runs: RunQueue) -> str:
    """What was put in the queue; `run_id` is the older name of its `id`."""
    with not_lost(run_id):
        seen = await runs.run(run_id)
    return json.dumps({"id": run_id, "run_id": run_id, "session_id": seen.session_id, "queue": seen.queue})


def _stays(run_id: str) -> str:
    return (
        f"run {run_id} stays in the queue: `agentloop runs {run_id}` shows it, "
        f"`agentloop runs cancel {run_id}` takes it out"
    )


def _cancelled(run: QueuedRun) -> str | None:
    again = f"`agentloop runs resume {run.id}` puts it back in the queue"
    return f"run {run.id} was cancelled: {again}" if run.state == "cancelled" else None


def _answer(_: QueuedRun, answer: str) -> str:
    return f"{answer}\n" if answer else ""


def _answer_as_json(run: QueuedRun, answer: str) -> str:
    return json.dumps(asdict(run) | {"output": answer}) + "\n"
