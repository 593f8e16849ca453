"""The page of the course, made from what lessons say of themselves; `python -m tests.course` writes it."""

import re
from pathlib import Path

from agentloop.cli.lessons import lesson_files, said_in
from tests.cli_kit import ROOT

PAGE = ROOT / "docs" / "course.md"
HEAD = """\
# The course

From one model call to a full agent, a lesson at a time. Each lesson is a file of at most 120 lines of code.
It runs alone, offline, in seconds. Read it in ten minutes, then change it: "Try it" says where to begin.

```sh
.venv/bin/agentloop lessons
.venv/bin/agentloop lessons 6
.venv/bin/agentloop lessons 6 --source
```

This page is made from the lessons: `python -m tests.course` writes it.
"""
_SECTION = re.compile(r"^(\S.*)\n((?:(?: .*)?\n)+)", re.MULTILINE)
_COMMANDS = re.compile(r"(?:^python .*\n)+", re.MULTILINE)


def page() -> str:
    """The whole page as it is to stand in docs/."""
    return "\n".join((HEAD, *(_lesson(number, path) for number, path in lesson_files().items())))


def _lesson(number: int, path: Path) -> str:
    motto, _, rest = said_in(path).partition("\n\n")
    name = path.stem.partition("_")[2].replace("_", " ")
    parts = [f"## {number}. {name.capitalize()}", f"**{motto}**"]
    for title, text in _SECTION.findall(f"{rest}\n"):
        body = re.sub(r"^    ", "", text, flags=re.MULTILINE).strip("\n") + "\n"
        fenced = f"```\n{body}```\n" if title == "The picture" else _COMMANDS.sub(_fenced, body)
        parts.append(f"**{title}**\n\n{fenced.rstrip()}")
    return "\n\n".join((*parts, f"[{path.name}](../lessons/{path.name})\n"))


def _fenced(commands: re.Match[str]) -> str:
    return f"```\n{commands[0]}```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
