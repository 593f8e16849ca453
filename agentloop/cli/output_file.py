"""A file that is written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from agentloop._plumbing.private_files import open_private
from agentloop.errors import UsageError


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

    A new file is 0600, one that stands there keeps its rights. Links, devices and pipes are written
    through, never replaced. What the block raises is the block's own, and comes out as it is.

    Raises:
        UsageError: the file cannot be written.
    """
    with _name_file(path):
        through = path.is_symlink() or (path.exists() and not path.is_file())
    with _open(path, path) if through else _replace(path) as file:
        yield WholeFile(path, file)


@contextmanager
def _replace(path: Path) -> Iterator[TextIO]:
    # A name of its own: the file's name may be as long as a name can be.
    with _name_file(path):
        beside = path.with_name(f".agentloop-{os.getpid()}.part")
    try:
        with _name_file(path):
            beside.unlink(missing_ok=True)
        with _open(beside, path) as file:
            yield file
            with _name_file(path):
                file.flush()
                os.fsync(file.fileno())
        with _name_file(path):
            _put_in_place(beside, path)
    except BaseException:  # whatever ended the block, no half file is left; raised again
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


@contextmanager
def _open(at: Path, path: Path) -> Iterator[TextIO]:
    """The file `at`, closed at the end of the block; its faults are told of `path`."""
    with _name_file(path):
        file = open_private(at)
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
        raise UsageError(f"{str(path)!r} cannot be written: {reason}") from error
