"""Which records of a session an export takes: the options, and what they must be."""

import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeAlias

import click

from agentloop.cli.console import error_console, say
from agentloop.cli.lines import few
from agentloop.cli.options import Option
from agentloop.errors import UsageError
from agentloop.events import KINDS, MAIN, EventFilter, MessageAdded, Record, RunStarted

SELECTION: Sequence[Option[Any]] = (
    click.option("--branch", metavar="NAME", help="What that branch said; main: all that is of no branch."),
    click.option(
        "--kind",
        "kinds",
        metavar="KIND",
        multiple=True,
        type=click.Choice(KINDS),
        help="Records of this kind, e.g. message_added or compacted. Repeatable.",
    ),
    click.option("--run", "run_id", metavar="RUN_ID", help="The messages and the edges of this run."),
    click.option("--range", "positions", metavar="FIRST-LAST", help="Positions: 12-40, 12-, -40 or 7."),
)
Read: TypeAlias = Callable[[EventFilter | None], AsyncGenerator[Sequence[Record]]]
"""Reads a session page by page: the records of a range, or all."""

_RANGE = re.compile(r"([0-9]{1,15})(-?)|([0-9]{0,15})-([0-9]{1,15})")


def filter_of(selection: Mapping[str, Any], shape: str) -> EventFilter | None:
    """The filter that these options ask for; None where none of them is given.

    Raises:
        UsageError: an option is empty or no range, or an export of that shape can't hold what is asked for.
    """
    branch, run_id, kinds = selection["branch"], selection["run_id"], selection["kinds"]
    for name, value in (("--branch", branch), ("--run", run_id)):
        if value is not None and not value.strip():
            raise UsageError(f"{name} is empty: give it a value or leave it out")
    if shape == "openai" and kinds and "message_added" not in kinds:
        raise UsageError(
            "--format openai holds messages alone: take --kind message_added, or --format events"
        )
    first, last = _range(selection["positions"])
    only = EventFilter(branch=branch, kinds=kinds or None, run_id=run_id, first=first, last=last)
    if only == EventFilter():
        return None
    return only if shape != "openai" else replace(only, branch=branch or MAIN, kinds=("message_added",))


async def check_there(only: EventFilter, read: Read) -> None:
    """Refuse a branch and a run that the session does not have; say so where nothing is taken.

    Outside of the range, only the names of these are looked for, and only where nothing in it is taken.

    Raises:
        UsageError: with those that there are.
    """
    async with aclosing(read(only)) as pages:
        async for page in pages:
            if any(map(only, page)):
                return
    if only.branch not in (None, MAIN) or only.run_id is not None:
        async with aclosing(read(None)) as pages:
            await _check_names(only, pages)
    say(error_console(), "nothing in the session is all of what was asked for")


async def _check_names(only: EventFilter, pages: AsyncIterable[Iterable[Record]]) -> None:
    branches, runs = {MAIN: None}, dict[str, None]()
    async for page in pages:
        for event in (record.event for record in page):
            if isinstance(event, MessageAdded) and event.branch:
                branches[event.branch] = None
            if isinstance(event, MessageAdded | RunStarted) and event.run_id:
                runs[event.run_id] = None
    _check_among("--branch", only.branch, list(branches))
    _check_among("--run", only.run_id, list(runs))


def _range(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise _no_range(text)
    alone, dash, first, last = match.groups()
    low = int(alone or first or 1)
    high = int(last) if last else None if dash else low
    if low < 1 or (high is not None and high < low):
        raise _no_range(text)
    return low, high


def _no_range(text: str) -> UsageError:
    return UsageError(f"--range must be like 12-40, 12-, -40 or 7, positions from 1 on, not {text[:40]!r}")


def _check_among(name: str, wanted: str | None, known: Sequence[str]) -> None:
    if wanted is not None and wanted not in known:
        listed = f"it has {few(list(map(ascii, reversed(known))))}" if known else "it has none"
        raise UsageError(f"{name}: the session has no {wanted[:60]!r}; {listed}")
