"""Data that a net is held against: read, written, and compared in a way that shows what differs."""

import difflib
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
FREEZE = "what is meant to differ is written anew by `python -m tests.nets.freeze`"


def as_text(value: Any) -> str:
    """The value as it lies in a file: JSON with a value a line."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def frozen(name: str) -> Any:
    """What the file of that name holds."""
    return json.loads((DATA / name).read_text("utf-8"))


def write(name: str, value: Any) -> None:
    """Let the file of that name hold this."""
    (DATA / name).write_text(as_text(value), "utf-8")


def differences(wanted: Any, got: Any) -> str:
    """What differs, as lines of a diff, each near the lines about it; empty where nothing does."""
    before, after = (
        (value if isinstance(value, str) else as_text(value)).splitlines() for value in (wanted, got)
    )
    return "\n".join(difflib.unified_diff(before, after, "frozen", "now", lineterm="", n=2))


def hold(wanted: Any, got: Any, what: str) -> None:
    """Fail where the two are not the same, and show where."""
    shown = differences(wanted, got)
    assert not shown, f"{what} is not what it was; {FREEZE}:\n{shown}"
