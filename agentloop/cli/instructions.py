"""The default system prompt, and the `AGENTS.md` files that belong to a folder."""

from collections.abc import Sequence
from pathlib import Path

DEFAULT = (
    "You are a careful assistant that works with tools. Do what the user asks, completely: use the tools "
    "for facts instead of guessing, and when the work is done, answer with the result alone."
)
FILE = "AGENTS.md"
LONGEST_CHARS = 32_000
"""The most that all files together may have; agents that read such files use about as much."""


def default_instructions(workdir: Path, *, window: int | None) -> tuple[str, str | None]:
    """The system prompt for that folder, and a notice where files had to be cut.

    The files of the folders from the root of the project (the nearest folder above with a `.git`) down
    to `workdir` follow the default, the nearest one last. Together they get at most `LONGEST_CHARS`, and
    in a small window, given in tokens, half a character a token, which is about an eighth of it.
    """
    room = LONGEST_CHARS if window is None else min(LONGEST_CHARS, window // 2)
    parts, cut = [DEFAULT], []
    for path in _files(workdir):
        text = _text(path)
        if not text:
            continue
        if len(text) > room:
            cut.append(path)
            text = f"{text[:room]}\n[cut: {FILE} is longer than its share of {room:,} characters]"
        parts.append(f"Instructions from {path}:\n{text}")
        room = max(0, room - len(text))
    notice = f"{', '.join(map(str, cut))}: cut, the files do not fit their share of the window"
    return "\n\n".join(parts), notice if cut else None


def _files(workdir: Path) -> Sequence[Path]:
    folders = [workdir, *workdir.parents]
    root = next((folder for folder in folders if (folder / ".git").exists()), workdir)
    down = reversed(folders[: folders.index(root) + 1])
    return [folder / FILE for folder in down if (folder / FILE).is_file()]


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig", errors="replace").strip()
    except OSError:
        return ""
