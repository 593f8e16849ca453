"""`sessions`: the stored sessions on the command line."""

import click
from agentloop.cli.sessions.check import check
from agentloop.cli.sessions.rename import expire
from agentloop.cli.sessions.rename import rename
from agentloop.cli.sessions.transfer import export
from agentloop.cli.sessions.transfer import import_
from agentloop.cli.sessions.delete import delete
from agentloop.cli.sessions.delete import sweep
from agentloop.cli.sessions.search import search
from agentloop.cli.sessions.show import list_
from agentloop.cli.sessions.show import show


@click.group()
def sessions() -> None:
    """List, show, search, export or delete stored sessions.

    Each is named by its id, a unique prefix of it, or its title.
    """


for _command in (list_, show, search, rename, expire, export, import_, delete, sweep, check):
    sessions.add_command(_command)


__all__ = ["sessions"]
