"""Work that another run puts out: it is cancelled, and that comes out as an error of its own.

Several pieces of work may go on side by side, each in a task of its own.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from agentloop.errors import StoreError


class PutOut:
    """Whether, and why, the work on a session was put out, and what ends it then."""

    def __init__(self) -> None:
        self.why: StoreError | None = None
        self._has_cancelled: dict[asyncio.Task[object], bool] = {}
        """The tasks at work, and whether it is this that has cancelled each."""

    def now(self, why: StoreError) -> None:
        """Put out the work that goes on, and all that would begin later; that is what ends it."""
        self.why = why
        for task in self._has_cancelled:
            self._has_cancelled[task] = True
            task.cancel()

    @contextlib.contextmanager
    def ends(self) -> Iterator[None]:
        """Being put out ends what is done in the block.

        Raises:
            StoreError: why it was put out, where nobody cancelled it beside.
        """
        task = asyncio.current_task()
        assert task
        if self.why is not None:
            raise self.why
        self._has_cancelled[task], before = False, task.cancelling()
        try:
            yield
        except asyncio.CancelledError:
            if self._called_off(task) and self.why is not None and task.cancelling() <= before:
                raise self.why from None
            raise
        finally:
            self._called_off(task)

    def _called_off(self, task: asyncio.Task[object]) -> bool:
        """Whether it cancelled the work, which from now on counts as not cancelled by that."""
        has_cancelled = self._has_cancelled.pop(task, False)
        if has_cancelled:
            task.uncancel()
        return has_cancelled
