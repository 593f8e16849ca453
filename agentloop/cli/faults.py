"""What went wrong in one line on standard error."""

import errno
import traceback

import click

from agentloop._plumbing.to_text import words_of
from agentloop.cli.app import exit_status
from agentloop.cli.terminal import PROGRAM, complain, error_console, is_verbose, show
from agentloop.errors import AgentLoopError, ModelRefusedError
from agentloop.results import status_of
from agentloop.stream import LimitName, RunStatus

_OF_MESSAGES = (400, 403, 413, 415, 422)
"""The HTTP statuses by which servers refuse what a request says; 403 is a key's, too."""
_LONGEST_NAME = 200
_HINTS = {errno.ENOSPC: ": make room and try again", errno.ENAMETOOLONG: ": give a shorter one"}
_MOST_LINKS = 20
"""So far back causes are looked at: a chain of them may be a circle."""


def report(error: Exception) -> int:
    """Say what went wrong; the exit status for it."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        show(error_console(), error.format_message())
        return exit_status("usage")
    word, line = word_and_line(error)
    complain(error_console(), line)
    return exit_status(word)


def word_and_line(error: BaseException) -> tuple[RunStatus, str]:
    """The word of the exit table for an error, and the line that says what went wrong."""
    match error:
        case _ if isinstance(error, click.Abort) or _is_by_interrupt(error):
            return "interrupted", "interrupted"
        case click.ClickException():
            return "usage", " ".join(_wrong_call(error).split())
        case AgentLoopError():
            return status_of(error), one_line(error)
        case OSError():
            # A name that is too long for the system was given by the caller: nothing else makes one.
            word: RunStatus = "usage" if error.errno == errno.ENAMETOOLONG else "failed"
            return word, " ".join(_system_fault(error).split())
    show_where(error)
    return "failed", one_line(error)


def one_line(error: BaseException) -> str:
    """What went wrong in one line; an error that is not ours is named as an internal one."""
    text = " ".join(words_of(error).split())
    if isinstance(error, AgentLoopError):
        return text
    return f"internal error, {type(error).__name__}: {text} (AGENTLOOP_LOG=debug shows where)"


def _wrong_call(error: click.ClickException) -> str:
    """What click refuses, in the form that our own refusals have: where, what, and the next step."""
    is_missing = isinstance(error, click.MissingParameter)
    if isinstance(error, click.BadParameter) and error.param and not is_missing:
        is_option = isinstance(error.param, click.Option)
        name = error.param.opts[-1] if is_option else error.param.human_readable_name.strip("[]")
        return f"{name}: {error.message}"
    words = (error.message or error.format_message()).rstrip(".")
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else PROGRAM
    # Of commands the nearest may do the opposite.
    near = error.possibilities if isinstance(error, click.NoSuchOption) else None
    way = f"did you mean {near[0]!r}?" if near else f"`{path} --help` shows how"
    return f"{words[:1].lower()}{words[1:]}: {way}"


def is_refusal_of_message(error: BaseException) -> bool:
    """Whether it may be what the request says that a server refused for good."""
    if not isinstance(error, ModelRefusedError):
        return False
    return error.status in _OF_MESSAGES and not error.takes_no_tools


def with_option(error: str, limit: LimitName | None) -> str:
    """What went wrong; where it is a limit or a time, with the option that sets it."""
    if error.endswith(" allow it more seconds"):
        return f"{error} by --timeout"
    return f"{error}; --max-{limit} sets it" if limit else error


def _is_by_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt lies behind it: one that strikes a class in the making is turned into another."""
    for _ in range(_MOST_LINKS):
        if error is None or isinstance(error, KeyboardInterrupt):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def show_where(error: BaseException) -> None:
    """For who asks for it, the traceback of an error that is not ours."""
    if is_verbose() and not isinstance(error, AgentLoopError):
        traceback.print_exception(error)


def _system_fault(error: OSError) -> str:
    where = f" {str(error.filename)[:_LONGEST_NAME]!r}" if error.filename else ""
    return f"the system refused{where}: {error.strerror or error}{_HINTS.get(error.errno or 0, '')}"
