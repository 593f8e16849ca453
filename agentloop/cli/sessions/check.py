"""`sessions check`: whether what is stored can be read, and agrees with itself."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import click

from agentloop.cli.options import STORE, options
from agentloop.cli.sessions.command import Opened, missing_store, run_work
from agentloop.cli.terminal import StandardOutput, columns, error_console, say
from agentloop.context import Context
from agentloop.errors import DamagedError, StoreError, UsageError
from agentloop.sessions import checkpoint_of, read_pages
from agentloop.stores import SessionInfo
from agentloop.stores.base import Checkpoint, ChecksItself, KeepsCheckpoints


@click.command()
@click.argument("name", metavar="[ID]", required=False)
@options(STORE)
def check(name: str | None, **_: Any) -> int:
    """Say what is wrong with the store, or a session.

    The whole store is looked through, with --owner the sessions of that owner. No log is changed.
    """

    async def work(opened: Opened, output: StandardOutput) -> None:
        if missing := missing_store(opened.settings):
            raise UsageError(missing)
        faults = await _faults(opened, name)
        await output.write("".join(map(columns, faults)))
        if faults:
            some = "1 fault was" if len(faults) == 1 else f"{len(faults)} faults were"
            raise StoreError(f"{some} found: restore a copy of what is damaged")
        say(error_console(), "all is well")

    return run_work(work)


async def _faults(opened: Opened, name: str | None) -> Sequence[str]:
    if name is not None:
        return await faults_of(opened, await _with_branches(opened, [await opened.session(name)]))
    if opened.settings.owner is None and isinstance(opened.store, ChecksItself):
        return await opened.store.check() or await _faults_of_checkpoints(opened)
    infos = await opened.store.list(owner=opened.settings.owner)
    return await faults_of(opened, await _with_branches(opened, infos))


async def _with_branches(opened: Opened, infos: Sequence[SessionInfo]) -> Sequence[SessionInfo]:
    """The sessions, each with the logs of its sub-agents behind it."""
    return [each for info in infos for each in (info, *await opened.store.list(branches_of=info.id))]


async def faults_of(opened: Opened, infos: Sequence[SessionInfo]) -> Sequence[str]:
    """Read each log once: a line for each that is damaged, and its checkpoint held against it.

    Raises:
        StoreError: the store cannot be read, which tells nothing of what it holds.
    """
    return [fault for info in infos if (fault := await _fault(opened, info))]


async def _fault(opened: Opened, info: SessionInfo) -> str | None:
    """What is damaged of the session; None for nothing, or where it was deleted meanwhile."""
    try:
        checkpoint = await _checkpoint(opened, info)
        await _read_through(opened, await _line(opened, info), checkpoint)
    except DamagedError as error:
        return str(error)
    except StoreError:
        if await opened.store.info(info.id):  # which raises where the store itself cannot be read
            raise
    return None


async def _faults_of_checkpoints(opened: Opened) -> Sequence[str]:
    """Of logs that the store has looked through, what a checkpoint stands for is read, and nothing else."""
    for info in await opened.store.list():
        if checkpoint := await _checkpoint(opened, info):
            line = await _line(opened, info)
            part = replace(line, length=min(line.length, checkpoint.seq))
            await _read_through(opened, part, checkpoint)
    return ()


async def _read_through(opened: Opened, info: SessionInfo, checkpoint: Checkpoint | None) -> None:
    """Read a log, and drop a checkpoint that it does not come to: who opens the session makes a new one."""
    context, last = Context(), ""
    end = checkpoint.seq if checkpoint else 0
    async with aclosing(read_pages(opened.store, info)) as read:
        async for page in read:
            if records := [record for record in page if record.seq <= end]:
                context, last = context.add(*records), records[-1].event.id
    is_off = checkpoint and checkpoint_of(context, last) != checkpoint
    if is_off and isinstance(opened.store, KeepsCheckpoints):
        await opened.store.drop_checkpoint(info.id)
        say(error_console(), f"{info.id}: its checkpoint was not what its log comes to, and is dropped")


async def _checkpoint(opened: Opened, info: SessionInfo) -> Checkpoint | None:
    return await opened.store.checkpoint(info.id) if isinstance(opened.store, KeepsCheckpoints) else None


async def _line(opened: Opened, info: SessionInfo) -> SessionInfo:
    """The session's line, which is to be as new as its checkpoint: the session may go on meanwhile."""
    return await opened.store.info(info.id) or info
