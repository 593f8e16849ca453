"""Where the program begins and where it ends."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from agentloop.cli.process import fill_closed_descriptors, leave, leave_at_once, on_signals

_CLOSED = b"agentloop: standard output is closed, so there is no place for an answer: redirect it to a file\n"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with the status of the exit table; never with a traceback."""
    closed = fill_closed_descriptors()
    with on_signals(leave_at_once):
        status = _status(sys.argv[1:] if arguments is None else arguments, output_closed=1 in closed)
    leave(status)


def _status(arguments: Sequence[str], *, output_closed: bool) -> int:
    if output_closed:
        os.write(2, _CLOSED)
        return 2
    # The commands load here and not above, so that Ctrl-C is answered while they do.
    result = import_module("agentloop.cli.running").status_of_call(list(arguments))
    return int(result)
