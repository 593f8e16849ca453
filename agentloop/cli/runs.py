"""`runs`: how the durable runs stand."""

import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeAlias

import click

from agentloop.cli.console import error_console, say
from agentloop.cli.event_loop import run_to_end
from agentloop.cli.exits import one_line
from agentloop.cli.lines import SHOWN, few, listing
from agentloop.cli.options import QUEUE_STORE, flags_of, options
from agentloop.cli.output import StandardOutput
from agentloop.cli.runs_shown import HEADING, page, row
from agentloop.cli.settings import settings_for
from agentloop.durable import AnswerLostError, QueuedRun, RunQueue
from agentloop.errors import UsageError

Work: TypeAlias = Callable[[RunQueue], Coroutine[Any, Any, str]]

_MOST = 50
_VERBS = ("cancel", "resume", "delete")


@click.command()
@click.argument("words", nargs=-1, metavar="[ID | cancel ID | resume ID | delete ID]")
@click.option("--json", "as_json", is_flag=True, help="A JSON list, or an object for one run.")
@click.option("--session", metavar="ID", help="Those of this session.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help=f"So many at most. [{_MOST}]")
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
    output, settings = StandardOutput.claimed(), settings_for(flags_of(click.get_current_context()))
    shown = _as_json if as_json else partial(_as_lines, output)
    work = _on_one(words, as_json) if words else _listed(session, most, shown)

    async def whole() -> int:
        async with RunQueue(settings.store, owner=settings.owner, redact=settings.redact) as queue:
            await output.write(await work(queue))
        return 0

    return run_to_end(whole())


def _listed(session: str | None, most: int | None, shown: Callable[[Sequence[QueuedRun]], str]) -> Work:
    async def work(queue: RunQueue) -> str:
        found = await queue.runs(session_id=session, most=most)
        if not found:
            say(error_console(), "no runs")
        return shown(found)

    return work


def _as_lines(output: StandardOutput, found: Sequence[QueuedRun]) -> str:
    return listing(HEADING, list(map(row, found)), output)


def _as_json(found: Sequence[QueuedRun]) -> str:
    return json.dumps([asdict(run) for run in found], indent=2) + "\n"


def _on_one(words: tuple[str, ...], as_json: bool) -> Work:
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
        return json.dumps(asdict(seen) | {"output": answer}) + "\n" if as_json else page(seen, answer)

    return work


async def _answer_of(run_id: str, queue: RunQueue) -> str:
    """The answer; empty where it is lost, which is said: how the run stands is shown all the same."""
    try:
        return await queue.answer(run_id)
    except AnswerLostError as error:
        say(error_console(), one_line(error), style="bold red")
        return ""


async def _id_of(queue: RunQueue, name: str) -> str:
    """The id that is meant; the name itself where no run has such an id.

    Raises:
        UsageError: there are several that begin so.
    """
    found = await queue.runs(id_prefix=name, most=SHOWN + 1) if name.strip() else ()
    ids = [run.id for run in found]
    if len(ids) < 2 or name in ids:
        return name if name in ids or not ids else ids[0]
    more = " and more" if len(ids) > SHOWN else ""
    raise UsageError(f"{name!r} may be any of {few(ids[:SHOWN])}{more}: write more of the id")
