"""The results of tools as text: any value becomes one, a long one is shortened, the whole is spilled."""

import os
import re
import secrets
import unicodedata
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from agentloop.ondisc import make_private_folder, refuse_link

_MOST_BACK = 64


def shortened(text: str, *, max_chars: int, rest: str = "") -> str:
    """The text itself if it has at most `max_chars` characters, else its head and tail around a marker.

    Head and tail stand about two to one and are cut between whole characters, never inside one that is
    made of several code points. `rest` says how to get what was left out. The text that comes back has at
    most `max_chars` characters as long as the marker alone (about 100) fits into it.
    """
    if len(text) <= max_chars:
        return text
    room = max(0, max_chars - len(_marker(len(text), len(text), rest)))
    end = _boundary_before(text, room - room // 3)
    start = _boundary_after(text, len(text) - room // 3)
    short = text[:end] + _marker(start - end, len(text), rest) + text[start:]
    return short if len(short) < len(text) else text


def _marker(left_out: int, total: int, rest: str) -> str:
    way = f"; {rest}" if rest else ""
    return f"\n... [{left_out:,} of {total:,} characters left out{way}] ...\n"


def _boundary_before(text: str, index: int) -> int:
    for candidate in range(index, max(0, index - _MOST_BACK), -1):
        if not _inside_character(text, candidate):
            return candidate
    return 0 if index <= _MOST_BACK else index


def _boundary_after(text: str, index: int) -> int:
    for candidate in range(index, min(len(text), index + _MOST_BACK)):
        if not _inside_character(text, candidate):
            return candidate
    return len(text) if index + _MOST_BACK >= len(text) else index


def _inside_character(text: str, index: int) -> bool:
    """Whether a cut before `index` would part what is shown as one character."""
    if index <= 0 or index >= len(text):
        return False
    before, after = text[index - 1], text[index]
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    joined = before == "\u200d" or after == "\u200d" or "\U0001f3fb" <= after <= "\U0001f3ff"
    return joined or (before == "\r" and after == "\n") or unicodedata.category(after) in ("Mn", "Mc", "Me")


def spill(folder: Path, name: str, text: str) -> Path:
    """Write the whole text to a new file `result_<name>.txt` in the folder, synced, and say where it is.

    The first 200 characters of the name are used; those other than A-Z a-z 0-9 _ - become `_`. No file is
    ever overwritten and no link followed: where the name is taken, the file is called
    `result_<name>-2.txt` and so on. The file is made with mode 0600, a folder that is not there with 0700.
    Lone surrogates, which UTF-8 cannot hold, are written as `\\udXXX`.

    Raises:
        OSError: it could not be written, or the folder is a symbolic link; nothing is left behind.
    """
    make_private_folder(folder)
    refuse_link(folder)
    stem = "result_" + (re.sub(r"[^A-Za-z0-9_-]", "_", name)[:200] or "unnamed")
    descriptor, path = _new_file(folder, stem)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _new_file(folder: Path, stem: str) -> tuple[int, Path]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    for suffix in _suffixes():
        path = folder / f"{stem}{suffix}.txt"
        try:
            return os.open(path, flags, 0o600), path
        except FileExistsError:
            continue
    raise FileExistsError(f"no free name for {stem}.txt in {folder}")  # pragma: no cover — 64 random bits


def _suffixes() -> Iterator[str]:
    numbered = (f"-{number}" for number in range(2, 100))
    return chain(("",), numbered, (f"-{secrets.token_hex(8)}" for _ in range(3)))
