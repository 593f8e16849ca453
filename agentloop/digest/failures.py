"""Errors that were met, and whether they were mended."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from agentloop._plumbing.truncate import head
from agentloop.digest.calls import Call

OPEN, MENDED = " — not seen mended", " — later succeeded"

_LOUD = re.compile(r"-v+|-q+|--verbose|--quiet|--no-color|--color=\w+|--tb=\w+")
"""Options that only change how much is printed, or how."""

_LOUD_IS_ELSE = ("grep", "egrep", "rg", "docker", "podman")
"""Programs in which such an option means something else."""

_SHOWN = re.compile(r"\s*(?:2>&1)?\s*(?:\|\s*tail(?:\s+-n?\s?\d+)?)?\s*$")
"""What only shows the end of what is printed."""

_CHECKS = re.compile(
    r"(?:python3? -m )?(?:pytest|py\.test|mypy|ruff check|flake8|jest|vitest|eslint|rspec|mocha|"
    r"phpunit)(?=\s)"
)
"""Programs that check all there is where they are given no path."""

_PATH = re.compile(r"(?!-)[\w.@/-]*(?:/|\.\w)[\w.@/:\[\]-]*")

_MOST_COMMAND_CHARS = 80
"""Of a command that failed: a line of a terminal, and no more than `_TOLD` reads back."""

_MOST_ARGUMENT_CHARS = 60
"""Of the arguments of another call, so that name and error fit beside them."""

_TOLD = re.compile(r"(?P<name>[^(\n]{0,200})\((?P<about>.{0,80}?)\): ")


def failure_lines(calls: Sequence[Call], earlier: Iterable[str] = ()) -> Iterator[str]:
    """A line for each error, newest first, those not mended before those that were.

    `earlier` are the lines of an earlier record, oldest first and without their dash: what they tell of may
    have been mended since.
    """
    calls = [*(call for line in earlier for call in _told(line)), *calls]
    mended = _mended(calls)
    failed = [(at, call) for at, call in enumerate(calls) if call.error]
    lines: dict[str, None] = {}
    for open_ones in (True, False):
        for at, call in reversed(failed):
            if (mended.get(at) is None) is open_ones:
                lines[_line(call, mended.get(at))] = None
    yield from lines


def _line(call: Call, by: Call | None) -> str:
    about = head(call.command, _MOST_COMMAND_CHARS) or (
        call.paths[0] if call.paths else head(call.arguments, _MOST_ARGUMENT_CHARS)
    )
    return f"- {call.name}({about}): {call.error}{OPEN if by is None else MENDED}"


def _told(line: str) -> Iterator[Call]:
    """The calls that such a line tells of: one that failed, and where it was mended one that went well."""
    told = _TOLD.match(line)
    if told is None:
        return
    failed = Call(
        at=-1,
        name=told["name"],
        arguments="",
        paths=(),
        command=told["about"],
        result="",
        error=line[told.end() :].removesuffix(OPEN).removesuffix(MENDED),
    )
    yield failed
    if line.endswith(MENDED):
        yield replace(failed, error=None)


def _mended(calls: Sequence[Call]) -> dict[int, Call]:
    """The failed calls with the later one that went well: the same, or the whole of which it was part."""
    later: dict[tuple[str, str], Call] = {}
    found: dict[int, Call] = {}
    for at in range(len(calls) - 1, -1, -1):
        call = calls[at]
        if call.error:
            keys = [(call.name, run) for run in _runs_with(_run(call))]
            hit = next((later[key] for key in keys if key in later), None)
            if hit:
                found[at] = hit
        elif call.result is not None:
            later[call.name, _run(call)] = call
    return found


def _run(call: Call) -> str:
    """What is run, however much it prints; for a call that runs no command, what it is about."""
    if not call.command:
        return " ".join(call.paths) or call.arguments
    words = _SHOWN.sub("", call.command).split()
    if not words or words[0] in _LOUD_IS_ELSE:
        return call.command
    return " ".join(word for word in words if not _LOUD.fullmatch(word))


def _runs_with(run: str) -> Iterator[str]:
    """The run itself, and of a check on one path the runs on all that holds it."""
    yield run
    words = run.split()
    paths = [at for at, word in enumerate(words) if at and _PATH.fullmatch(word)]
    if len(paths) != 1 or not _CHECKS.match(run):
        return
    before, path, after = words[: paths[0]], words[paths[0]], words[paths[0] + 1 :]
    for part in re.finditer(r"::|/", path):
        yield " ".join([*before, path[: part.start()], *after])
    yield " ".join([*before, *after])
