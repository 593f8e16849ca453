"""`submit`: a prompt put in the queue of durable runs."""

import json
from dataclasses import asdict
from typing import Any

import click

from agentloop.cli.console import error_console, say
from agentloop.cli.event_loop import run_to_end
from agentloop.cli.exits import exit_status
from agentloop.cli.options import QUEUE_STORE, flags_of, options
from agentloop.cli.output import StandardOutput
from agentloop.cli.prompt import prompt_for
from agentloop.cli.runs_shown import word_of
from agentloop.cli.settings import settings_for
from agentloop.durable import QUEUE, RunQueue


@click.command()
@click.argument("words", nargs=-1, metavar="PROMPT")
@click.option("--session", metavar="ID", help="In this session: continued if it exists. [default: a new one]")
@click.option("--queue", metavar="NAME", default=QUEUE, show_default=True, help="In this queue.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the answer.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object.")
@options(QUEUE_STORE)
def submit(
    words: tuple[str, ...], session: str | None, queue: str, wait: bool, as_json: bool, **_: Any
) -> int:
    """Put a prompt in the queue and print the id of its run; - or no prompt reads standard input.

    Workers do the runs of a queue, those of one session one after the other.
    """
    output, settings = StandardOutput.claimed(), settings_for(flags_of(click.get_current_context()))
    prompt = prompt_for("-" if words == ("-",) else None, () if words == ("-",) else words, continues=False)

    async def work() -> int:
        async with RunQueue(settings.store, owner=settings.owner, redact=settings.redact) as runs:
            run_id = await runs.submit(prompt.text or "", session_id=session, queue=queue)
            if not wait:
                seen = await runs.run(run_id)
                whole = {"run_id": run_id, "session_id": seen.session_id, "queue": queue}
                await output.write(f"{json.dumps(whole) if as_json else run_id}\n")
                return 0
            say(error_console(), f"run {run_id} waits for a worker", style="dim")
            seen = await runs.wait(run_id)
            answer = await runs.answer(run_id)
        if as_json:
            await output.write(json.dumps(asdict(seen) | {"output": answer}) + "\n")
        elif answer:
            await output.write(f"{answer}\n")
        if seen.error:
            say(error_console(), seen.error, style="bold red")
        return exit_status(word_of(seen))

    return run_to_end(work())
