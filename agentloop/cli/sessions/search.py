"""`sessions search`: words in the logs of sessions, hidden or not."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from agentloop._plumbing.aio import in_thread
from agentloop.cli.options import STORE, WholeNumber, options
from agentloop.cli.sessions.command import Opened, missing_store, run_work
from agentloop.cli.terminal import StandardOutput, columns, error_console, listing, moment, say
from agentloop.events import MessageRecord, kind_name
from agentloop.stores import Query, excerpt, searchable
from agentloop.stores.base import Found

_MOST = 1_000
_HEADING = columns("session", "position", "by", "time", "text")


@click.command()
@click.argument("text")
@click.option("--session", "name", metavar="ID", help="Only in this session.")
@click.option("--all", "everywhere", is_flag=True, help="In those of all folders, not only of this one.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
@click.option("-n", "most", metavar="N", type=WholeNumber(most=_MOST), default=20, show_default=True)
@options(STORE)
def search(text: str, name: str | None, everywhere: bool, as_json: bool, most: int, **_: Any) -> int:
    """Search what was said for words.

    Also where a compaction has hidden it; newest first. A record is found that holds all the words; what
    stands in double quotes is found as it stands.
    """
    query = Query.of(text)

    async def work(opened: Opened, output: StandardOutput) -> None:
        settings = opened.settings
        session_id = (await opened.session(name)).id if name is not None else None
        folder = None if everywhere or session_id else str(settings.workdir)
        found = await opened.sessions.search(text, session_id=session_id, folder=folder, most=most)
        if not found:
            hint = " in this folder; --all searches the sessions of all folders" if folder else ""
            say(error_console(), missing_store(settings) or f"nothing found{hint}")
        shown = await in_thread(_shown, found, query)
        if as_json:
            return await output.write(json.dumps(shown, indent=2) + "\n")
        return await output.write(listing(_HEADING, list(map(_row, shown)), output))

    return run_work(work)


def _shown(found: Sequence[Found], query: Query) -> list[dict[str, Any]]:
    """What was found, as it is shown."""
    shown = []
    for each in found:
        event = each.record.event
        role = event.message.role if isinstance(event, MessageRecord) else None
        where = {"session_id": each.session_id, "seq": each.record.seq, "kind": kind_name(type(event))}
        what = {"role": role, "time": event.time, "text": excerpt(searchable(event), query)}
        shown.append(where | what)
    return shown


def _row(found: Mapping[str, Any]) -> str:
    what = found["role"] or found["kind"]
    return columns(found["session_id"], str(found["seq"]), what, moment(found["time"]), found["text"])
