"""Calls that wait for a yes: `approvals` lists them, `approve` answers and goes on."""

import getpass
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import click

from agentloop._plumbing.truncate import beginning
from agentloop.approvals import Answers, ApprovalReply, Approve, Pending, Reject, Respond
from agentloop.cli.answer_writer import json_line
from agentloop.cli.options import AGENT, BUSY, COMPACTION, LIMITS, MODEL, OUTPUT, STORE, options
from agentloop.cli.progress import pending_text
from agentloop.cli.run import answer_and_go_on
from agentloop.cli.sessions.command import Opened, on_store
from agentloop.cli.terminal import (
    columns,
    error_console,
    listing,
    moment,
    say,
    show,
)
from agentloop.cli.values import json_object
from agentloop.errors import DamagedError, UsageError
from agentloop.events import ApprovalAsked, RunEndRecord
from agentloop.redaction import redacted
from agentloop.run import check_known, waiting_in
from agentloop.sessions import Sessions, branch_in
from agentloop.stores import SessionInfo
from agentloop.toolsets import CHECK, READ_SKILL, RUN_IN_BACKGROUND, STOP, TODO_READ, TODO_WRITE

_MOST_SESSIONS = 1_000
_TAIL_RECORDS = 20
"""So many of a log's newest records tell whether something waits in it: a run that is left ends its log."""
_ARGUMENT_CHARS = 200
_WORDS: Mapping[type[ApprovalReply], str] = {Approve: "yes", Reject: "no", Respond: "answered"}
GIVEN_BY = {
    **dict.fromkeys(("write_file", "edit_file"), "--ask write"),
    "run_command": "--ask shell",
    **dict.fromkeys((RUN_IN_BACKGROUND, CHECK, STOP), "--ask shell --background"),
    **dict.fromkeys((TODO_WRITE, TODO_READ), "--todo"),
    READ_SKILL: "--skills FOLDER",
}
"""What gives an agent each of the built-in tools that not all have."""
_HEADING = columns("session", "call", "tool", "arguments", "asked")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@options(STORE)
@on_store
async def approvals(opened: Opened, as_json: bool) -> None:
    """List the calls that wait for a person's yes.

    Those of durable runs are among them. `agentloop approve ID` answers.
    """
    lines = (await opened.store.list(owner=opened.settings.owner))[:_MOST_SESSIONS]
    found = [each for line in lines for each in await _waiting(opened, line)]
    if as_json:
        for pending, asked in found:
            await opened.output.write(json_line({**asdict(pending), "asked": asked}))
        return
    rows = []
    for each, asked in found:
        arguments = beginning(json.dumps(each.arguments, ensure_ascii=False), _ARGUMENT_CHARS)
        rows.append(columns(each.session_id, each.call_id, each.tool, arguments, moment(asked)))
    await opened.output.write(listing(_HEADING, rows, opened.output) if rows else "")
    if not rows:
        say(error_console(), "nothing waits for a yes")


@click.command()
@click.argument("name", metavar="ID")
@click.argument("calls", nargs=-1, metavar="[CALL …]")
@click.option("--reject", metavar="WHY", help="Say no: the model is told why.")
@click.option("--arguments", metavar="JSON", help="Say yes to the call with these arguments.")
@click.option("--respond", metavar="TEXT", help="Do not run it: this is its result.")
@options(MODEL, COMPACTION, AGENT, LIMITS, STORE, BUSY, OUTPUT)
def approve(
    name: str,
    calls: tuple[str, ...],
    reject: str | None,
    arguments: str | None,
    respond: str | None,
    **_: Any,
) -> int:
    """Answer a call that waits for a yes, and go on with its run.

    `agentloop approvals` lists those that wait. Without CALL it is the only one. What is answered is shown.
    Tools are given as to the run that asked.
    """
    if not name.strip():
        raise UsageError("the session's id is empty: `agentloop approvals` shows those with calls that wait")
    reply = _reply(reject, arguments, respond)

    def answers(waiting: Sequence[Pending], tools: Collection[str]) -> Answers:
        by_id = {each.call_id: each for each in waiting}
        if not calls and len(by_id) > 1:
            raise UsageError(f"{len(by_id)} calls wait: name those that are meant: {' '.join(by_id)}")
        if not by_id:
            raise UsageError(f"nothing waits for a yes in session {name!r}: `agentloop approvals` lists all")
        check_known(dict.fromkeys(calls, reply), by_id, name)
        meant = [by_id[each] for each in calls or by_id]
        for each in meant:
            is_missing = each.tool not in tools and branch_in(each.session_id) is None
            if is_missing and isinstance(reply, Approve):
                raise UsageError(f"there is no tool {each.tool!r} here: give {_option_of(each)} too")
        changed = reply.arguments if isinstance(reply, Approve) else None
        for each in meant:
            runs = each if changed is None else replace(each, arguments=dict(changed))
            show(error_console(), f"{_WORDS[type(reply)]}: {pending_text(runs)}")
        return {each.call_id: replace(reply, fingerprint=each.fingerprint) for each in meant}

    return answer_and_go_on(name, answers)


def _option_of(pending: Pending) -> str:
    """What gives an agent of the command line the tool of a call."""
    if pending.server:
        return f"--mcp FILE, which names the server {pending.server!r}"
    return GIVEN_BY.get(pending.tool, "--tools MODULE, which has it")


def _reply(reject: str | None, arguments: str | None, respond: str | None) -> ApprovalReply:
    given = [text for text in (reject, arguments, respond) if text is not None]
    if len(given) > 1:
        raise UsageError("--reject, --arguments and --respond: give one of them")
    if reject is not None:
        return Reject(reject, by=who())
    if respond is not None:
        return Respond(respond, by=who())
    return Approve(None if arguments is None else arguments_in(arguments), by=who())


def arguments_in(text: str) -> Mapping[str, Any]:
    """The arguments that a person wrote.

    Raises:
        UsageError: they are no JSON object.
    """
    return json_object(text, "--arguments", '{"path": "notes.md"}')


def who() -> str:
    """Who answers, as this machine knows them."""
    with suppress(Exception):  # no user of that number, or none at all
        return getpass.getuser()
    return ""


async def _waiting(opened: Opened, line: SessionInfo) -> list[tuple[Pending, float]]:
    """What waits in that session, and since when; `sessions check` tells of damaged ones."""
    with suppress(DamagedError):
        tail = await opened.store.read(line.id, after=max(0, line.length - _TAIL_RECORDS))
        kinds = (ApprovalAsked, RunEndRecord)
        if not any(isinstance(record.event, kinds) for record in tail):
            return []
        sessions = Sessions(store=opened.store)
        waiting = await waiting_in(sessions, await sessions.open(line.id))
        return [(redacted(each, opened.settings.redact), line.updated) for each in waiting.values()]
    return []
