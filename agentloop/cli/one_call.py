"""One call of the program, from its words to its exit status."""

from collections.abc import Sequence
from importlib import import_module

import click

from agentloop.cli.app import COMMANDS, program
from agentloop.cli.exits import EXIT_STATUS
from agentloop.cli.options import FORMATS


def status_of_call(arguments: Sequence[str]) -> int:
    """Run the command that the words name; the exit status."""
    try:
        with program.make_context("agentloop", list(arguments)) as context:
            result = program.invoke(context)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 — each fault is one line, ours too
        return status_after(error, arguments)
    return result if isinstance(result, int) else 0


def status_after(error: BaseException, arguments: Sequence[str]) -> int:
    """Say what went wrong, in JSON where the words ask a run for that; the exit status for it."""
    shape = shape_of(arguments)
    if shape != "text":
        return int(import_module("agentloop.cli.start").ended_early(shape, error))
    if isinstance(error, click.Abort | KeyboardInterrupt | BrokenPipeError):
        return EXIT_STATUS["interrupted"]
    # What reports faults loads only when there is one, so that help is quick.
    return int(import_module("agentloop.cli.faults").status_after(error))


def shape_of(arguments: Sequence[str]) -> str:
    """What standard output is to get, as far as the words say so, also where they are not all sound.

    It is `text` for the commands, which know nothing of a run.
    """
    valued = {name for option in program.params for name in option.opts if not _is_flag(option)}
    shape, words = "text", iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if word == "--":
            break
        if name in valued and name == word:
            value = next(words, "")
        if word == "--json":
            shape = "stream-json"
        elif name == "--output-format" and value in FORMATS:
            shape = value
        elif word in COMMANDS:
            return "text"
    return shape


def _is_flag(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and option.is_flag
