"""Files that users name, written whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from agentloop.errors import UsageError
from agentloop.ondisc import open_private


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A file to write text to, which takes its place at the end of the block, or never where that raises.

    A new file is 0600, one that stands there keeps its rights. Links, devices and pipes are written
    through, never replaced. Raises:
        UsageError: it cannot be written.
    """
    try:
        with _written_through(path) if _is_link_or_no_file(path) else _replaced(path) as file:
            yield file
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise _unwritable(path, error) from error


def _is_link_or_no_file(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and not path.is_file())


@contextmanager
def _written_through(path: Path) -> Iterator[TextIO]:
    with open_private(path) as file:
        yield file


@contextmanager
def _replaced(path: Path) -> Iterator[TextIO]:
    # A name of its own: the file's name may be as long as a name can be.
    beside = path.with_name(f".agentloop-{os.getpid()}.part")
    try:
        beside.unlink(missing_ok=True)
        with open_private(beside) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            beside.chmod(path.stat().st_mode & 0o777)
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def _unwritable(path: Path, error: OSError | ValueError) -> UsageError:
    return UsageError(f"{str(path)!r} cannot be written: {getattr(error, 'strerror', None) or error}")
