"""Files that users name, written whole."""

import os
from contextlib import suppress
from pathlib import Path

from agentloop.errors import UsageError
from agentloop.ondisc import write_private


def write_whole(path: Path, text: str) -> None:
    """A new file (0600) whole or not at all; links, devices and pipes are written through, never replaced."""
    if _is_link_or_no_file(path):
        _write_through(path, text)
        return
    # A name of its own: the file's name may be as long as a name can be.
    beside = path.with_name(f".agentloop-{os.getpid()}.part")
    try:
        beside.unlink(missing_ok=True)
        write_private(beside, text)
        if path.exists():
            beside.chmod(path.stat().st_mode & 0o777)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise _unwritable(path, error) from error


def _is_link_or_no_file(path: Path) -> bool:
    try:
        return path.is_symlink() or (path.exists() and not path.is_file())
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


def _write_through(path: Path, text: str) -> None:
    try:
        write_private(path, text)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError | ValueError) -> UsageError:
    return UsageError(f"{str(path)!r} cannot be written: {getattr(error, 'strerror', None) or error}")
