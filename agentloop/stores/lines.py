"""A session's line in the list: what appends make of it, how the discs hold it, what its log must say.

Each rule here is that of all stores: those in memory and in a SQLite file apply a `LineChange` by `changed`,
the one in PostgreSQL hands its fields to a statement that says the same. Rows of both become values here, in
one place, and a log that is looked through is held against its line (`LogCheck`).
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

from agentloop._plumbing.checks import shown
from agentloop._plumbing.strict_json import joined
from agentloop.bounds import MOST_RECORD_BYTES
from agentloop.codec import decode
from agentloop.errors import DamagedError, UsageError
from agentloop.events import Described, Event, Record
from agentloop.stores.base import Checkpoint, Lease, SessionInfo, SessionScope, holds_media, trunk_of

__all__ = [
    "COLUMNS",
    "LineChange",
    "change_of",
    "changed",
    "check_gapless",
    "incomplete",
    "line_from",
    "line_of",
    "list_statements",
    "newest_first",
    "of_trunk",
    "place_of",
    "record_of",
    "to_bytes",
    "to_text",
    "whole_line",
]
T = TypeVar("T")
COLUMNS = "id, title, folder, created, updated, length, owner, ttl_seconds"
"""The columns of a line, as `line_of` takes them."""
CHECKPOINT_COLUMNS = "seq, event_id, body"
LEASE_COLUMNS = "holder, place, pid, started, since"
ROWS_AT_ONCE = 1_000
"""So many records are taken into memory at once where a log is looked through in pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """What events make of the line of their session, once they are appended to its log.

    None leaves what was; a time to live of 0 takes it off. `first` is the time of the first of them,
    `updated` the latest, `added` their number.
    """

    first: float
    updated: float
    added: int
    title: str | None = None
    folder: str | None = None
    owner: str | None = None
    ttl_seconds: float | None = None


def change_of(events: Sequence[Event]) -> LineChange:
    """What these events, one or more, make of the line; of what is said twice, the later holds."""
    said = [event for event in events if isinstance(event, Described)]
    return LineChange(
        first=float(events[0].time),
        updated=max(float(event.time) for event in events),
        added=len(events),
        title=_as_logged(_last([each.title for each in said])),
        folder=_as_logged(_last([each.folder for each in said])),
        owner=_as_logged(_last([each.owner for each in said])),
        ttl_seconds=_last([_ttl(each.ttl_seconds) for each in said]),
    )


def changed(line: SessionInfo | None, session_id: str, change: LineChange) -> SessionInfo:
    """The session's line after that change; `line` is None for a log that begins with it.

    A clock that was set back takes nothing away: a session is as new as the latest of its records, and no
    sweep takes it for older.
    """
    before = line or SessionInfo(
        id=session_id, title=None, folder=None, created=change.first, updated=change.first, length=0
    )
    return SessionInfo(
        id=before.id,
        title=_last([before.title, change.title]),
        folder=_last([before.folder, change.folder]),
        created=before.created,
        updated=max(before.updated, change.updated),
        length=before.length + change.added,
        owner=_last([before.owner, change.owner]),
        ttl_seconds=_last([before.ttl_seconds, change.ttl_seconds]) or None,
    )


def line_from(session_id: str, records: Iterable[Record]) -> SessionInfo | None:
    """The line that stands for the log of these records; None for none."""
    line = None
    for record in records:
        line = changed(line, session_id, change_of([record.event]))
    return line


def newest_first(lines: Iterable[SessionInfo | None], scope: SessionScope) -> tuple[SessionInfo, ...]:
    """The sessions asked about, newest update first; None stands for a damaged line."""
    asked_for = [line for line in lines if line and scope.takes(line)]
    return tuple(sorted(asked_for, key=lambda line: (-line.updated, line.id)))


def of_trunk(lines: Iterable[SessionInfo], branches_of: str | None) -> tuple[SessionInfo, ...]:
    """Those of the lines that are of branches of that session; without one, of sessions themselves."""
    return tuple(line for line in lines if trunk_of(line.id) == branches_of and not holds_media(line.id))


def _last(said: Sequence[T | None]) -> T | None:
    return next((each for each in reversed(said) if each is not None), None)


def _as_logged(text: str | None) -> str | None:
    """The text as its record says it when it is read again."""
    return None if text is None else joined(text)


def _ttl(seconds: float | None) -> float | None:
    """The time to live as it is kept: 0 where what is said is none."""
    if seconds is None:
        return None
    return float(seconds) if 0 < seconds <= sys.float_info.max else 0.0


