"""A run as a durable workflow: its body does nothing but steps, so that it can be replayed anywhere."""

import asyncio
import contextlib
import functools
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from agentloop._plumbing.aio import is_ctrl_c, is_leaked
from agentloop._plumbing.host_logging import warn
from agentloop._plumbing.to_text import strict, told_by
from agentloop.durable.execution import CONFLICTS, Execution, Todo
from agentloop.durable.holding import ElsewhereError
from agentloop.durable.live import Live, Place
from agentloop.durable.orders import Order, RunCancelledError
from agentloop.durable.tries import RETRY_SECONDS, may_work_later, pause_after
from agentloop.errors import AgentLoopError, StoreError
from agentloop.redaction import redact_error, redacted
from agentloop.results import status_of, unasked
from agentloop.sessions import MovedOnError

Deed: TypeAlias = Callable[[], Awaitable[Todo]]
"""What a step does; whatever fails in it is plain data too."""


class Steps(Protocol):
    """Does the steps of a run, each at least once, and keeps what they came to for who goes on with it."""

    def __call__(self, name: str, deed: Deed, /) -> Coroutine[Any, Any, Todo]:
        """What the step came to, once that is awaited; its place among the others is that of this call."""


@dataclass(slots=True, kw_only=True)
class Flow:
    """What the workers of this process do with each run.

    A step whose server or database is away is tried again after `retry_seconds`, see `tries`.
    """

    place: Place
    steps: Steps
    retry_seconds: float = RETRY_SECONDS
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: dict[str, "asyncio.Task[Any]"] = field(default_factory=dict)

    async def run(self, run_id: str, order: str) -> dict[str, Any]:
        """Do one run to its end; what it came to.

        Raises:
            RunCancelledError: it was cancelled.
        """
        task = asyncio.current_task()
        assert task is not None
        self.under_way[run_id] = task
        data = json.loads(order)
        wanted = Order.from_json(data)
        live = Live(place=self.place, order=wanted, run_id=run_id, submitted=data["submitted"])
        execution = Execution(live=live)
        try:
            return await self._all_steps(execution)
        except RunCancelledError:
            await execution.note_end("interrupted", "cancelled")
            raise
        except asyncio.CancelledError:
            if self._stopping.is_set():
                await live.hand_over()
            raise
        except Exception as error:  # DBOS failed at a step: for DBOS the run is over too; raised again
            await execution.note_end("failed", told_by(error))
            raise
        finally:
            if self.under_way.get(run_id) is task:
                del self.under_way[run_id]
            await live.let_go()

    def stop(self, runs: Iterable[str]) -> None:
        """End what is done of these runs here."""
        for run_id in runs:
            if (task := self.under_way.get(run_id)) is not None:
                task.cancel()

    def begin_no_more(self) -> None:
        """From now on no step is begun, nor waited to be tried again; the runs are to be handed back."""
        self._stopping.set()

    async def pause(self, seconds: float) -> None:
        """Wait before a step is tried again, unless the worker is about to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        self._may_go_on()

    async def _all_steps(self, execution: Execution) -> dict[str, Any]:
        self._may_go_on()
        todo = await self._step("begin", execution, execution.begin)
        execution.live.since = todo.get("since", 0)
        while todo["do"] != "end":
            match todo["do"]:
                case "make_room":
                    self._may_go_on()
                    todo = await self._step("make_room", execution, execution.make_room)
                case "tools":
                    todo = await self._tools(execution, todo)
                case _:
                    self._may_go_on()
                    made = todo.get("made", "")
                    todo = await self._step("ask", execution, functools.partial(execution.ask, made))
        return await self._step("end", execution, functools.partial(execution.end, todo))

    async def _tools(self, execution: Execution, todo: Todo) -> Todo:
        """All calls side by side, each a step of its own, begun in call order; the compact tool after."""
        share = len(todo["calls"]) + len(todo["compact"])
        works = [
            self._step(
                f"tool {call_id}", execution, functools.partial(execution.call, call_id, share, todo["by"])
            )
            for call_id in todo["calls"]
        ]
        # All are waited for, since the first to fail would leave the others behind.
        results = await asyncio.gather(*works, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
            if result.get("do") == "end":
                return result
        if not todo["compact"]:
            return {"do": "ask"}
        return await self._step("compact", execution, functools.partial(execution.compact, todo["compact"]))

    def _may_go_on(self) -> None:
        """End here, the run being handed back, where the worker is about to stop."""
        if self._stopping.is_set():
            raise asyncio.CancelledError("the worker stops")

    def _step(
        self, name: str, execution: Execution, work: Callable[[], Awaitable[Todo]]
    ) -> Coroutine[Any, Any, Todo]:
        # The end is noted also of a run that was put out.
        held = work if name == "end" else functools.partial(execution.live.done, work)
        return self.steps(_clean(name), _Deed(self, execution, held))


@dataclass(frozen=True, slots=True)
class _Deed:
    """A step's work whose failure is plain data, but for what may work later."""

    flow: Flow
    execution: Execution
    work: Callable[[], Awaitable[Todo]]

    async def __call__(self) -> Todo:
        tries = 0
        while True:
            try:
                return await self._tried()
            except AgentLoopError as error:
                tries += 1
                pause = pause_after(tries, error, retry_seconds=self.flow.retry_seconds)
                if pause is None:
                    return self._failed(error)
                self._warn(error, pause)
            await self.flow.pause(pause)

    async def _tried(self) -> Todo:
        """What the step comes to, its failure too.

        Raises:
            AgentLoopError: it failed, and may work later.
        """
        for _ in range(CONFLICTS):
            try:
                return await self.work()
            except MovedOnError as error:
                self.execution.live.distrust()
                last = error
            except Exception as error:  # every fault of a run has its word and its line, ours too
                self.execution.live.distrust()
                if may_work_later(error):
                    raise
                return self._failed(error)
            except BaseException as error:  # a model may raise what ends programs; what is meant to goes on
                if _is_meant(error):
                    raise
                self.execution.live.distrust()
                return self._failed(unasked(error))
        return self._failed(last)

    def _warn(self, error: AgentLoopError, pause: float) -> None:
        live = self.execution.live
        words = redacted(told_by(error), live.place.setting.redact)
        warn("step_to_be_tried_again", run_id=live.run_id, error=words, after_seconds=pause)

    def _failed(self, error: Exception) -> Todo:
        redact = self.execution.live.place.setting.redact
        redact_error(error, redact)
        text = str(redacted(told_by(error), redact))
        todo: Todo = {"do": "end", "status": status_of(error), "error": strict(text)}
        return {**todo, "unwritten": True} if isinstance(error, StoreError) else todo


def _is_meant(error: BaseException) -> bool:
    """Whether somebody ends the step: by cancelling it, by going on with it elsewhere, or by Ctrl-C."""
    if isinstance(error, asyncio.CancelledError) and not isinstance(error, ElsewhereError):
        return not is_leaked(error)
    return isinstance(error, ElsewhereError) or is_ctrl_c(error)


def _clean(name: str) -> str:
    """A step's name as a database can hold it: the id of a call is whatever a server made it."""
    return "".join(each if each.isprintable() else "?" for each in name)
