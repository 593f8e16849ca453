"""Errors that were met, and whether they were mended."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from agentloop.digest.actions import program_of
from agentloop.digest.calls import Call

OPEN, MENDED = " — not seen mended", " — later succeeded"

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
    about = call.command[:80] or (call.paths[0] if call.paths else call.arguments[:60])
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
    """The failed calls with the later one that went well: the same call, or the same program."""
    later: dict[tuple[str, ...], Call] = {}
    found: dict[int, Call] = {}
    for at in range(len(calls) - 1, -1, -1):
        call = calls[at]
        if call.error:
            hit = next((later[key] for key in _mended_by(call) if key in later), None)
            if hit:
                found[at] = hit
        elif call.result is not None:
            later.update(dict.fromkeys(_mends(call), call))
    return found


def _mended_by(call: Call) -> list[tuple[str, ...]]:
    """What may mend a call: itself, its program with what it is run on, or a run of the program on all."""
    program = _program(call)
    keys: list[tuple[str, ...]] = [(call.name, "call", call.target)]
    if program:
        keys += [(call.name, "program", *program), (call.name, "whole", program[0])]
    return [*keys, (call.name, "any", program[0])] if len(program) == 1 else keys


def _mends(call: Call) -> list[tuple[str, ...]]:
    program = _program(call)
    keys: list[tuple[str, ...]] = [(call.name, "call", call.target)]
    if program:
        keys += [(call.name, "program", *program), (call.name, "any", program[0])]
    return [*keys, (call.name, "whole", program[0])] if len(program) == 1 else keys


def _program(call: Call) -> list[str]:
    """What is run, and on what, without options; nothing for a call that runs no command."""
    return [word for word in program_of(call.command).split() if not word.startswith("-")][:2]
