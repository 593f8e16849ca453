"""Where a SQLite file lies, and what must hold of that place before SQLite sees it.

A path may be a symbolic link: SQLite keeps its log and its locks beside the file itself, so that is what is
looked at and made. What is said of it names the path as it was given.
"""

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from agentloop._plumbing.private_files import make_private_folder, new_private_file, refused
from agentloop.errors import DamagedError, StoreError


def stands(path: Path) -> bool:
    """Whether there is anything to read.

    Raises:
        StoreError: it cannot be told, or the database is gone or empty and its log is not.
    """
    try:
        target = _target_of(path)
        if target.is_dir() or _size(target):
            return True
        _refuse_lost_log(path, target)
    except OSError as error:
        raise refused(path, error) from error
    return False


def made(path: Path) -> Path:
    """The file itself, made where it is missing: its owner's alone, as SQLite makes its companions then.

    Raises:
        StoreError: something else stands there, or its log is all that is left of it.
        OSError: it cannot be made.
    """
    target = _target_of(path)
    make_private_folder(target.parent)
    _refuse_lost_log(path, target)
    if not os.path.lexists(target):
        with suppress(FileExistsError):
            os.close(new_private_file(target))
    if target.exists() and not target.is_file():
        raise StoreError(f"{path}: this is no file: name the database file to use")
    return target


def _target_of(path: Path) -> Path:
    """The file itself, where the path is a symbolic link."""
    return Path(os.path.realpath(path))


def identity(path: Path) -> tuple[int, int] | None:
    """What tells the file from any other; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def is_read_only(path: Path) -> bool:
    """Whether the file could be read, but nothing be made beside it, as SQLite must to read it."""
    target = _target_of(path)
    return os.access(target, os.R_OK) and not os.access(target.parent, os.W_OK)


def as_it_stands(path: Path) -> str:
    """The file as SQLite opens one that nobody writes to: without looking for a log, or at locks.

    https://sqlite.org/uri.html#uriimmutable. So `state` must be the same before and after what is read.

    Raises:
        StoreError: a log beside it may hold what it lacks.
    """
    target = _target_of(path)
    for log in _logs(target):
        if _size(log):
            raise StoreError(
                f"{path}: its log {log} cannot be taken over, as nothing can be written beside it: "
                "copy both to a folder that can be written"
            )
    return f"file:{quote(os.fsencode(target))}?mode=ro&immutable=1"


def state(path: Path) -> tuple[int | None, ...]:
    """What is another once somebody has written to the file or its log; empty where there is none."""
    target = _target_of(path)
    try:
        found = target.stat()
    except FileNotFoundError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, *map(_size, _logs(target))


def _logs(target: Path) -> tuple[Path, ...]:
    return tuple(target.with_name(f"{target.name}{suffix}") for suffix in ("-wal", "-journal"))


def _refuse_lost_log(path: Path, target: Path) -> None:
    """SQLite would delete a log whose database is gone or empty, as if it belonged to the new one."""
    log = target.with_name(f"{target.name}-wal")
    if _size(log) and not _size(target):
        raise DamagedError(
            f"{path}: the database is gone or empty, but not its log {log}: "
            "put the database back, or move its log away"
        )


def _size(path: Path) -> int | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return path.stat().st_size
    return None
