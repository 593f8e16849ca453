"""`sessions`: the stored sessions."""

import click

from agentloop.cli.sessions.checked import check
from agentloop.cli.sessions.described import expire, rename
from agentloop.cli.sessions.files import export, import_
from agentloop.cli.sessions.gone import delete, sweep
from agentloop.cli.sessions.searched import search
from agentloop.cli.sessions.shown import list_, show


@click.group()
def sessions() -> None:
    """List, show, search, export or delete stored sessions.

    Each is named by its id, a unique prefix of it, or its title.
    """


for _command in (list_, show, search, rename, expire, export, import_, delete, sweep, check):
    sessions.add_command(_command)
