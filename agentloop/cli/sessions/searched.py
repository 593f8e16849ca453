"""`sessions search`: words in the logs of sessions, hidden or not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from agentloop.cli.console import error_console, say
from agentloop.cli.options import STORE, options
from agentloop.cli.output import StandardOutput
from agentloop.cli.sessions.work import Opened, columns, done, moment, named
from agentloop.errors import UsageError
from agentloop.events import MessageAdded
from agentloop.redaction import redacted
from agentloop.stores.base import FindsWords, Found
from agentloop.stores.words import Query, excerpt, searchable

_MOST = 1_000
_FURTHER = 4
"""So many times as much is asked for where what was found is of other folders."""


@click.command()
@click.argument("text")
@click.option("--session", "name", metavar="ID", help="Only in this session.")
@click.option("--all", "everywhere", is_flag=True, help="In those of all folders, not only of this one.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
@click.option("-n", "most", metavar="N", type=click.IntRange(1, _MOST), default=20, show_default=True)
@options(STORE)
def search(text: str, name: str | None, everywhere: bool, as_json: bool, most: int, **_: Any) -> int:
    """Search what was said for words.

    Also where a compaction has hidden it; newest first. A record is found that holds all the words; what
    stands in double quotes is found as it stands.
    """

    query = Query.of(text)

    async def work(opened: Opened, output: StandardOutput) -> None:
        looks, owner = searchable_store(opened), opened.settings.owner
        if name is not None:
            session_id = (await named(opened, name)).id
            found = await looks.search(text, session_id=session_id, owner=owner, most=most)
        elif everywhere:
            found = await looks.search(text, owner=owner, most=most)
        else:
            found = await of_folder(opened, looks, text, most)
        if not found:
            hint = "" if everywhere or name else " in this folder; --all searches the sessions of all folders"
            say(error_console(), f"nothing found{hint}")
        shown = [await _shown(opened, each, query) for each in found]
        if as_json:
            return await output.write(json.dumps(shown, indent=2) + "\n")
        return await output.write("".join(map(_row, shown)))

    return done(work)


def searchable_store(opened: Opened) -> FindsWords:
    """The store, which can be searched.

    Raises:
        UsageError: it cannot.
    """
    if isinstance(opened.store, FindsWords):
        return opened.store
    raise UsageError(
        f"a {type(opened.store).__name__} cannot be searched: export the session and search that"
    )


async def of_folder(opened: Opened, looks: FindsWords, text: str, most: int) -> Sequence[Found]:
    """What is found in sessions of the call's folder: ever more is asked for until that is enough, or all."""
    folder, owner = str(opened.settings.workdir), opened.settings.owner
    ids = {info.id for info in await opened.store.list(folder=folder, owner=owner)}
    asked = most
    while True:
        found = await looks.search(text, owner=owner, most=asked)
        here = [each for each in found if each.session_id in ids]
        if len(here) >= most or len(found) < asked:
            return here[:most]
        asked *= _FURTHER


async def _shown(opened: Opened, found: Found, query: Query) -> dict[str, Any]:
    """What was found with the role of its message; cut out of the redacted record where that differs.

    A secret that is cut is not known for one.
    """
    records = await opened.store.read(found.session_id, after=found.seq - 1, most=1)
    data = asdict(found) | {"role": None}
    for record in records:
        event = redacted(record.event, opened.settings.redact)
        data["role"] = event.message.role if isinstance(event, MessageAdded) else None
        if event is not record.event:
            data["text"] = excerpt(searchable(event), query)
    return data


def _row(found: Mapping[str, Any]) -> str:
    what = found["role"] or found["kind"]
    return columns(found["session_id"], str(found["seq"]), what, moment(found["time"]), found["text"])
