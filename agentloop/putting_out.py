"""Work that another run puts out: it is cancelled, and that comes out as an error of its own.

Several pieces of work may go on side by side, each in a task of its own.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from agentloop.errors import TakenOverError


class PutOut:
    """Whether the work on a session was put out, and what ends it then."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.is_done = False
        self._has_cancelled: dict[asyncio.Task[object], bool] = {}
        """The tasks at work, and whether it is this that has cancelled each."""

    def now(self) -> None:
        """Put out the work that goes on, and all that would begin later."""
        self.is_done = True
        for task in self._has_cancelled:
            self._has_cancelled[task] = True
            task.cancel()

    @contextlib.contextmanager
    def ends(self) -> Iterator[None]:
        """Being put out ends what is done in the block.

        Raises:
            TakenOverError: it was put out, and nobody cancelled it beside.
        """
        task = asyncio.current_task()
        assert task
        if self.is_done:
            raise TakenOverError(self.session_id)
        self._has_cancelled[task], before = False, task.cancelling()
        try:
            yield
        except asyncio.CancelledError:
            if self._called_off(task) and task.cancelling() <= before:
                raise TakenOverError(self.session_id) from None
            raise
        finally:
            self._called_off(task)

    def _called_off(self, task: asyncio.Task[object]) -> bool:
        """Whether it cancelled the work, which from now on counts as not cancelled by that."""
        has_cancelled = self._has_cancelled.pop(task, False)
        if has_cancelled:
            task.uncancel()
        return has_cancelled
