"""Files of a call: folders of a project, and text written whole or not at all."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from agentloop._plumbing.private_files import new_whole_file
from agentloop.errors import UsageError

T = TypeVar("T")


def project_folders(folder: Path) -> Sequence[Path]:
    """The folder and those above it, up to the root of its git repository; it alone where it is in none."""
    above = [folder, *folder.parents]
    root = next((at for at, each in enumerate(above) if (each / ".git").exists()), 0)
    return above[: root + 1]


@contextmanager
def whole_file(path: Path) -> Iterator[Callable[[str], object]]:
    """What adds text to a file, which takes its place at the end of the block, or never where that raises.

    A new file is 0600, one that stands there keeps its rights.

    Raises:
        UsageError: the file cannot be written; a link, a pipe, a device or a folder stands there.
    """
    try:
        if path.is_symlink():
            raise OSError(f"it is a link: name {os.path.realpath(path)!r} itself")
        if path.exists() and not path.is_file():
            raise OSError("it is no file: name one, or leave it out for standard output")
        # A name of its own: the file's name may be as long as a name can be.
        beside = path.with_name(f".agentloop-{os.getpid()}.part")
        beside.unlink(missing_ok=True)
        with new_whole_file(beside) as file:
            yield lambda text: file.write(text.encode("utf-8", "replace"))
        if path.exists():
            beside.chmod(path.stat().st_mode & 0o777)
        beside.replace(path)
    except OSError as error:
        way = ": make its folder first" if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{str(path)!r} cannot be written: {error.strerror or error}{way}") from error
