"""A file that somebody named, read whole: no pipe is waited for, and no more is read than may stand in it."""

import os
import stat
from pathlib import Path

from agentloop.errors import UsageError

_PIECE_BYTES = 1_000_000
"""Between two pieces a signal has its turn."""


def read_path(text: str | Path, name: str = "") -> Path:
    """The path, a home at its beginning written out: a shell leaves `--option=~/x` and variables as they are.

    Raises:
        UsageError: it is the home of nobody; the text calls it by that name.
    """
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):
        raise UsageError(f"{name or repr(str(text))} is the home of no user: write the path") from None


def beginning_of(path: Path, most_bytes: int, *, follows_links: bool = True) -> bytearray:
    """What a file holds, up to `most_bytes` of it.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, or its path is none.
    """
    # Without blocking: whoever opens a pipe waits for its other end.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follows_links else os.O_NOFOLLOW)
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no file")
        data = bytearray()
        while piece := file.read(min(_PIECE_BYTES, most_bytes - len(data))):
            data += piece
    return data


def text_of(path: Path, *, most_bytes: int = 1_000_000) -> str:
    """What a file in UTF-8 holds, without a mark at its beginning.

    Raises:
        UsageError: it cannot be read, is no file with an end, holds more, or is in another encoding.
    """
    name = repr(str(path))
    try:
        data = beginning_of(path, most_bytes + 1)
    except (OSError, ValueError) as error:
        fault = getattr(error, "strerror", None) or error
        raise UsageError(f"{name} cannot be read: {fault}: check the path") from error
    if len(data) > most_bytes:
        raise UsageError(f"{name} holds more than {most_bytes // 1_000_000} MB: name a smaller one")
    return utf8_text(data, name)


def utf8_text(data: bytes | bytearray, name: str) -> str:
    """The bytes of that name as text.

    Raises:
        UsageError: they are not in UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"line {line} of {name} is not in UTF-8: convert it") from error
