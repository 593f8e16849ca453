"""Values and files of a call: what a value stands for, text read whole, and text written whole or not."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

from agentloop._plumbing.files import beginning_of
from agentloop._plumbing.private_files import new_private_file
from agentloop._plumbing.truncate import beginning
from agentloop.errors import UsageError

T = TypeVar("T")
_SHOWN_CHARS = 200


def read(source: str, value: Any, of: Callable[[Any], T]) -> T:
    """What a value stands for that was given by this flag, variable, or key of a file.

    Raises:
        UsageError: it stands for nothing; the text names where it came from.
    """
    try:
        return of(value)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error


def read_path(text: str) -> Path:
    """The path, a home at its beginning written out: a shell leaves `--option=~/x` and variables as they are.

    Raises:
        UsageError: it is the home of nobody.
    """
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):
        raise UsageError(f"{quoted(text)} is the home of no user: write the path") from None


def quoted(text: str) -> str:
    """A value as an error shows it."""
    return repr(beginning(text, _SHOWN_CHARS))


def text_of(path: Path, *, most_bytes: int = 1_000_000) -> str:
    """What a file holds; no pipe is waited for, and no more is read than that.

    Raises:
        UsageError: it cannot be read, is no file with an end, holds more, or is not in UTF-8.
    """
    name = repr(str(path))
    try:
        data = beginning_of(path, most_bytes + 1)
    except (OSError, ValueError) as error:
        fault = getattr(error, "strerror", None) or error
        raise UsageError(f"{name} cannot be read: {fault}: check the path") from error
    if len(data) > most_bytes:
        raise UsageError(f"{name} holds more than {most_bytes // 1_000_000} MB: name a smaller one")
    return decoded(data, name)


def decoded(data: bytes | bytearray, name: str) -> str:
    """The bytes of that name as text.

    Raises:
        UsageError: they are not in UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"line {line} of {name} is not in UTF-8: convert it") from error


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
        beside = path.with_name(f".agentloop-{os.getpid()}.part")
        beside.unlink(missing_ok=True)
        file = os.fdopen(new_private_file(beside), "w", encoding="utf-8", errors="replace")
    try:
        yield WholeFile(path, file)
        with _name_file(path):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            if path.exists():
                beside.chmod(path.stat().st_mode & 0o777)
            beside.replace(path)
    except BaseException:  # whatever ended the block, no half file is left; raised again
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


@contextmanager
def _name_file(path: Path) -> Iterator[None]:
    """Say which file it is that cannot be written."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        way = ": make its folder first" if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{str(path)!r} cannot be written: {reason}{way}") from error
