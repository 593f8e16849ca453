"""Where the program begins and where it ends."""

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from agentloop.cli import leave_folder_alone
from agentloop.cli.process import (
    fill_closed_descriptors,
    interrupt,
    leave,
    leave_at_once,
    leave_on_second,
    take_signals,
)

_CLOSED = b"agentloop: standard output is closed, so there is no place for an answer: redirect it to a file\n"
_NEEDS_POSIX = b"agentloop: the command line needs POSIX: use it on Linux, macOS, or in WSL on Windows\n"
_LONGEST_SIZE = 5
_PLACE = "agentloop.cli.app"


def main(arguments: Sequence[str] | None = None, *, system: str = os.name) -> NoReturn:
    """Run the command line and leave with the status of the exit table; never with a traceback.

    `system` is the kind of system it runs on, in Python's word for it.
    """
    leave_folder_alone()
    if system != "posix":
        os.write(2, _NEEDS_POSIX)
        leave(2)
    words = sys.argv[1:] if arguments is None else arguments
    # Whoever reads JSON is told the end, also that of a call that has hardly begun.
    take_signals(leave_on_second(interrupt) if _may_ask_for_json(words) else leave_at_once)
    closed = fill_closed_descriptors()
    _settle_terminal()
    status = _status(words, output_closed=1 in closed)
    take_signals(leave_at_once)
    leave(status)


def _may_ask_for_json(words: Sequence[str]) -> bool:
    return any(word == "--json" or word.startswith("--output-format") for word in words)


def _settle_terminal() -> None:
    """Drop sizes that are none, and let a letter that the locale does not have become a question mark."""
    for name in ("COLUMNS", "LINES"):
        size = os.environ.get(name, "")
        if not (size.isascii() and size.isdigit() and len(size) <= _LONGEST_SIZE and int(size)):
            os.environ.pop(name, None)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _status(arguments: Sequence[str], *, output_closed: bool) -> int:
    if output_closed:
        os.write(2, _CLOSED)
        return 2
    # The commands load here and not above, so that Ctrl-C is answered while they do.
    try:
        return int(import_module(_PLACE).status_of_call(list(arguments)))
    except KeyboardInterrupt as error:
        return int(import_module(_PLACE).status_after(error, list(arguments)))