def to_bytes(text: str | None) -> bytes | None:
    """The text in UTF-8, lone surrogates as they are: the names of folders may hold some."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def to_text(data: bytes | None) -> str | None:
    """What `to_bytes` made bytes of.

    Raises:
        UnicodeDecodeError: somebody else wrote them.
    """
    return None if data is None else data.decode("utf-8", "surrogatepass")


def list_statements(lines: str, folder: str, owner: str) -> dict[tuple[bool, bool], str]:
    """What lists are asked for with, by whether a folder and an owner are given.

    `lines` selects all of them, `folder` and `owner` are the conditions; a value that is given comes in that
    order.
    """
    return {
        (False, False): lines,
        (True, False): f"{lines} WHERE {folder}",
        (False, True): f"{lines} WHERE {owner}",
        (True, True): f"{lines} WHERE {folder} AND {owner}",
    }


def line_of(label: str, row: Sequence[Any]) -> SessionInfo:
    """What a row of `COLUMNS` says, its texts as text or by `to_bytes`; `label` is how the store is called.

    Raises:
        DamagedError: somebody else wrote into it what no store does.
    """
    name, *texts, created, updated, length, owner, ttl = row
    try:
        title, folder, owner = (_as_text(text) for text in (*texts, owner))
        numbers = (created, updated) if ttl is None else (created, updated, ttl)
        if not all(isinstance(number, float) and math.isfinite(number) for number in numbers):
            raise TypeError("a number is none")
        if not (isinstance(name, str) and isinstance(length, int)):
            raise TypeError("the id or the length is none")
    except (TypeError, UnicodeDecodeError) as error:
        entry = f"the entry of session {ascii(name)[:60]}"
        raise DamagedError(f"{_before(label)}{entry} is damaged: restore a copy") from error
    return SessionInfo(
        id=name,
        title=title,
        folder=folder,
        created=created,
        updated=updated,
        length=length,
        owner=owner,
        ttl_seconds=ttl,
    )


def whole_line(label: str, row: Sequence[Any]) -> SessionInfo | None:
    """The same; None where it is damaged: it can be made anew from the log."""
    return if_whole(partial(line_of, label, row))


def if_whole(read: Callable[[], T]) -> T | None:
    """What is read; None where it is damaged, which hides no other: who reads or checks the log is told."""
    try:
        return read()
    except DamagedError:
        return None


def checkpoint_of(row: Sequence[Any]) -> Checkpoint | None:
    """The checkpoint in a row of `CHECKPOINT_COLUMNS`; None where it is damaged, as the log can do without.

    Whether its text is whole is for its reader: it holds a sum of itself.
    """
    seq, event_id, body = row
    try:
        return Checkpoint(seq=seq, event_id=_as_text(event_id), body=_as_text(body))
    except (TypeError, UnicodeDecodeError, UsageError):
        return None


def lease_of(row: Sequence[Any]) -> Lease | None:
    """The lease in a row of `LEASE_COLUMNS`; None where it is damaged, as it keeps nobody out then."""
    holder, place, pid, started, since = row
    try:
        texts = {"holder": _as_text(holder), "place": _as_text(place), "started": _as_text(started)}
        return Lease(pid=pid, since=since, **texts)
    except (TypeError, UnicodeDecodeError, UsageError):
        return None


def _as_text(text: Any) -> Any:
    """A text that is kept as one or by `to_bytes`; None for none."""
    if text is None or isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return to_text(text)
    raise TypeError("a text is none")


def record_of(label: str, session_id: str, seq: int, body: str | None) -> Record:
    """The record of that text; `label` is how the store is called, empty where the caller's caller says it.

    Raises:
        DamagedError: it is damaged, or None, which stands for a longer text than is read; with its place.
    """
    if body is None:
        most = f"more than {MOST_RECORD_BYTES // 1_000_000} MB"
        raise DamagedError(f"{place_of(label, session_id, seq)}: a record holds {most}: make it smaller")
    try:
        return Record(seq=seq, event=decode(body))
    except DamagedError as error:
        raise DamagedError(f"{place_of(label, session_id, seq)}: {error}") from error


def place_of(label: str, session_id: str, seq: int) -> str:
    """How a fault names the place of a record."""
    return f"{_before(label)}session {session_id!r}, record {seq}"


def _before(label: str) -> str:
    return f"{label}: " if label else ""


def check_gapless(
    label: str, session_id: str, seqs: Sequence[int], *, after: int, most: int | None, length: int
) -> None:
    """Refuse what was read behind `after`, at most `most`, of a log whose line says `length`, if some lacks.

    Raises:
        DamagedError: the positions read are not those that the line promises.
    """
    end = length if most is None else min(length, after + most)
    if len(seqs) != max(end - after, 0) or any(seq != at for at, seq in enumerate(seqs, after + 1)):
        raise incomplete(label, session_id, length)


def incomplete(label: str, session_id: str, length: object) -> DamagedError:
    """The fault of a log that holds other records than its line says."""
    return DamagedError(
        f"{_before(label)}the log of session {session_id!r} is damaged: it does not hold the "
        f"{ascii(length)[:20]} records that the list says: restore a copy"
    )


class LogCheck:
    """One log, looked through from its first record on, in as many pages as there are.

    `record_of` makes a record of a row, which begins with its position, or raises DamagedError with its
    place.
    """

    def __init__(self, label: str, session_id: str, record_of: Callable[..., Record]) -> None:
        self._place = f"{label}: session {session_id!r}"
        self._session_id = session_id
        self._record_of = record_of
        self._line: SessionInfo | None = None
        self._is_whole = True
        self.seq = 0

    def faults_of(self, rows: Iterable[Sequence[Any]]) -> list[str]:
        """A line for each record of the next rows that is missing or damaged."""
        faults = [fault for row in rows for fault in self._faults(row)]
        self._is_whole = self._is_whole and not faults
        return faults

    def faults_of_line(self, listed: SessionInfo | None) -> Iterator[str]:
        """A line where the list says what the whole log does not; `listed` is None where it says nothing."""
        if self._is_whole and listed != self._line:
            yield f"{self._place}: its line in the list says what its log does not{self._which(listed)}"

    def _faults(self, row: Sequence[Any]) -> Iterator[str]:
        if not isinstance(row[0], int):
            yield f"{self._place}: the position of a record is damaged: {shown(row[0])}"
            return
        if row[0] != self.seq + 1:
            yield f"{self._place}: records are missing before {row[0]}"
        self.seq = row[0]
        try:
            event = self._record_of(*row).event
        except DamagedError as error:
            yield str(error)
        else:
            self._line = changed(self._line, self._session_id, change_of([event]))

    def _which(self, listed: SessionInfo | None) -> str:
        if listed is None or self._line is None:
            return ": there is no line" if listed is None else ": there is no log"
        names = [each.name for each in fields(listed)]
        other = [name for name in names if getattr(listed, name) != getattr(self._line, name)]
        return f": {', '.join(other)}"
