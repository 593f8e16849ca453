"""`sessions`: the stored sessions on the command line."""

import click

from agentloop.cli.sessions.delete import delete, sweep
from agentloop.cli.sessions.show import check, expire, list_, rename, search, show
from agentloop.cli.sessions.transfer import export, fork, import_


@click.group()
def sessions() -> None:
    """List, show, search, export or delete stored sessions.

    Each is named by its id, a unique prefix of it, or its title.
    """


for _command in (list_, show, search, rename, expire, fork, export, import_, delete, sweep, check):
    sessions.add_command(_command)
