"""The default system prompt, and the `AGENTS.md` files that belong to a folder."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from agentloop._plumbing.truncate import head

DEFAULT = (
    "You are a careful assistant that works with tools. Do what the user asks, completely: use the tools "
    "for facts instead of guessing, and when the work is done, answer with the result alone."
)
FILE = "AGENTS.md"
LONGEST_CHARS = 32_000
"""The most that all files together may have; agents that read such files use about as much."""
_MOST_BYTES = 4 * LONGEST_CHARS + 1
"""Enough to tell that a file is longer: a character has at most four bytes."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def default_instructions(workdir: Path, *, window: int | None) -> tuple[str, str | None]:
    """The system prompt for that folder, and a notice where files had to be cut.

    The files of the folders from the root of the project (the nearest folder above with a `.git`) down
    to `workdir` follow the default, the nearest one last. Together they get at most `LONGEST_CHARS`, and
    in a small window, given in tokens, half a character a token, which is about an eighth of it. A file
    that leads out of the project is passed over: what it holds was never meant for a model's server.
    """
    room = LONGEST_CHARS if window is None else min(LONGEST_CHARS, window // 2)
    root, paths = _files(workdir)
    parts, cut, outside = [DEFAULT], [], []
    for path in paths:
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(root):
            outside.append(path)
            continue
        text = _text(real)
        if not text:
            continue
        if len(text) > room:
            cut.append(path)
            text = f"{head(text, room)}\n[cut: {FILE} is longer than its share of {room:,} characters]"
        parts.append(f"Instructions from {path}:\n{text}")
        room = max(0, room - len(text))
    return "\n\n".join(parts), _notice(cut, outside)


def _notice(cut: Sequence[Path], outside: Sequence[Path]) -> str | None:
    told = [
        (cut, "cut, the files do not fit their share of the window"),
        (outside, "not read, a link that leads out of the project"),
    ]
    return "; ".join(f"{', '.join(map(str, paths))}: {what}" for paths, what in told if paths) or None


def _files(workdir: Path) -> tuple[Path, Sequence[Path]]:
    """The real root of the project, and the files that are there."""
    folders = [workdir, *workdir.parents]
    root = next((folder for folder in folders if (folder / ".git").exists()), workdir)
    down = reversed(folders[: folders.index(root) + 1])
    paths = [folder / FILE for folder in down if (folder / FILE).is_file()]
    return Path(os.path.realpath(root)), paths


def _text(path: Path) -> str:
    """What the file says; nothing where it is none, or was swapped for something else meanwhile."""
    try:
        with os.fdopen(os.open(path, _OPEN), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            return file.read(_MOST_BYTES).decode("utf-8-sig", "replace").strip()
    except OSError:
        return ""
