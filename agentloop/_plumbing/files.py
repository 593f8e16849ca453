"""A file that somebody named, read whole: no pipe is waited for, and no more is read than may stand in it."""

import os
import stat
from pathlib import Path

from agentloop._plumbing.private_files import refused
from agentloop.errors import UsageError

_PIECE_BYTES = 1_000_000
"""Between two pieces a signal has its turn."""


def beginning_of(path: Path, most_bytes: int) -> bytearray:
    """What a file holds, up to `most_bytes` of it.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, or its path is none.
    """
    # Without blocking: whoever opens a pipe waits for its other end.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no file")
        data = bytearray()
        while piece := file.read(min(_PIECE_BYTES, most_bytes - len(data))):
            data += piece
    return data


def read_text(path: Path, most_bytes: int) -> str:
    """What a file in UTF-8 holds, without a mark at its beginning.

    Raises:
        UsageError: it is no regular file, cannot be read, holds more, or is in another encoding; in a line
            that begins with its path.
    """
    try:
        data = beginning_of(path, most_bytes + 1)
        if len(data) > most_bytes:
            raise ValueError(f"it holds more than {most_bytes // 1_000_000} MB")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(str(refused(path, error))) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}: line {line} is not in UTF-8: convert it") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
