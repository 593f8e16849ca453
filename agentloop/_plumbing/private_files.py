"""Files and folders that only their owner reads, and what the disc's refusals mean in words."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, BinaryIO

from agentloop.errors import StoreError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_ADVICE = {
    errno.ENOSPC: "the disc is full: free some space and try again",
    errno.EDQUOT: "the disc quota is used up: free some space and try again",
    errno.EACCES: "no permission: change the rights or choose another place",
    errno.EPERM: "not permitted: change the rights or choose another place",
    errno.EROFS: "the disc is read-only: choose another place",
    errno.ENOENT: "it is not there: check the path",
    errno.ENOTDIR: "a part of the path is no folder: check the path",
    errno.EEXIST: "something else stands there: choose another place",
    errno.EISDIR: "it is a folder: name a file",
    errno.ELOOP: "it is a symbolic link: name the file or folder itself",
}


def refused(path: Path, error: OSError) -> StoreError:
    """The operating system's refusal as one line that says what to do; chain it with `raise … from`."""
    advice = _ADVICE.get(error.errno or 0) or f"{error.strerror or error}: check the path and the disc"
    return StoreError(f"{path}: {advice}")


def refuse_link(folder: Path) -> None:
    """Refuse a folder that is a symbolic link: what is written must not land elsewhere.

    Raises:
        OSError: it is one.
    """
    if folder.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))


def make_private_folder(folder: Path) -> None:
    """Make the folder with its parents; each that is made here is its owner's alone, whatever the umask.

    It is on disc when this returns: a power cut does not take it away, nor what is synced in it.

    Raises:
        OSError: it cannot be made, or something else stands there.
    """
    missing = list(takewhile(lambda each: not os.path.lexists(each), (folder, *folder.parents)))
    for each in (*reversed(missing), folder):
        _make_folder(each)
    for each in missing:
        sync_folder(each.parent)


def make_ignored_folder(folder: Path) -> None:
    """The same; one that is made here holds a `.gitignore`, so that nothing in it is committed by mistake.

    Raises:
        OSError: it cannot be made, or something else stands there.
    """
    is_new = not os.path.lexists(folder)
    make_private_folder(folder)
    if is_new:
        with suppress(OSError), os.fdopen(new_private_file(folder / ".gitignore"), "w") as file:
            file.write("*\n")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700)
    except OSError:
        if not folder.is_dir():
            raise
        return
    if not _has(folder.stat(), 0o700):
        folder.chmod(0o700)


def sync_folder(folder: Path) -> None:
    """Bring the folder's names to the disc: a file that is synced is still lost where its name is.

    Raises:
        OSError: the disc refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> BinaryIO:
    """The file to be locked, made where it is missing, its owner's alone; no pipe in its place is waited for.

    Raises:
        OSError: it cannot be made, or a link or what is no file stands there.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    return file


def lock(file: IO[Any]) -> None:
    """Wait until nobody else has the file locked; from then on we do, until it is closed.

    Raises:
        OSError: the system, or the file's own, has no locks.
    """
    _lock(file, waits=True)


def try_lock(file: IO[Any]) -> bool:
    """The same without waiting; False where somebody else has it locked.

    Raises:
        OSError: see `lock`.
    """
    try:
        _lock(file, waits=False)
    except BlockingIOError:
        return False
    return True


def _lock(file: IO[Any], *, waits: bool) -> None:
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "this system has no locks of files")
    fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)


def make_private_file(path: Path) -> None:
    """Make the file where it is missing, its owner's alone; one that stands there stays as it is.

    Raises:
        OSError: it cannot be made, or not be written to.
    """
    os.close(_private(path, os.O_WRONLY | os.O_CREAT))


def new_private_file(path: Path) -> int:
    """Make a file that is its owner's alone, whatever the umask; returns its descriptor, to be written to.

    Raises:
        OSError: it cannot be made, or something stands there already, if only a link to nothing.
    """
    return _private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


@contextmanager
def new_whole_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that is its owner's alone: on disc with all that the block writes, gone where it raises.

    Its name is on disc once its folder is synced too.

    Raises:
        OSError: it cannot be made or written, or something stands there already.
    """
    descriptor = new_private_file(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:  # whatever it is, no half file is left; raised again
        with suppress(OSError):
            path.unlink()
        raise


def _private(path: str | Path, flags: int) -> int:
    is_new = not Path(path).exists()
    descriptor = os.open(path, flags, 0o600)
    # A umask may take the owner's rights too; a file system that has none to give is asked for nothing.
    if is_new and not _has(os.fstat(descriptor), 0o600):
        os.fchmod(descriptor, 0o600)
    return descriptor


def _has(found: os.stat_result, mode: int) -> bool:
    return found.st_mode & mode == mode
