"""Calls of the command line, and what each says: its exit status, standard output and standard error.

The calls of a list share a folder and follow one another. Times, ids, ports and places are replaced by their
names.
"""

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.cli_kit import Finished, agentloop
from tests.nets.frozen import write
from tests.strict_provider import StrictProvider
from tests.strict_replies import fault

FILE = "commands.json"
HELD = {"COLUMNS": "110", "TERM": "dumb", "TZ": "UTC", "LANG": "C.UTF-8"}

READ_ALL = "Read every text file in this folder and say what each one is about."
CALLS: Sequence[str] = (
    "--help",
    "--version",
    *(
        f"{name} --help"
        for name in ("compact", "demo", "lessons", "models", "runs", "submit", "undo", "worker")
    ),
    "sessions --help",
    *(
        f"sessions {name} --help"
        for name in (
            "check",
            "delete",
            "expire",
            "export",
            "import",
            "list",
            "rename",
            "search",
            "show",
            "sweep",
        )
    ),
    "-m offline --session talk -p Hello",
    "-m offline --session talk --output-format json -p Again",
    "-m offline --session talk --json -p 'And again'",
    "-m offline --session steps --json --verbose --max-steps 1 -p 'Read a.txt'",
    f"-m offline --session read --window 3k --json -p '{READ_ALL}'",
    f"-m offline --session read2 --window 3k -p '{READ_ALL}'",
    "-m offline --no-session -p Hello",
    "-m offline --system 'Be brief.' --no-session --json 'Hello there'",
    "-r talk -p 'Where were we?'",
    "sessions list",
    "sessions list --json",
    "sessions list --all",
    "sessions show talk",
    "sessions search Hello",
    "sessions search --json Hello",
    "sessions search nowhere_to_be_found",
    "sessions check",
    "sessions check talk",
    "sessions export talk",
    "sessions export talk --format events",
    "sessions export talk --format markdown",
    "sessions export talk --format events --kind message_added --range 1-9 -o out.jsonl",
    "sessions import out.jsonl",
    "sessions rename talk 'A talk'",
    "sessions expire talk 30d",
    "sessions sweep",
    "-m offline compact talk",
    "-m offline compact read --focus names",
    "undo talk",
    "undo read",
    "undo read",
    "sessions delete talk --yes",
    "sessions delete talk --yes",
    "sessions list",
    "models --base-url URL",
    "-m strict --base-url URL --no-session -p Hi",
    "-m strict --base-url URL --api responses --no-stream --no-session --json -p Hi",
    "-m strict --base-url URL --no-session -p refuse",
    "-m strict --base-url URL --no-session --json -p refuse",
    "lessons",
    "lessons 99",
    "runs",
    "--bogus",
    "-p ''",
    "one two -p three",
    "sesions list",
    "sessions frobnicate",
    "sessions show nobody",
    "sessions import nowhere",
    "-p x --window many",
    "-p x --allow everything",
    "-p x --store mysql://x",
    "-p x -m some-model",
    "-p x -c",
    "--json -p x --output-format json",
    "--json sessions list",
)

LOOSE = ("--session steps", "--session read", "compact read", "undo read", "-p x -c")
"""Of these calls the kinds of events and the words count, not numbers: side by side, any read ends first."""
BY_ORDER = "compaction_skipped"
"""What a loose call tells or not by which read ended first."""

_NAMES = (
    # Before ids: a number of seconds may have twelve digits.
    (r'("(?:time|created|updated|seconds|duration_seconds)": ?)[0-9.e-]+', r"\g<1>0"),
    (r"\b[0-9a-f]{12}\b", "ID"),
    (r"call_[0-9a-f]{10}", "call_ID"),
    (r"^\d\d:\d\d:\d\d", "TIME"),
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r"\b\d{8}-\d{6}-[0-9a-z]+\b", "ID"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "ID"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+]\d\d:?\d\d| UTC)?", "TIME"),
    (r"transcript_\d+(-\d+)?", "transcript_TIME"),
    (r"(?<=\t)\d\d(?= records)|(?<=\"length\": )\d\d(?=,)", "N"),
    (r"[━─]+┃[━─]+", "BAR"),
    (r"(, \d+% of it)?: (warning|critical)(?= ·)", ""),
    (r"\b\d+(\.\d+)? ?(s|ms|seconds?)\b", "N s"),
    (r"\d+ (seconds?|minutes?) ago", "N s ago"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\S*python[\d.]* -m agentloop", "agentloop"),
)


def normal(text: str, folder: str) -> str:
    """The text without what differs from one time to the next."""
    text = text.replace(os.path.realpath(folder), "FOLDER").replace(folder, "FOLDER")
    for pattern, name in _NAMES:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def _shown(text: str, *, loose: bool) -> list[str]:
    """The lines, with the pieces of one text in one; of a loose call what is the same each time."""
    lines: list[str] = []
    for line in text.splitlines():
        event = json.loads(line) if line.startswith('{"type"') else {}
        if loose:
            line = f"{event['type']}: {', '.join(event)}" if event else re.sub(r"[\d,.]*\d", "N", line)
        elif event.get("type") == "text_delta" and lines and lines[-1].startswith("text_delta: "):
            lines[-1] += event["text"]
            continue
        elif event.get("type") == "text_delta":
            line = f"text_delta: {', '.join(event)}: {event['text']}"
        lines.append(line)
    return sorted({line for line in lines if not line.startswith(BY_ORDER)}) if loose else lines


def called(words: Sequence[str], folder: str) -> Finished:
    """How this call ended, in its own words."""
    return agentloop(*words, cwd=Path(folder), env=HELD | {"AGENTLOOP_HOME": f"{folder}/home"})


def outputs() -> dict[str, Any]:
    """What each call says, one after the other in one folder."""
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="nets-") as folder, _provider() as provider:
        for name in ("a", "b", "c", "d"):
            lines = (f"Line {at} of file {name} tells of {name * 3}-{at * 7}." for at in range(60))
            (Path(folder) / f"{name}.txt").write_text("\n".join(lines) + "\n")
        for number, line in enumerate(CALLS):
            words = [provider.url if word == "URL" else word for word in shlex.split(line)]
            done = called(words, folder)
            loose = any(part in line for part in LOOSE)
            shown = {
                "out": _shown(normal(done.out, folder), loose=loose),
                "err": _shown(normal(done.err, folder), loose=loose),
            }
            found[f"{number:02d} {line}"] = {"status": done.status, **shown}
    return found


def freeze() -> None:
    """Write anew what the calls say."""
    write(FILE, outputs())


def _provider() -> StrictProvider:
    def answer(body: Any) -> Any:
        said = body["messages"][-1]["content"]
        return fault(403, "You may not.") if "refuse" in str(said) else "A strict answer."

    return StrictProvider(answer, model="strict")
