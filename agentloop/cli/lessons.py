"""`lessons`: a course of small programs, each runs alone and offline."""

import ast
import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

import click

import agentloop
from agentloop.cli.options import WholeNumber
from agentloop.errors import UsageError

_NAME = re.compile(r"l(\d\d)_\w+\.py")


@click.command()
@click.argument("number", metavar="[N]", type=WholeNumber(least=0), required=False)
@click.option("--prompt", metavar="TEXT", help="What to ask in the lesson, instead of its own example.")
def lessons(number: int | None, prompt: str | None) -> int:
    """List the lessons, or run the one with that number."""
    found = lesson_files()
    if number is None:
        for each, path in found.items():
            click.echo(f"{each:>3}  {_motto(path)}")
        return 0
    if number not in found:
        raise UsageError(f"there is no lesson {number}: there are {', '.join(map(str, found)) or 'none'}")
    lesson = str(found[number])
    print(f"{_introduction(found[number])}\n\n{lesson}\n", flush=True)  # click takes ASCII for a mistake
    sys.argv = [lesson] if prompt is None else [lesson, "--prompt", prompt]
    runpy.run_path(lesson, run_name="__main__")
    return 0


def lesson_files() -> Mapping[int, Path]:
    """The lessons by their number: beside the package in a checkout, inside it when installed."""
    package = Path(agentloop.__file__).parent
    folders = (package / "lessons", package.parent / "lessons")
    paths = sorted(path for folder in folders if folder.is_dir() for path in folder.iterdir())
    return {int(found[1]): path for path in paths if (found := _NAME.fullmatch(path.name))}


def _said(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def _introduction(path: Path) -> str:
    """The motto, the problem and the picture; what follows is for who reads the code."""
    return _said(path).partition("\n\nHow it works\n")[0]


def _motto(path: Path) -> str:
    first = _said(path).partition("\n")[0].strip()
    return f"{path.stem}: {first}" if first else path.stem
