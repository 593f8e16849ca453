"""The scripted session of the kill tests on PostgreSQL, whose server is killed while the session goes on.

`python -m tests.kill_postgres` is the warm process. It forks one worker at a time, which the test leads:
`begin` brings it to a moment, `end` lets it go on from there and waits for its end.
"""

import time
from functools import partial
from pathlib import Path

from agentloop.stores import PostgresStore
from tests.kill_kit import HANGS, Worker, led, serve
from tests.kill_world import Journal, Json, World, hooked


class JournalledPostgres(Journal, PostgresStore):
    """PostgreSQL, watched."""


class Lead:
    """Leads one worker after the other."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._said: Json | None = None
        self._began = 0.0

    def __call__(self, asked: Json) -> Json:
        """What came of it."""
        return self._begin(asked) if "folder" in asked else self._end()

    def _begin(self, asked: Json) -> Json:
        moment = asked.get("moment")
        store = partial(JournalledPostgres, asked["url"], retry_seconds=asked["retry_seconds"])
        hold = moment if isinstance(moment, list) else None
        self._worker = Worker(World(Path(asked["folder"]), store=store, hold=hold), hooked)
        self._said, seconds = led(self._worker, moment)
        self._began = time.monotonic() - seconds
        return self._said or {}

    def _end(self) -> Json:
        assert self._worker
        self._worker.go_on()
        while self._said is None or "ended" not in self._said:
            self._said = self._worker.next() or HANGS
        self._worker.kill()
        return self._said | {"seconds": time.monotonic() - self._began}


if __name__ == "__main__":
    serve(Lead())
