"""`sessions check`: whether what is stored can be read, and agrees with itself."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Protocol, runtime_checkable

import click

from agentloop.checkpoints import checkpoint_of
from agentloop.cli.console import error_console, say
from agentloop.cli.options import STORE, options
from agentloop.cli.output import StandardOutput
from agentloop.cli.sessions.work import Opened, columns, done, named, pages
from agentloop.context import Context
from agentloop.errors import StoreError
from agentloop.stores import SessionInfo
from agentloop.stores.base import KeepsCheckpoints


@runtime_checkable
class ChecksItself(Protocol):
    """A store that can look through all that it keeps."""

    async def check(self) -> Sequence[str]:
        """What is wrong, a line each; none where all is well."""
        ...


@click.command()
@click.argument("name", metavar="[ID]", required=False)
@options(STORE)
def check(name: str | None, **_: Any) -> int:
    """Say what is wrong with the store, or a session.

    The whole store is looked through, with --owner the sessions of that owner. No log is changed.
    """

    async def work(opened: Opened, output: StandardOutput) -> None:
        faults = await _faults(opened, name)
        await output.write("".join(map(columns, faults)))
        if faults:
            some = "1 fault was" if len(faults) == 1 else f"{len(faults)} faults were"
            raise StoreError(f"{some} found: restore a copy of what is damaged")
        if isinstance(opened.store, KeepsCheckpoints):
            for info in await _infos(opened, name):
                await _check_checkpoint(opened, opened.store, info)
        say(error_console(), "all is well")

    return done(work)


async def _faults(opened: Opened, name: str | None) -> Sequence[str]:
    everything = name is None and opened.settings.owner is None
    if everything and isinstance(opened.store, ChecksItself):
        return await opened.store.check()
    faults = []
    for info in await _infos(opened, name):
        try:
            async with aclosing(pages(opened.store, info)) as read:
                async for _ in read:
                    pass
        except StoreError as error:
            faults.append(str(error))
    return faults


async def _infos(opened: Opened, name: str | None) -> Sequence[SessionInfo]:
    if name is not None:
        return [await named(opened, name)]
    return await opened.store.list(owner=opened.settings.owner)


async def _check_checkpoint(opened: Opened, kept: KeepsCheckpoints, info: SessionInfo) -> None:
    """Drop a checkpoint that is not what the log comes to: whoever opens the session makes a new one."""
    checkpoint = await kept.checkpoint(info.id)
    if checkpoint is None:
        return
    context = Context()
    async with aclosing(pages(opened.store, info)) as read:
        async for page in read:
            context = context.add(*(record for record in page if record.seq <= checkpoint.seq))
    if checkpoint_of(context, checkpoint.event_id) != checkpoint:
        await kept.drop_checkpoint(info.id)
        say(error_console(), f"{info.id}: its checkpoint was not what its log comes to, and is dropped")
