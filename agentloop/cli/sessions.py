"""`sessions`: the stored sessions."""

import click

from agentloop.cli.sessions_checked import check
from agentloop.cli.sessions_described import expire, rename
from agentloop.cli.sessions_files import export, import_
from agentloop.cli.sessions_gone import delete, sweep
from agentloop.cli.sessions_searched import search
from agentloop.cli.sessions_shown import list_, show


@click.group()
def sessions() -> None:
    """The stored sessions; each is named by its id, a unique prefix of it, or its title."""


for _command in (list_, show, search, rename, expire, export, import_, delete, sweep, check):
    sessions.add_command(_command)
