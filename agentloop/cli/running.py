"""One call of the program, from its words to its exit status."""

from collections.abc import Sequence
from importlib import import_module

import click

from agentloop.cli.app import program
from agentloop.cli.exits import EXIT_STATUS


def status_of_call(arguments: Sequence[str]) -> int:
    """Run the command that the words name; the exit status."""
    try:
        with program.make_context("agentloop", list(arguments)) as context:
            result = program.invoke(context)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except (click.Abort, KeyboardInterrupt, BrokenPipeError):
        return EXIT_STATUS["interrupted"]
    except Exception as error:  # noqa: BLE001 — a fault of ours, too, is one line and no traceback
        # What reports faults loads only when there is one, so that help is quick.
        return int(import_module("agentloop.cli.faults").status_after(error))
    return result if isinstance(result, int) else 0
