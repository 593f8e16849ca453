"""Lines for people: fields in columns, times, and names of which only a few are shown."""

import time
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from agentloop.cli.output import StandardOutput, printable

SHOWN = 5
"""So many names are said where there are more."""

NO_DATE = "-"
"""What is said for a time whose year is larger than that of any date."""


def columns(*fields: str) -> str:
    """One line of these fields, whatever they hold."""
    return "\t".join(" ".join(printable(field).split()) for field in fields) + "\n"


def listing(heading: str, rows: Sequence[str], output: StandardOutput) -> str:
    """Lines of columns under their heading, nothing where there are none.

    In a terminal the columns stand one under the other; elsewhere tabs are between them.
    """
    lines = [heading, *rows] if rows else []
    return aligned(lines) if output.is_terminal and lines else "".join(lines)


def aligned(lines: Sequence[str]) -> str:
    """Lines of columns as a terminal is to show them: each column as wide as its widest field.

    >>> print(aligned([columns("run", "state"), columns("3f", "queued")]), end="")
    run  state
    3f   queued
    """
    rows = [line.rstrip("\n").split("\t") for line in lines]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    padded = ([set_cell_size(*field) for field in zip(row, widths, strict=True)] for row in rows)
    return "".join("  ".join(fields).rstrip() + "\n" for fields in padded)


def moment(seconds: float) -> str:
    """A time as people here write it, to the minute."""
    return _written("%Y-%m-%d %H:%M", seconds)


def exact_moment(seconds: float) -> str:
    """The same, to the second."""
    return _written("%Y-%m-%d %H:%M:%S", seconds)


def few(names: Sequence[str]) -> str:
    """The first five of the names, and how many more there are.

    >>> few(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _written(shape: str, seconds: float) -> str:
    try:
        return time.strftime(shape, time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return NO_DATE
