"""`worker`: does the runs of the queue until a signal comes."""

import asyncio
import contextlib
import functools
import re
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from agentloop._plumbing.checks import MOST_COUNT
from agentloop.cli.building import build
from agentloop.cli.console import error_console, say
from agentloop.cli.event_loop import run_to_end
from agentloop.cli.logs import configure
from agentloop.cli.options import AGENT, COMPACTION, LIMITS, MODEL, WORKER_STORE, flags_of, options
from agentloop.cli.output import StandardOutput
from agentloop.cli.process import before_leaving
from agentloop.cli.runs_shown import RunEdges
from agentloop.cli.settings import settings_for
from agentloop.durable import CONCURRENCY, QUEUE, QueueLimits, Rate, Worker
from agentloop.errors import UsageError
from agentloop.stream import AnyStreamEvent
from agentloop.workspace import end_all

_LONGEST_SHOWN = 100
_COUNT = re.compile(r"0*([0-9]{1,10})")
_RATE = re.compile(r"(\d{1,9})/(\d{1,9}(?:\.\d{1,9})?)")


@click.command()
@click.option(
    "--concurrency",
    metavar="N",
    type=click.IntRange(min=1, max=MOST_COUNT),
    default=CONCURRENCY,
    show_default=True,
    help="Runs of a queue side by side in each worker.",
)
@click.option(
    "--queue",
    "queues",
    metavar="NAME[:N]",
    multiple=True,
    help=f"Work off this queue, N runs at once over all workers. Repeatable. [{QUEUE}]",
)
@click.option(
    "--rate", metavar="N/SECONDS", help="Begin no more than N runs of a queue in any so many seconds."
)
@click.option("--verbose", is_flag=True, help="Say more on standard error.")
@options(MODEL, COMPACTION, AGENT, LIMITS, WORKER_STORE)
def worker(concurrency: int, queues: tuple[str, ...], rate: str | None, verbose: bool, **_: Any) -> int:
    """Do the runs of the queue, on as many machines as you like.

    Takes over those of workers that died, until a signal comes. Then what is in flight may end, and its runs
    are handed back. Limits of a queue hold for all workers: the numbers of the worker that started last.
    """
    if verbose:
        configure(verbose=True)
    StandardOutput.claimed()
    flags = flags_of(click.get_current_context())
    if "owner" in flags:
        raise UsageError("--owner has no effect on `worker`: it does the runs of all; give it to `submit`")
    settings = settings_for(flags)
    if settings.model_is_fallback:
        raise UsageError(
            "a worker does the runs of all: name its model with -m, and its server by OPENAI_API_KEY or "
            "--base-url; -m offline needs none"
        )
    limits = _limits_of(queues or (QUEUE,), concurrency, rate)
    built, console = build(settings), error_console()
    for notice in built.notices:
        say(console, notice, style="yellow")

    at_work = Worker(
        built.agent,
        settings.store,
        queues=limits,
        limits=settings.limits,
        callbacks=built.callbacks,
        transcripts=settings.transcripts,
        folder=str(settings.workdir),
        redact=settings.redact,
        on_event=functools.partial(_told, console, RunEdges()),
        on_notice=functools.partial(say, console, style="dim"),
    )
    with before_leaving(end_all):
        return run_to_end(_done(at_work))


async def _done(worker: Worker) -> int:
    with contextlib.suppress(asyncio.CancelledError):
        await worker.run()
    return 0


def _told(console: Console, edges: RunEdges, event: AnyStreamEvent) -> None:
    if line := edges.line(event):
        say(console, line, style="dim")


def _limits_of(queues: Sequence[str], concurrency: int, rate: str | None) -> list[QueueLimits]:
    return [_limit_of(queue, concurrency, _rate(rate)) for queue in queues]


def _limit_of(queue: str, concurrency: int, rate: Rate | None) -> QueueLimits:
    name, colon, most = queue.partition(":")
    found = _COUNT.fullmatch(most)
    if colon and not (found and 0 < int(found[1]) <= MOST_COUNT):
        wanted = f"write NAME or NAME:N, N a whole number from 1 to {MOST_COUNT}"
        raise UsageError(f"--queue: {queue[:_LONGEST_SHOWN]!r}: {wanted}")
    return QueueLimits(name=name, most=int(found[1]) if found else None, each=concurrency, rate=rate)


def _rate(text: str | None) -> Rate | None:
    if text is None:
        return None
    found = _RATE.fullmatch(text.strip())
    if not found or not int(found[1]) or not float(found[2]):
        raise UsageError(f"--rate: {text!r} is no rate: write N/SECONDS, e.g. 10/60")
    return Rate(runs=int(found[1]), seconds=float(found[2]))
