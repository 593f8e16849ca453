"""A file that is written whole or not at all.

Until it is whole it stands beside its place, as `.agentloop-PID.part`. What a killed process left so is
removed by the next one that writes in the folder.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from agentloop._plumbing.private_files import new_private_file, try_lock
from agentloop._plumbing.processes import this_process
from agentloop.errors import UsageError

_PART = re.compile(r"\.agentloop-([0-9]+)\.part")


class WholeFile:
    """A file that is being written; its faults are told by its path."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._path = path
        self._file = file

    def write(self, text: str) -> None:
        """Add the text.

        Raises:
            UsageError: it cannot be written.
        """
        with _name_file(self._path):
            self._file.write(text)


@contextmanager
def whole_file(path: Path) -> Iterator[WholeFile]:
    """A file to write text to, which takes its place at the end of the block, or never where that raises.

    A new file is 0600, one that stands there keeps its rights. What the block raises is the block's own, and
    comes out as it is.

    Raises:
        UsageError: the file cannot be written; a link, a pipe, a device or a folder stands there.
    """
    with _name_file(path):
        if path.is_symlink():
            raise ValueError(f"it is a link: name {os.path.realpath(path)!r} itself")
        if path.exists() and not path.is_file():
            raise ValueError("it is no file: name one, or leave it out for standard output")
    # A name of its own: the file's name may be as long as a name can be.
    with _name_file(path):
        beside = path.with_name(f".agentloop-{os.getpid()}.part")
    _sweep(path.parent)
    try:
        with _name_file(path):
            beside.unlink(missing_ok=True)
        with _open(beside, path) as file:
            with suppress(OSError):  # a file system that knows no locks
                try_lock(file)
            yield WholeFile(path, file)
            with _name_file(path):
                file.flush()
                os.fsync(file.fileno())
        with _name_file(path):
            _put_in_place(beside, path)
    except BaseException:  # whatever ended the block, no half file is left; raised again
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def _sweep(folder: Path) -> None:
    """Remove what dead processes of this user left unfinished; one that lives holds its file locked."""
    with suppress(OSError):
        for each in folder.iterdir():
            found = _PART.fullmatch(each.name)
            if found and replace(this_process(), pid=int(found[1]), started="").is_gone():
                with suppress(OSError):
                    _remove_unlocked(each)


def _remove_unlocked(path: Path) -> None:
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if try_lock(file) and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            path.unlink()


@contextmanager
def _open(at: Path, path: Path) -> Iterator[TextIO]:
    """The file `at`, closed at the end of the block; its faults are told of `path`."""
    with _name_file(path):
        file = os.fdopen(new_private_file(at), "w", encoding="utf-8", errors="replace")
    try:
        yield file
    except BaseException:  # whatever ended the block, it is what is told; raised again
        with suppress(OSError):
            file.close()
        raise
    with _name_file(path):
        file.close()


def _put_in_place(beside: Path, path: Path) -> None:
    if path.exists():
        beside.chmod(path.stat().st_mode & 0o777)
    beside.replace(path)


@contextmanager
def _name_file(path: Path) -> Iterator[None]:
    """Say which file it is that cannot be written."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        way = ": make its folder first" if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{str(path)!r} cannot be written: {reason}{way}") from error
