"""What went wrong in one line on standard error."""

import errno
import re
import traceback
from collections.abc import Collection, Iterator

import click

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.to_text import words_of
from agentloop._plumbing.truncate import few
from agentloop.cli.app import COMMANDS, exit_status, load
from agentloop.cli.terminal import PROGRAM, complain, error_console, is_verbose, show
from agentloop.errors import AgentLoopError, ModelRefusedError, UsageError
from agentloop.results import status_of
from agentloop.stream import LimitName, RunStatus

_OF_MESSAGES = (400, 403, 413, 415, 422)
"""The HTTP statuses by which servers refuse what a request says; 403 is a key's, too."""
_EXTRA = pattern(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)
_NO_COMMAND = pattern(r"No such command '(.*)'", re.DOTALL)
_LONGEST_NAME = 200
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
            return "failed", " ".join(_system_fault(error).split())
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
    if isinstance(error, click.NoSuchOption):
        return _no_option(error)
    if isinstance(error, click.UsageError) and (extra := _EXTRA.match(error.message)):
        return _too_much(extra[1], error.ctx)
    if isinstance(error, click.UsageError) and (unknown := _NO_COMMAND.match(error.message)):
        return _no_command(unknown[1], error.ctx)
    if not isinstance(error, click.BadParameter) or error.param is None:
        return error.format_message()
    of_option = isinstance(error.param, click.Option)
    name = error.param.opts[-1] if of_option else error.param.human_readable_name.strip("[]")
    if not isinstance(error, click.MissingParameter):
        return f"{name}: {error.message}"
    path = error.ctx.command_path if error.ctx else PROGRAM
    of_session = name.startswith("ID")
    hint = "agentloop sessions list --all" if of_session else f"{path} --help"
    return f"`{path}` needs {name}: `{hint}` shows {'the ids' if of_session else 'how'}"


def _too_much(extra: str, context: click.Context | None) -> str:
    """That a command takes no such words, and what it takes."""
    arguments = (
        [each for each in context.command.params if isinstance(each, click.Argument)] if context else []
    )
    path = context.command_path if context else PROGRAM
    names = " ".join(each.human_readable_name for each in arguments)
    of_text = any(each.human_readable_name in ("TITLE", "TEXT") for each in arguments)
    way = "put a text of several words in quotes" if of_text else f"`{path} --help` shows how"
    return f"`{path}` takes {names or 'no words'}, and not {extra!r} too: {way}"


def _no_command(name: str, context: click.Context | None) -> str:
    """That a group has no such command, and which it has: the nearest may do the opposite."""
    group = context.command if context else None
    names = ", ".join(group.commands) if isinstance(group, click.Group) else ""
    path = context.command_path if context else PROGRAM
    return f"no command {name!r}: `{path}` has {names}; `{path} --help` says what they do"


def _no_option(error: click.NoSuchOption) -> str:
    """That there is no such option, and where there is one."""
    name, path = error.option_name, error.ctx.command_path if error.ctx else PROGRAM
    if others := [command for command, options in _options_of_commands() if name in options]:
        return f"no option {name} here: it is one of {few([f'`{other}`' for other in others])}"
    near = [each for each in error.possibilities or () if each.startswith("--")]
    way = f"did you mean {near[0]}?" if near else f"`{path} --help` lists them"
    return f"no option {name}: {way}"


def _options_of_commands() -> Iterator[tuple[str, Collection[str]]]:
    for name, (place, _) in COMMANDS.items():
        try:
            command = load(place)
        except UsageError:  # it needs an extra that is not installed
            continue
        below = command.commands if isinstance(command, click.Group) else {"": command}
        for part, each in below.items():
            yield f"{name} {part}".strip(), [option for one in each.params for option in one.opts]


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
    hint = ": make room and try again" if error.errno == errno.ENOSPC else ""
    return f"the system refused{where}: {error.strerror or error}{hint}"
