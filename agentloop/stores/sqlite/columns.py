"""How values stand in the columns of a SQLite file, and what they are when they come back."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentloop.codec import decode
from agentloop.errors import StoreError
from agentloop.events import Record
from agentloop.stores.base import SessionInfo
from agentloop.stores.sqlite.schema import record_sum

INFO = "id, title, folder, created, updated, length, owner, ttl_seconds"
"""The columns of a line of the list, as `info_of` takes them."""


def to_column(text: str | None) -> str | bytes | None:
    """Text; bytes where it holds lone surrogates, as the names of folders may that are not in UTF-8."""
    if text is None or text.isascii():
        return text
    data = text.encode("utf-8", "surrogatepass")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def from_column(value: Any) -> Any:
    """What was stored by `to_column`; anything else comes back as it is."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def row_of(info: SessionInfo) -> tuple[Any, ...]:
    """The session's line as a row of the columns `INFO`."""
    title, folder, owner = map(to_column, (info.title, info.folder, info.owner))
    return info.id, title, folder, info.created, info.updated, info.length, owner, info.ttl_seconds


def info_of(row: Sequence[Any], path: Path) -> SessionInfo:
    """What a row of the columns `INFO` says.

    Raises:
        StoreError: somebody else wrote into it what this program never does.
    """
    name, title, folder, created, updated, length, owner, ttl = row
    try:
        texts = [name, *(from_column(text) or "" for text in (title, folder, owner))]
    except UnicodeDecodeError:
        texts = [None]
    whole = all(isinstance(text, str) for text in texts) and isinstance(length, int)
    numbers = (created, updated) if ttl is None else (created, updated, ttl)
    if not whole or not all(isinstance(number, float) and math.isfinite(number) for number in numbers):
        shown = ascii(name)[:60]
        raise StoreError(f"{path}: the entry of session {shown} is damaged: restore a copy")
    return SessionInfo(
        id=name,
        title=from_column(title),
        folder=from_column(folder),
        created=created,
        updated=updated,
        length=length,
        owner=from_column(owner),
        ttl_seconds=ttl,
    )


def record_of(path: Path, session_id: str, seq: int, body: Any, total: int | None) -> Record:
    """The record of this row; `total` is its sum, None on one from before there were sums.

    Raises:
        StoreError: it is damaged; the text names its place.
    """
    try:
        if not isinstance(body, str | bytes):
            raise StoreError("damaged record: it is no text")
        if total is not None and total != record_sum(session_id, seq, body):
            raise StoreError("damaged record: its sum is another: restore a copy")
        return Record(seq=seq, event=decode(from_column(body)))
    except UnicodeDecodeError as error:
        raise StoreError(f"{path}: session {session_id!r}, record {seq}: damaged record: no text") from error
    except StoreError as error:
        raise StoreError(f"{path}: session {session_id!r}, record {seq}: {error}") from error
