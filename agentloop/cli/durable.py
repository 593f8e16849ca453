"""`worker`, `submit` and `runs`: the queue of durable runs on the command line."""

import asyncio
import contextlib
import functools
import json
import re
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import click

from agentloop._plumbing.amounts import whole_of
from agentloop._plumbing.truncate import FEW, few
from agentloop.cli.app import exit_status
from agentloop.cli.build import build
from agentloop.cli.faults import one_line
from agentloop.cli.input import prompt_for
from agentloop.cli.mcp import with_mcp
from agentloop.cli.options import (
    AGENT,
    COMPACTION,
    LIMITS,
    MODEL,
    QUEUE_STORE,
    TTL,
    WORKER_STORE,
    WholeNumber,
    options,
)
from agentloop.cli.process import before_leaving
from agentloop.cli.progress import dollars, seconds
from agentloop.cli.settings import settings_of_call
from agentloop.cli.terminal import (
    StandardOutput,
    columns,
    complain,
    configure_logs,
    error_console,
    exact_moment,
    line_of,
    printable,
    run_to_end,
    say,
    warn,
    write_list,
)
from agentloop.cli.values import read
from agentloop.durable import (
    CONCURRENCY,
    QUEUE,
    AnswerLostError,
    QueuedRun,
    QueueLimits,
    Rate,
    RunQueue,
    Worker,
    not_lost,
)
from agentloop.errors import UsageError
from agentloop.stream import AnyStreamEvent, RunEnded, RunStarted
from agentloop.workspace import end_all

_Work: TypeAlias = Callable[[RunQueue], Coroutine[Any, Any, str]]
HEADING = columns("run", "state", "session", "queue", "submitted", "took", "tries", "prompt", "error")
_MOST = 50
_VERBS = ("cancel", "resume", "delete")
_RATE = re.compile(r"(\d{1,9})/(\d{1,9}(?:\.\d{1,9})?)")


@dataclass(frozen=True, slots=True)
class RunEdges:
    """Turns the events of a worker's runs into lines: which begin, go on here and end."""

    under_way: set[str] = field(default_factory=set)

    def line(self, event: AnyStreamEvent) -> str | None:
        """The line for this event, None where it is worth none."""
        is_new = event.run_id not in self.under_way
        if isinstance(event, RunEnded):
            self.under_way.discard(event.run_id)
            return f"run {event.run_id} {event.status}{f': {event.error}' if event.error else ''}"
        self.under_way.add(event.run_id)
        if not is_new:
            return None
        how = "begins" if isinstance(event, RunStarted) else "goes on here"
        return f"run {event.run_id} {how}, session {event.session_id}"


