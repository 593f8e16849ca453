"""What a worker tells whoever watches it: the events of its runs, and how its database stands."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from agentloop._plumbing.aio import is_ctrl_c
from agentloop._plumbing.host_logging import warn
from agentloop._plumbing.to_text import error_text
from agentloop.emitter import Hides, Sink, log_event
from agentloop.stream import AnyStreamEvent, CallbackFailed, RunEnded

Hears: TypeAlias = Callable[[str], None]
"""Takes one line for people."""


def drop_line(line: str) -> None:
    """For lines that nobody wants to hear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A sink of a user's own; one that raises is reported in the host's log, once a run and kind."""

    on_event: Sink
    redaction: Hides
    _reported: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, event: AnyStreamEvent) -> None:
        try:
            self.on_event(event)
        except BaseException as error:  # what a user's function raises is reported, as of any callback
            if is_ctrl_c(error):
                raise
            self._report(event, error)
        if isinstance(event, RunEnded):
            self._reported.difference_update([each for each in self._reported if each[0] == event.run_id])

    def _report(self, event: AnyStreamEvent, error: BaseException) -> None:
        kind = (event.run_id, type(error).__name__)
        if kind in self._reported:
            return
        self._reported.add(kind)
        failed = CallbackFailed(
            callback="on_event",
            point="on_event",
            error=error_text(error),
            session_id=event.session_id,
            run_id=event.run_id,
            time=time.time(),
        )
        log_event(self.redaction.hide(failed))


@dataclass(slots=True, kw_only=True)
class Notices:
    """Tells people how a worker's database stands: once that it cannot be used, once that it can again.

    And once that new runs go to workers of another version than its own, and what became of its runs when it
    was stopped.
    """

    worker: str
    hears: Hears
    _in_trouble: bool = False
    _said_newest: str | None = None

    def trouble(self, why: str) -> None:
        """Something does not work, and is tried again."""
        if not self._in_trouble:
            self.say(f"the worker cannot do its work, it tries again: {why}")
        self._in_trouble = True

    @contextlib.contextmanager
    def of_silence(self, seconds: float) -> Iterator[None]:
        """What is done in the block is trouble where it takes longer."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self.trouble, "the database does not answer")
        try:
            yield
        finally:
            timer.cancel()

    def over(self) -> None:
        """All works."""
        if self._in_trouble:
            self.say("the worker can do its work again")
        self._in_trouble = False

    def new_runs_go_to(self, newest: str, own: str) -> None:
        """It is of one version, and new runs go to that of the worker that started last."""
        if newest not in (own, self._said_newest):
            self.say(
                f"new runs go to workers of version {newest!r}, the last to start; "
                f"this one, of {own!r}, goes on with its own"
            )
        self._said_newest = newest

    def say(self, line: str) -> None:
        """Tell them this line, whatever it is that hears it."""
        try:
            self.hears(line)
        except BaseException as error:  # what a user's function raises is reported, as of any callback
            if is_ctrl_c(error):
                raise
            warn("notice_not_heard", worker=self.worker, error=error_text(error))
