"""Transcripts: the messages as they were before a compaction, one chat-completions message a line.

A file `transcript_<epoch>.jsonl` is whole or not there: it is written beside under another name, synced,
and linked into place, which fails where anything stands already. Files are 0600, a folder made here 0700.
What a writer that was killed left beside goes when a transcript is saved a day later.

A session has one, which grows: before a later compaction is appended what it lacks, and synced. A writer that
is killed meanwhile leaves a torn end, which the next one completes; what stood there is not touched.

A file system without hard links leaves one gap: the name is taken by an empty file, which the whole one then
replaces. A writer killed between the two leaves the empty file; no compaction has named it yet.
"""

import errno
import json
import os
import stat
import time
import uuid
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.private_files import (
    make_ignored_folder,
    new_private_file,
    new_whole_file,
    refuse_link,
    refused,
    sync_folder,
    try_lock,
)
from agentloop.bounds import MOST_RECORD_BYTES
from agentloop.errors import StoreError
from agentloop.messages import Message

_NAME = pattern(r"transcript_(-?\d+)(?:-(\d+))?\.jsonl")
_READABLE = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": "))
_ASCII = json.JSONEncoder(separators=(", ", ": "))
_NOT_READABLE = pattern("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What UTF-8 cannot say, and what some readers take for the end of a line."""

DEAD_AFTER_SECONDS = 86_400.0
"""A file beside that nobody has written to for so long belongs to a writer that is dead."""

_BESIDE = pattern(r"\.transcript_-?\d+\.[0-9a-f]{32}\.tmp")
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a transcript gave: its messages, how many lines were unreadable, and that in words."""

    messages: tuple[Message, ...]
    damaged: int = 0
    warning: str | None = None


def save(folder: Path, messages: Iterable[Message], *, epoch: int) -> Path:
    """Write a transcript and return its path once it is on disc, complete; blocks, so run it in a thread.

    `epoch` is the time in whole seconds since 1970, which names the file; further ones of the same second
    end in `-2`, `-3` and so on. Nothing that stands there is ever overwritten. Messages are written as they
    come, so that no more than one of them is held here as text.

    Raises:
        StoreError: it could not be written, or the folder is a symbolic link.
    """
    try:
        make_ignored_folder(folder)
        refuse_link(folder)
        _sweep(folder, before=time.time() - DEAD_AFTER_SECONDS)
        return _write(folder, messages, epoch)
    except OSError as error:
        raise refused(folder, error) from error


def grow(folder: Path, name: str, messages: Iterable[Message]) -> bool:
    """Append to a transcript of the folder what it lacks of these messages; whether it holds just them now.

    What it holds is synced then. Where it is not there, the name is no transcript's, it holds anything but
    their beginning, byte for byte, somebody else appends to it, or the disc refuses, it is as it was. Blocks,
    so run it in a thread.
    """
    if not _NAME.fullmatch(name):
        return False
    with suppress(OSError):
        refuse_link(folder)
        with open(folder / name, "r+b", opener=_regular) as file:
            return try_lock(file) and _grown(file, (f"{_line(message)}\n".encode() for message in messages))
    return False


def transcripts_in(folder: Path) -> tuple[Path, ...]:
    """The transcripts of a folder, newest last; none for a folder that is not there.

    Raises:
        StoreError: the folder cannot be read.
    """
    names = filter(None, map(_NAME.fullmatch, files_in(folder)))
    found = sorted((int(name[1]), int(name[2] or 1), name[0]) for name in names)
    return tuple(folder / name for _, _, name in found)


def files_in(folder: Path) -> Sequence[str]:
    """The names of the files in a folder, no links among them; none for a folder that is not there.

    Raises:
        StoreError: the folder cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise refused(folder, error) from error


def load(path: Path) -> Loaded:
    """The messages of a transcript; lines that cannot be read are passed over and counted.

    Raises:
        StoreError: the file itself cannot be read.
    """
    found = list(records_in(path))
    messages = tuple(record for record in found if record is not None)
    damaged = len(found) - len(messages)
    some = "1 damaged line was" if damaged == 1 else f"{damaged} damaged lines were"
    return Loaded(
        messages=messages,
        damaged=damaged,
        warning=f"{path}: {some} passed over, {len(messages)} read" if damaged else None,
    )


def records_in(path: Path) -> Iterator[Message | None]:
    """The messages of a transcript, read as they are asked for; None for a line that cannot be read.

    Raises:
        StoreError: the file itself cannot be read.
    """
    try:
        with path.open("rb") as file:
            mark = file.read(len(BOM_UTF8))
            file.seek(len(mark) if mark == BOM_UTF8 else 0)
            while line := file.readline(MOST_RECORD_BYTES):
                if line.strip():
                    yield _record(line)
    except OSError as error:
        raise refused(path, error) from error


def _line(message: Message) -> str:
    data = message.to_openai()
    try:
        line = _READABLE.encode(data)
        return _ASCII.encode(data) if _NOT_READABLE.search(line) else line
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"a message of role {message.role!r} cannot be written as JSON: {error}") from error


def _regular(path: str, flags: int) -> int:
    """Open a file that is one, and no link or pipe; anything else is not there."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise FileNotFoundError(path)
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _grown(file: BinaryIO, lines: Iterator[bytes]) -> bool:
    for line in lines:
        held = file.read(len(line))
        if held != line:
            return line.startswith(held) and not file.read(1) and _append(file, line[len(held) :], lines)
    return not file.read(1) and _append(file, b"", lines)


def _append(file: BinaryIO, rest: bytes, lines: Iterator[bytes]) -> bool:
    """Append these, and sync all: a writer that was killed may have left what it had not synced."""
    size = file.tell()
    try:
        with open(file.fileno(), "ab", closefd=False) as end:
            end.write(rest)
            end.writelines(lines)
            end.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            os.truncate(file.fileno(), size)
        raise
    return True


def _sweep(folder: Path, *, before: float) -> None:
    """Remove what writers left that died before that time; who cannot be removed stays."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if _BESIDE.fullmatch(entry.name):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        Path(entry).unlink()


def _write(folder: Path, messages: Iterable[Message], epoch: int) -> Path:
    beside = folder / f".transcript_{epoch}.{uuid.uuid4().hex}.tmp"
    try:
        with new_whole_file(beside) as file:
            file.writelines(f"{_line(message)}\n".encode() for message in messages)
        path = _placed(beside, folder, epoch)
    finally:
        with suppress(OSError):
            beside.unlink()
    sync_folder(folder)
    return path


def _placed(beside: Path, folder: Path, epoch: int) -> Path:
    """Give the file the first name that is free."""
    path, number = folder / f"transcript_{epoch}.jsonl", 1
    while True:
        try:
            _link(beside, path)
        except FileExistsError:
            number += 1
            path = folder / f"transcript_{epoch}-{number}.jsonl"
        else:
            return path


def _link(beside: Path, path: Path) -> None:
    try:
        os.link(beside, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _move(beside, path)


def _move(beside: Path, path: Path) -> None:
    """Place it on a file system without hard links: take the name first, then move the whole file onto it."""
    os.close(new_private_file(path))
    try:
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise


def _record(line: bytes) -> Message | None:
    """The message of one line; None for what is none."""
    try:
        return Message.from_openai(json.loads(line))
    except (ValueError, RecursionError):
        return None
