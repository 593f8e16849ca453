"""How values stand in the columns of a SQLite file, and what they are when they come back."""

from pathlib import Path
from typing import Any

from agentloop.errors import DamagedError
from agentloop.events import Record
from agentloop.stores import lines
from agentloop.stores.sqlite.schema import record_sum
from agentloop.stores.values import SessionInfo


def to_column(text: str | None) -> str | bytes | None:
    """Text; bytes where it holds lone surrogates, as the names of folders may that are not in UTF-8."""
    if text is None or text.isascii():
        return text
    data = lines.to_bytes(text)
    try:
        return data and data.decode()
    except UnicodeDecodeError:
        return data


def from_column(value: Any) -> Any:
    """What was stored by `to_column`; anything else comes back as it is."""
    return lines.to_text(value) if isinstance(value, bytes) else value


def row_of(info: SessionInfo) -> tuple[Any, ...]:
    """The session's line as a row of the columns `lines.COLUMNS`."""
    title, folder, owner = map(to_column, (info.title, info.folder, info.owner))
    return info.id, title, folder, info.created, info.updated, info.length, owner, info.ttl_seconds


def record_of(path: Path, session_id: str, seq: int, body: Any, total: int | None) -> Record:
    """The record of this row; `total` is its sum, None on one from before there were sums.

    Raises:
        DamagedError: it is damaged; the text names its place.
    """
    damage = _damage(session_id, seq, body, total)
    if damage:
        raise DamagedError(f"{lines.place_of(str(path), session_id, seq)}: damaged record: {damage}")
    return lines.record_of(str(path), session_id, seq, from_column(body))


def _damage(session_id: str, seq: Any, body: Any, total: int | None) -> str | None:
    """What is wrong with the columns themselves; None where they hold a text, whatever that says."""
    if not isinstance(seq, int):
        return "its position is none"
    if not isinstance(body, str | bytes):
        return "it is no text"
    if total is not None and total != record_sum(session_id, seq, body):
        return "its sum is another: restore a copy"
    try:
        from_column(body)
    except UnicodeDecodeError:
        return "no text"
    return None