@click.command()
@click.option(
    "--concurrency",
    metavar="N",
    type=WholeNumber(),
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
        configure_logs(verbose=True)
    StandardOutput.claimed()
    settings = settings_of_call()
    if settings.model_is_fallback:
        raise UsageError(
            "a worker does the runs of all: name its model with -m, and its server by OPENAI_API_KEY or "
            "--base-url; -m offline needs none"
        )
    limits = [_limit_of(queue, concurrency, _rate(rate)) for queue in queues or (QUEUE,)]
    built, console = build(settings), error_console()
    warn(console, *built.notices)
    edges = RunEdges()

    def say_edge(event: AnyStreamEvent) -> None:
        if line := edges.line(event):
            say(console, line, style="dim")

    async def work() -> int:
        async with with_mcp(built.agent, settings, console) as agent:
            at_work = Worker(
                agent,
                settings.store,
                queues=limits,
                limits=settings.limits,
                callbacks=built.callbacks,
                transcripts=settings.transcripts,
                folder=str(settings.workdir),
                redact=settings.redact,
                rules=settings.rules,
                on_event=say_edge,
                on_notice=functools.partial(say, console, style="dim"),
            )
            with contextlib.suppress(asyncio.CancelledError):
                await at_work.run()
            return 0

    with before_leaving(end_all):
        return run_to_end(work())


def _limit_of(queue: str, concurrency: int, rate: Rate | None) -> QueueLimits:
    name, colon, most = queue.partition(":")
    number = read("--queue NAME:N", most, whole_of) if colon else None
    return QueueLimits(name=name, most=number, each=concurrency, rate=rate)


def _rate(text: str | None) -> Rate | None:
    if text is None:
        return None
    found = _RATE.fullmatch(text.strip())
    if not found or not int(found[1]) or not float(found[2]):
        raise UsageError(f"--rate: {text!r} is no rate: write N/SECONDS, e.g. 10/60")
    return Rate(runs=int(found[1]), seconds=float(found[2]))


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
    output, settings = StandardOutput.claimed(), settings_of_call()
    option, said = ("-", ()) if words == ("-",) else (None, words)
    prompt = prompt_for(option, said, continues=False, call="agentloop submit")
    warn(error_console(), *prompt.notices)

    async def work() -> int:
        async with RunQueue(settings.store, owner=settings.owner, redact=settings.redact) as runs:
            run_id = await runs.submit(
                prompt.text or "", session_id=session, queue=queue, ttl_seconds=settings.ttl_seconds
            )
            if wait:
                return await _wait_for(run_id, runs, output, _answer_as_json if as_json else _answer)
            await output.write(f"{await _order_as_json(run_id, runs) if as_json else run_id}\n")
            return 0

    return run_to_end(work())


async def _wait_for(
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
        warn(
            console,
            f"not waited for any longer: run {run_id} stays in the queue: "
            f"`agentloop runs {run_id}` shows it, `agentloop runs cancel {run_id}` takes it out",
        )
        raise
    await output.write(shown(seen, answer))
    again = f"`agentloop runs resume {run_id}` puts it back in the queue"
    cancelled = f"run {run_id} was cancelled: {again}" if seen.state == "cancelled" else None
    if line := seen.error or cancelled:
        complain(console, line)
    match seen.state:
        case "queued" | "running" | "cancelled":
            return exit_status("interrupted")
        case word:
            return exit_status(word)


async def _order_as_json(run_id: str, runs: RunQueue) -> str:
    """What was put in the queue; `run_id` is the older name of its `id`."""
    with not_lost(run_id):
        seen = await runs.run(run_id)
    return json.dumps({"id": run_id, "run_id": run_id, "session_id": seen.session_id, "queue": seen.queue})


def _answer(_: QueuedRun, answer: str) -> str:
    return f"{answer}\n" if answer else ""


def _answer_as_json(run: QueuedRun, answer: str) -> str:
    return json.dumps(asdict(run) | {"output": answer}) + "\n"


@click.command()
@click.argument("words", nargs=-1, metavar="[ID | cancel ID | resume ID | delete ID]")
@click.option("--json", "as_json", is_flag=True, help="A JSON list, or an object for one run.")
@click.option("--session", metavar="ID", help="Those of this session.")
@click.option("--limit", metavar="N", type=WholeNumber(), help=f"So many at most. [{_MOST}]")
@click.option("--all", "without_limit", is_flag=True, help="All of them.")
@options(QUEUE_STORE)
def runs(
    words: tuple[str, ...],
    as_json: bool,
    session: str | None,
    limit: int | None,
    without_limit: bool,
    **_: Any,
) -> int:
    """List the durable runs; show, cancel, resume or delete one.

    Newest first. One is named by its id or a unique prefix of it. To cancel takes it out of the queue, to
    resume puts it back in, to delete forgets it; what was said stays in the session's log all the same.
    """
    if limit is not None and without_limit:
        raise UsageError("--all and --limit: give one of them")
    if words and (session is not None or limit is not None or without_limit):
        raise UsageError("--session, --limit and --all are of the list: leave them out where an id is given")
    most = None if without_limit else (limit or _MOST)
    output, settings = StandardOutput.claimed(), settings_of_call()
    one = _one_run_work(words, as_json) if words else None

    async def whole() -> int:
        async with RunQueue(settings.store, owner=settings.owner, redact=settings.redact) as queue:
            if one:
                await output.write(await one(queue))
                return 0
            found = await queue.runs(session_id=session, most=most)
            if not found:
                say(error_console(), "no runs")
            await write_list(output, found, HEADING, row, asdict, as_json=as_json)
        return 0

    return run_to_end(whole())


def _one_run_work(words: tuple[str, ...], as_json: bool) -> _Work:
    verb, name = ("show", words[0]) if len(words) == 1 else (words[0], words[1])
    if verb not in ("show", *_VERBS) or len(words) > 2 or name in _VERBS:
        raise UsageError("write `runs`, `runs ID`, `runs cancel ID`, `runs resume ID` or `runs delete ID`")

    async def work(queue: RunQueue) -> str:
        run_id = await _id_of(queue, name)
        if verb == "delete":
            await queue.delete(run_id)
            return ""
        if verb != "show":
            seen = await (queue.cancel(run_id) if verb == "cancel" else queue.resume(run_id))
            return json.dumps(asdict(seen)) + "\n" if as_json else row(seen)
        seen, answer = await queue.run(run_id), await _answer_of(run_id, queue)
        return (_answer_as_json if as_json else page)(seen, answer)

    return work


async def _answer_of(run_id: str, queue: RunQueue) -> str:
    """The answer; empty where it is lost, which is said: how the run stands is shown all the same."""
    try:
        return await queue.answer(run_id)
    except AnswerLostError as error:
        complain(error_console(), one_line(error))
        return ""


async def _id_of(queue: RunQueue, name: str) -> str:
    """The id that is meant; the name itself where no run has such an id.

    Raises:
        UsageError: there are several that begin so.
    """
    found = await queue.runs(id_prefix=name, most=FEW + 1) if name.strip() else ()
    ids = [run.id for run in found]
    if len(ids) < 2 or name in ids:
        return name if name in ids or not ids else ids[0]
    more = " and more" if len(ids) > FEW else ""
    raise UsageError(f"{name!r} may be any of {few(ids[:FEW])}{more}: write more of the id")


def row(run: QueuedRun) -> str:
    """A run as one line, its fields as `HEADING` names them."""
    where = (run.id, run.state, run.session_id, run.queue or "-")
    took = "-" if run.started is None or run.ended is None else seconds(run.ended - run.started)
    when = (exact_moment(run.submitted), took, str(run.tries))
    return columns(*where, *when, run.prompt or "-", run.error or "-")


def page(run: QueuedRun, answer: str) -> str:
    """All that is known of a run, a line each, and its answer."""
    told = {
        "run": run.id,
        "session": run.session_id,
        "queue": run.queue or "-",
        "prompt": run.prompt or "-",
        "state": run.state,
        "tries": str(run.tries),
        "submitted": exact_moment(run.submitted),
        "started": None if run.started is None else exact_moment(run.started),
        "ended": None if run.ended is None else exact_moment(run.ended),
        "worker": run.worker,
        "last step": run.doing,
        "tokens": run.usage and f"{run.usage.input_tokens} in, {run.usage.output_tokens} out",
        "cost": None if run.cost is None else dollars(run.cost),
        "error": run.error,
    }
    lines = (f"{name}: {line_of(value)}\n" for name, value in told.items() if value)
    return "".join(lines) + (f"\n{printable(answer)}\n" if answer else "")
