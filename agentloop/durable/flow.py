"""A run as a durable workflow: its body does nothing but steps, so that it can be replayed anywhere."""

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from agentloop.durable.execution import CONFLICTS, Execution, Todo
from agentloop.durable.live import ElsewhereError, Live, Place
from agentloop.durable.orders import Order
from agentloop.errors import AgentLoopError, ConflictError, ModelUnavailableError, StoreError, TakenOverError
from agentloop.interrupts import is_ctrl_c
from agentloop.plain_values import error_text
from agentloop.races import MovedOnError
from agentloop.redaction import redact_error, redacted
from agentloop.results import status_of

_FOR_GOOD = (ConflictError, TakenOverError)

Deed: TypeAlias = Callable[[bool], Awaitable[Todo]]
"""What a step does; it is told whether this is the last try. What it raises before that may work later."""


class Steps(Protocol):
    """Does the steps of a run, each at least once, and keeps what they came to for who goes on with it."""

    def __call__(self, name: str, deed: Deed, /) -> Coroutine[Any, Any, Todo]:
        """What the step came to, once that is awaited; its place among the others is that of this call."""


class RunCancelledError(Exception):
    """Somebody cancelled the run; its next step says so."""


@dataclass(slots=True, kw_only=True)
class Flow:
    """What the workers of this process do with each run; `stopping` says that no more is to be begun."""

    place: Place
    steps: Steps
    stopping: bool = False
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
            await execution.note_cancelled()
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
                    made = todo.get("made", False)
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
        if self.stopping:
            raise asyncio.CancelledError("the worker stops")

    def _step(
        self, name: str, execution: Execution, work: Callable[[], Awaitable[Todo]]
    ) -> Coroutine[Any, Any, Todo]:
        # The end is noted also of a run that was put out.
        held = work if name == "end" else functools.partial(execution.live.done, work)
        return self.steps(name, _Deed(execution, held))


@dataclass(frozen=True, slots=True)
class _Deed:
    """A step's work whose failure is plain data, but for what may work later."""

    execution: Execution
    work: Callable[[], Awaitable[Todo]]

    async def __call__(self, is_last_try: bool, /) -> Todo:
        for _ in range(CONFLICTS):
            try:
                return await self.work()
            except MovedOnError as error:
                self.execution.live.look_again()
                last = error
            except Exception as error:  # every fault of a run has its word and its line, ours too
                self.execution.live.look_again()
                if may_work_later(error) and not is_last_try:
                    raise
                return self._failed(error)
            except BaseException as error:  # a model may raise what ends programs; what is meant to goes on
                if _is_meant(error):
                    raise
                self.execution.live.look_again()
                return self._failed(
                    AgentLoopError(f"ended by {error_text(error)}, which nobody here asked for")
                )
        return self._failed(last)

    def _failed(self, error: Exception) -> Todo:
        redact = self.execution.live.place.setting.redact
        redact_error(error, redact)
        text = str(redacted(str(error) or type(error).__name__, redact))
        clean = text.encode("utf-8", "replace").decode("utf-8")
        todo: Todo = {"do": "end", "status": status_of(error), "error": clean}
        return {**todo, "unwritten": True} if isinstance(error, StoreError) else todo


def _is_meant(error: BaseException) -> bool:
    """Whether somebody ends the step: by cancelling it, by going on with it elsewhere, or by Ctrl-C."""
    if isinstance(error, asyncio.CancelledError) and not isinstance(error, ElsewhereError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, ElsewhereError) or is_ctrl_c(error)


def may_work_later(error: BaseException) -> bool:
    """Whether the same step may do when it is tried again."""
    return isinstance(error, ModelUnavailableError | StoreError) and not isinstance(error, _FOR_GOOD)
