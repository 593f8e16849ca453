"""The whole of a tool's result, kept in a file where it is too long to show."""

import os
import re
import secrets
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from agentloop._plumbing.private_files import make_private_folder, new_private_file, refuse_link, sync_folder


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
        sync_folder(folder)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _new_file(folder: Path, stem: str) -> tuple[int, Path]:
    for suffix in _suffixes():
        path = folder / f"{stem}{suffix}.txt"
        try:
            return new_private_file(path), path
        except FileExistsError:
            continue
    raise FileExistsError(f"no free name for {stem}.txt in {folder}")  # pragma: no cover — 64 random bits


def _suffixes() -> Iterator[str]:
    numbered = (f"-{number}" for number in range(2, 100))
    return chain(("",), numbered, (f"-{secrets.token_hex(8)}" for _ in range(3)))
