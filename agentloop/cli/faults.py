"""What went wrong in one line on standard error."""

import errno
import traceback

import click

from agentloop.cli.console import error_console, say
from agentloop.cli.exits import exit_status, one_line
from agentloop.cli.logs import is_verbose
from agentloop.errors import AgentLoopError
from agentloop.results import status_of


def status_after(error: Exception) -> int:
    """Say what went wrong; the exit status for it."""
    match error:
        case click.ClickException():
            return _reported(error.format_message(), "usage")
        case AgentLoopError():
            return _reported(one_line(error), status_of(error))
        case OSError():
            return _reported(_system_fault(error), "failed")
    show_where(error)
    return _reported(one_line(error), "failed")


def show_where(error: BaseException) -> None:
    """For who asks for it, the traceback of an error that is not ours."""
    if is_verbose() and not isinstance(error, AgentLoopError):
        traceback.print_exception(error)


def _reported(line: str, word: str) -> int:
    say(error_console(), " ".join(line.split()), style="bold red")
    return exit_status(word)


def _system_fault(error: OSError) -> str:
    where = f" {error.filename!r}" if error.filename else ""
    hint = ": make room and try again" if error.errno == errno.ENOSPC else ""
    return f"the system refused{where}: {error.strerror or error}{hint}"
