"""`lessons`: a course of small programs, each runs alone and offline."""

import ast
import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

import click

import agentloop
from agentloop.cli.options import WholeNumber
from agentloop.cli.terminal import align, columns
from agentloop.errors import UsageError

_NAME = re.compile(r"l(\d\d)_\w+\.py")
_TABLE = re.compile(r"(?:^ +\|.*\n?)+", re.MULTILINE)
_WIDE = 200


@click.command()
@click.argument("number", metavar="[N]", type=WholeNumber(least=0), required=False)
@click.option("--prompt", metavar="TEXT", help="What to ask in the lesson, instead of its own example.")
@click.option("-m", "--model", "real", metavar="NAME", help="A real model, in the lessons that take one.")
@click.option("--source", is_flag=True, help="Print the lesson's code instead of running it.")
def lessons(number: int | None, prompt: str | None, real: str | None, source: bool) -> int:
    """List the lessons, or explain the one with that number and run it."""
    found = lesson_files()
    given = [(name, text) for name, text in (("--prompt", prompt), ("--model", real)) if text is not None]
    if number is None:
        if source or given:
            raise UsageError("--prompt, --model and --source are of one lesson: name it, such as `lessons 6`")
        for each, path in found.items():
            motto, _, _ = said_in(path).partition("\n")
            click.echo(f"{each:>3}  {path.stem}: {motto}")
        return 0
    if number not in found:
        numbers = f"they go from {min(found)} to {max(found)}" if found else "none is installed"
        raise UsageError(f"there is no lesson {number}: {numbers}")
    lesson, code = str(found[number]), found[number].read_text("utf-8")
    if source and given:
        raise UsageError(f"--source runs nothing, so it takes no {given[0][0]}")
    if real is not None and '"--model"' not in code:
        raise UsageError(f"lesson {number} takes no --model: its 'Try it' says what to change")
    if source:
        print(code, end="")  # click takes ASCII for a mistake
        return 0
    print(f"{_TABLE.sub(_drawn, said_in(found[number]))}\n\n{lesson}\n", flush=True)
    sys.argv = [lesson, *(word for pair in given for word in pair)]
    runpy.run_path(lesson, run_name="__main__")
    return 0


def lesson_files() -> Mapping[int, Path]:
    """The lessons by their number: beside the package in a checkout, inside it when installed."""
    package = Path(agentloop.__file__).parent
    folders = (package / "lessons", package.parent / "lessons")
    paths = sorted(path for folder in folders if folder.is_dir() for path in folder.iterdir())
    return {int(found[1]): path for path in paths if (found := _NAME.fullmatch(path.name))}


def _drawn(table: re.Match[str]) -> str:
    """A Markdown table as columns, one under the other."""
    rows = [line.strip().strip("|").split("|") for line in table[0].splitlines()]
    lines = [columns(*row) for row in rows if set("".join(row)) != {"-"}]
    return indent(align(lines, _WIDE), "    ")


def said_in(path: Path) -> str:
    """What a lesson says of itself: its motto, then its sections."""
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
