"""The one folder that file tools may touch.

A path is first resolved, links included, and must then lie inside. After that it is opened one name at
a time from the folder down, following no link, so that a link put there meanwhile leads nowhere.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentloop.errors import UsageError

MOST_BYTES = 64 * 1024 * 1024

_UNSHOWN = frozenset({"__pycache__", "CVS", "_darcs"})
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkspaceError(ValueError):
    """A built-in tool cannot do what it was asked; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """`root` is a real path: absolute, without links."""

    root: Path

    @classmethod
    def at(cls, path: Path | str) -> "Folder":
        """The folder at this path.

        Raises:
            UsageError: there is none.
        """
        root = Path(path)
        if not root.is_dir():
            raise UsageError(f"no working folder at {str(path)!r}: make it or name another")
        return cls(root=root.resolve())

    def inside(self, path: str) -> tuple[str, ...]:
        """The names that lead from the root to where `path` really is; none for the root itself.

        Raises:
            WorkspaceError: it is no path, or lies outside.
        """
        if "\0" in path:
            raise WorkspaceError(f"{path!r} is no path: it has a NUL character in it")
        try:
            real = Path(os.path.realpath(self.root / path))
        except (OSError, ValueError) as error:
            raise WorkspaceError(f"{path!r} is no usable path: {error}") from error
        if not real.is_relative_to(self.root):
            raise WorkspaceError(f"{path!r} is outside the working folder: use a path inside, relative to it")
        return real.relative_to(self.root).parts

    def read(self, path: str) -> bytes:
        """The bytes of a file.

        Raises:
            WorkspaceError: it is no regular file inside, or is larger than 64 MiB.
        """
        names = self.inside(path)
        with _explain_faults(path), self._open_folder(names[:-1]) as parent:
            descriptor = os.open(names[-1] if names else ".", _OPEN_FILE, dir_fd=parent)
            try:
                _check_readable(path, os.fstat(descriptor))
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return file.read(MOST_BYTES)
            finally:
                os.close(descriptor)

    def is_file(self, path: str) -> bool:
        """Whether there is a file at `path`.

        Raises:
            WorkspaceError: it lies outside.
        """
        return self.root.joinpath(*self.inside(path)).is_file()

    def replace(self, path: str, data: bytes) -> bool:
        """Put a file there in one step, with the folders it needs; True where one was replaced.

        A file that was there keeps its mode. Whoever reads meanwhile sees the old file or the new one.

        Raises:
            WorkspaceError: it lies outside, is a folder, or cannot be written.
        """
        names = self.inside(path)
        if not names:
            raise WorkspaceError(f"{path!r} is the working folder itself: name a file in it")
        with _explain_faults(path), self._open_folder(names[:-1], make=True) as parent:
            mode = _mode_of(names[-1], parent, path)
            temporary = f".agentloop-{secrets.token_hex(8)}.tmp"
            descriptor = os.open(temporary, _OPEN_NEW, 0o666, dir_fd=parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    if mode is not None:
                        os.fchmod(descriptor, mode)
                os.replace(temporary, names[-1], src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:  # whatever it is, the half-written file goes; it is raised again
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)
                raise
            return mode is not None

    def walk(self, path: str, *, also: Callable[[str], bool] = lambda _: False) -> Iterator[str]:
        """The files below a folder as POSIX paths relative to the root, in no order.

        Hidden names, `__pycache__` and the folders of version control are passed over where `also` does not
        say that they are asked for; links to folders are not followed, links to files are given where they
        lead inside.

        Raises:
            WorkspaceError: it is no folder inside.
        """
        start = self.root.joinpath(*self.inside(path))
        if self.is_file(path):
            raise WorkspaceError(f"{path!r} is a file, not a folder: use read_file")
        if not start.is_dir():
            raise WorkspaceError(
                f"there is no folder {path!r}: list_files without a path shows what is there"
            )
        # Not by os.walk: it calls itself, and nobody knows how deep a stranger's folders are.
        waiting = [start]
        while waiting:
            folder = waiting.pop()
            relative = folder.relative_to(self.root)
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if not (_is_shown(entry.name) or also(entry.name)):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry))
                    elif self._leads_to_file(Path(entry)):
                        yield (relative / entry.name).as_posix()

    def _leads_to_file(self, path: Path) -> bool:
        try:
            if not stat.S_ISLNK(mode := path.lstat().st_mode):
                return stat.S_ISREG(mode)
            real = Path(os.path.realpath(path))
            return real.is_relative_to(self.root) and real.is_file()
        except OSError:
            return False

    @contextlib.contextmanager
    def _open_folder(self, names: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        descriptor = os.open(self.root, _OPEN_FOLDER)
        try:
            for name in names:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=descriptor)
                parent, descriptor = descriptor, os.open(name, _OPEN_FOLDER, dir_fd=descriptor)
                os.close(parent)
            yield descriptor
        finally:
            os.close(descriptor)


def _check_readable(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise WorkspaceError(f"{path!r} is a folder: use list_files")
    if not stat.S_ISREG(status.st_mode):
        raise WorkspaceError(f"{path!r} is no regular file and is not read")
    if status.st_size > MOST_BYTES:
        raise WorkspaceError(
            f"{path!r} has {status.st_size:,} bytes, more than are read: take a part of it out"
        )


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name not in _UNSHOWN


def _mode_of(name: str, parent: int, path: str) -> int | None:
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise WorkspaceError(f"{path!r} is a folder: name a file")
    if not stat.S_ISREG(status.st_mode):
        raise WorkspaceError(f"{path!r} is no regular file and is not replaced: name another")
    return stat.S_IMODE(status.st_mode)


_REASONS = {
    errno.ENOENT: "there is no file {path!r}: list_files shows what is there",
    errno.ENOTDIR: "{path!r} leads through something that is no folder",
    errno.ELOOP: "{path!r} leads through a link that changed meanwhile",
    errno.EACCES: "{path!r} may not be opened: permission denied",
    errno.ENAMETOOLONG: "{path!r} is too long a name",
    errno.ENXIO: "{path!r} is no regular file and is not read",
}


@contextlib.contextmanager
def _explain_faults(path: str) -> Iterator[None]:
    """Say what the system says of a path in words for the model, without the root's own path."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, "{path!r}: {error}")
        raise WorkspaceError(reason.format(path=path, error=os.strerror(error.errno or 0))) from error
    except UnicodeEncodeError as error:
        raise WorkspaceError(f"{path!r} is no usable path: it has characters no file name has") from error
