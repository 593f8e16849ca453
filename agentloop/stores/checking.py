"""What is wrong with a log, and with the line that the list has of it: one rule for all stores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from agentloop._plumbing.checks import shown
from agentloop.errors import DamagedError
from agentloop.events import Record
from agentloop.stores.lines import change_of, changed
from agentloop.stores.values import SessionInfo

ROWS_AT_ONCE = 1_000
"""So many records are taken into memory at once where a log is looked through in pages."""


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
        self._newest = 0.0
        self._is_whole = True
        self.seq = 0

    def faults_of(self, rows: Iterable[Sequence[Any]]) -> Iterator[str]:
        """A line for each record of the next rows that is missing or damaged."""
        for row in rows:
            if not isinstance(row[0], int):
                self._is_whole = False
                yield f"{self._place}: the position of a record is damaged: {shown(row[0])}"
                continue
            for fault in self._faults(row):
                self._is_whole = False
                yield fault
            self.seq = row[0]

    def faults_of_line(self, listed: SessionInfo | None) -> Iterator[str]:
        """A line where the list says what the whole log does not; `listed` is None where it says nothing."""
        if self._is_whole and self._as_it_may_be(listed) != self._line:
            yield f"{self._place}: its line in the list says what its log does not{self._which(listed)}"

    def _as_it_may_be(self, listed: SessionInfo | None) -> SessionInfo | None:
        """The line with the latest time of all, where it has one that older versions may have left there.

        They put down the time of the newest record, which is not the latest where a clock was set back.
        """
        line = self._line
        if listed and line and self._newest <= listed.updated <= line.updated:
            return replace(listed, updated=line.updated)
        return listed

    def _faults(self, row: Sequence[Any]) -> Iterator[str]:
        if row[0] != self.seq + 1:
            yield f"{self._place}: records are missing before {row[0]}"
        try:
            event = self._record_of(*row).event
        except DamagedError as error:
            yield str(error)
        else:
            self._line = changed(self._line, self._session_id, change_of([event]))
            self._newest = float(event.time)

    def _which(self, listed: SessionInfo | None) -> str:
        if listed is None or self._line is None:
            return ": there is no line" if listed is None else ": there is no log"
        names = [each.name for each in fields(listed)]
        other = [name for name in names if getattr(listed, name) != getattr(self._line, name)]
        return f": {', '.join(other)}"
