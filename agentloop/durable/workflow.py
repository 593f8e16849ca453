"""The steps of the loop as steps of a workflow, each harmless when done again.

`Workflow.run` is what a worker does with one run: it gives `run.loop` the steps of `WorkflowSteps`. Each is
recorded by DBOS with what is to be done next, and what stands recorded is not done again. What a step does
stands in `Execution`, on the run and the session that `HeldRun` keeps from one step to the next.

The log is the truth. A step that is done again, by this worker or another that took the run over, first
looks whether its effect stands in the log; then it does nothing. What was in flight at a kill is known by the
execution that the recorded step before it names: if that is another one, only an idempotent tool runs again.
"""

import asyncio
import contextlib
import functools
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict

from agentloop._plumbing.aio import is_ctrl_c, is_leaked, to_its_end
from agentloop._plumbing.host_logging import warn
from agentloop._plumbing.to_text import strict, words_of
from agentloop.context import AskModel, Finish, RunTools, cut_short_by
from agentloop.durable.held_run import HeldRun, WorkPlace
from agentloop.durable.leases import ElsewhereError
from agentloop.durable.orders import Order
from agentloop.durable.run_log import has_ended, partial_in, says_prompt
from agentloop.emitter import Hides
from agentloop.errors import (
    AgentLoopError,
    ConflictError,
    ModelUnavailableError,
    StoreError,
    TakenOverError,
    UsageError,
)
from agentloop.events import Event, MessageRecord
from agentloop.messages import Usage
from agentloop.redaction import Redaction
from agentloop.results import as_run_failure, status_of
from agentloop.run import (
    NextStep,
    Run,
    answer_one,
    approvals_in,
    ask_model,
    compact,
    interrupted_record,
    loop,
    may_run_again,
    output_of,
    settle_and_say,
    split_off_compact,
)
from agentloop.sessions import MovedOnError
from agentloop.stream import LimitName, RunStatus, ToolEnded


class StepResult(TypedDict, total=False):
    """What a step came to, and what is to be done next: plain data, which DBOS keeps.

    - `do` is to be done next
    - `since`, of the beginning: its position in the log
    - `made`, of a compaction: the execution that made room, see `Execution.ask`
    - `calls` and `compact`, of an answer: the ids of the calls to run, those of the compact tool apart
    - `by`, of an answer: the execution that is to run them, see `Execution.call`
    - `interrupted`, of a call: its id, where it was in flight at a kill and did not run again
    - `status`, `error`, `reason` and `limit` (see `RunResult`), of an end; `unwritten` where no log takes it
    - `usage` and `cost`, of the end: what the run spent
    """

    do: NextStep
    since: int
    made: str
    calls: list[str]
    compact: list[str]
    by: str
    interrupted: str
    status: RunStatus
    reason: str
    limit: LimitName
    error: str | None
    unwritten: bool
    usage: dict[str, int]
    cost: float | None


StepWork: TypeAlias = Callable[[], Awaitable[StepResult]]
"""What a step does."""


class RunCancelledError(Exception):
    """Somebody cancelled the run; its next step says so."""


TRIES = 5
"""So often a step is tried, with waits that double from the first (2, 4, 8, 16 s), on top of the model's own
retries. The waits are ours, within the step: those of DBOS notice neither that the run was cancelled nor that
the worker is asked to stop."""

RETRY_SECONDS = 2.0

LONGEST_ADVICE_SECONDS = 600.0
"""A server that asks for a longer wait ends the run, which keeps its place meanwhile. Our own figure."""

_FOR_GOOD = (ConflictError, TakenOverError)


def may_work_later(error: BaseException) -> bool:
    """Whether the same step may do when it is tried again."""
    return isinstance(error, ModelUnavailableError | StoreError) and not isinstance(error, _FOR_GOOD)


def retry_pause(tries: int, error: BaseException, *, retry_seconds: float) -> float | None:
    """How long to wait after so many tries, in seconds, as the server asks; None where it was the last one.

    >>> [retry_pause(tries, ModelUnavailableError("away"), retry_seconds=2.0) for tries in range(1, 6)]
    [2.0, 4.0, 8.0, 16.0, None]
    >>> retry_pause(1, ModelUnavailableError("busy", retry_after_seconds=90), retry_seconds=2.0)
    90
    """
    advice = (error.retry_after_seconds if isinstance(error, ModelUnavailableError) else None) or 0.0
    if tries >= TRIES or advice > LONGEST_ADVICE_SECONDS:
        return None
    return max(retry_seconds * 2.0 ** (tries - 1), advice)


CONFLICTS = 5
"""So often in a row somebody else may write to the log before a step gives up."""


Recorder: TypeAlias = Callable[[str, StepWork], Coroutine[Any, Any, StepResult]]
"""Does the steps of a run, by name, each at least once; keeps what they came to for who goes on with it.

What a step came to is awaited; its place among the others is that of the call.
"""


@dataclass(slots=True, kw_only=True)
class Workflow:
    """What the workers of this process do with each run, at the place that its session has.

    A step whose server or database is away is tried again after `retry_seconds`, see `retry_pause`.
    """

    place_of: Callable[[str], WorkPlace]
    record: Recorder
    redaction: Hides = field(default_factory=Redaction)
    retry_seconds: float = RETRY_SECONDS
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: dict[str, "asyncio.Task[Any]"] = field(default_factory=dict)

    async def run(self, run_id: str, order: str) -> StepResult:
        """Do one run to its end; what it came to.

        Raises:
            RunCancelledError: it was cancelled.
        """
        try:
            wanted = Order.from_text(order)
            place = self.place_of(wanted.session_id)
        except UsageError as error:
            return {"status": status_of(error), "error": self.redaction.hide(words_of(error))}
        task = asyncio.current_task()
        assert task is not None
        self.under_way[run_id] = task
        held = HeldRun(place=place, order=wanted, run_id=run_id)
        execution = Execution(held=held)
        try:
            model, carrier = place.config.agent.model.name, wanted.carrier
            async with held.emitter().around("run", model, carrier=carrier) as outcome:
                result = await loop(WorkflowSteps(workflow=self, execution=execution))
                used = result.get("usage", {"input": 0, "output": 0})
                usage = Usage(input_tokens=used["input"], output_tokens=used["output"])
                outcome.value = held.ended(result["status"], usage, result.get("cost"), result.get("error"))
            return result
        except RunCancelledError:
            await execution.note_end("interrupted", "cancelled")
            raise
        except asyncio.CancelledError:
            if self._stopping.is_set():
                await held.hand_over()
            raise
        except Exception as error:  # DBOS failed at a step: for DBOS the run is over too; raised again
            held.redaction.hide_in(error)
            await execution.note_end("failed", words_of(error))
            raise
        finally:
            if self.under_way.get(run_id) is task:
                del self.under_way[run_id]
            await held.let_go()

    def stop(self, runs: Iterable[str]) -> None:
        """End what is done of these runs here."""
        for run_id in runs:
            if (task := self.under_way.get(run_id)) is not None:
                task.cancel()

    def begin_no_more(self) -> None:
        """From now on no step is begun, nor waited to be tried again; the runs are to be handed back."""
        self._stopping.set()

    def check_goes_on(self) -> None:
        """End here, the run being handed back, where the worker is about to stop."""
        if self._stopping.is_set():
            raise asyncio.CancelledError("the worker stops")

    async def pause(self, seconds: float) -> None:
        """Wait before a step is tried again, unless the worker is about to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        self.check_goes_on()


@dataclass(slots=True, kw_only=True)
class WorkflowSteps:
    """The steps of one run for the loop, each recorded; what is to be done next is what the last one said."""

    workflow: Workflow
    execution: "Execution"
    _last: StepResult = field(default_factory=StepResult)
    """What the newest step came to."""

    async def open(self) -> NextStep:
        """Open the session and store that the run began, as one step."""
        self.workflow.check_goes_on()
        step = self._next(await self._record("begin", self.execution.begin))
        self.execution.held.since = self._last.get("since", 0)
        return step

    async def make_room(self) -> NextStep:
        """Compact, since the asking found that it is time to."""
        self.workflow.check_goes_on()
        return self._next(await self._record("make_room", self.execution.make_room))

    async def ask(self) -> NextStep:
        """Ask the model, or say that room is to be made before."""
        self.workflow.check_goes_on()
        work = functools.partial(self.execution.ask, self._last.get("made", ""))
        return self._next(await self._record("ask", work))

    async def run_tools(self) -> NextStep:
        """All calls side by side, each a step of its own, begun in call order; the compact tool after."""
        call_ids, to_compact, by = self._last["calls"], self._last["compact"], self._last["by"]
        share = len(call_ids) + len(to_compact)
        works = [
            self._record(f"tool {call_id}", functools.partial(self.execution.call, call_id, share, by))
            for call_id in call_ids
        ]
        # All are waited for, since the first to fail would leave the others behind.
        results = await asyncio.gather(*works, return_exceptions=True)
        ended: StepResult | None = None
        for result in results:
            if isinstance(result, BaseException):
                raise result
            if result.get("do") == "end" and (ended is None or ended["status"] == "needs_approval"):
                ended = result
        if to_compact and (ended is None or ended["status"] == "needs_approval"):
            work = functools.partial(self.execution.compact, to_compact)
            compacted = await self._record("compact", work)
            ended = ended or compacted
        return self._next(ended or {"do": "ask"})

    async def end(self) -> StepResult:
        """Store how the run ended; what it came to, as the queue shows it."""
        return await self._record("end", functools.partial(self.execution.end, self._last))

    def _next(self, result: StepResult) -> NextStep:
        self._last = result
        return result["do"]

    def _record(self, name: str, work: StepWork) -> Coroutine[Any, Any, StepResult]:
        # The end is noted also of a run that was put out.
        held = work if name == "end" else functools.partial(self.execution.held.do, work)
        return self.workflow.record(_clean(name), functools.partial(self._retry, held))

    async def _retry(self, work: StepWork) -> StepResult:
        """What the step comes to; its failure is plain data too, unless it may work later and has tries."""
        tries = 0
        while True:
            try:
                return await self._attempt(work)
            except AgentLoopError as error:
                tries += 1
                pause = retry_pause(tries, error, retry_seconds=self.workflow.retry_seconds)
                if pause is None:
                    return self._failure(error)
                self._warn(error, pause)
            await self.workflow.pause(pause)

    async def _attempt(self, work: StepWork) -> StepResult:
        """What the step comes to, its failure too.

        Raises:
            AgentLoopError: it failed, and may work later.
        """
        held = self.execution.held
        for _ in range(CONFLICTS):
            try:
                return await work()
            except MovedOnError as error:
                held.distrust()
                last = error
            except Exception as error:  # every fault of a run has its word and its line, ours too
                held.distrust()
                if may_work_later(error):
                    raise
                return self._failure(error)
            except BaseException as error:  # a model may raise what ends programs; what is meant to goes on
                if _is_meant(error):
                    raise
                held.distrust()
                return self._failure(as_run_failure(error))
        return self._failure(last)

    def _warn(self, error: AgentLoopError, pause: float) -> None:
        held = self.execution.held
        words = held.redaction.hide(words_of(error))
        warn("step_to_be_tried_again", run_id=held.run_id, error=words, after_seconds=pause)

    def _failure(self, error: Exception) -> StepResult:
        redaction = self.execution.held.redaction
        redaction.hide_in(error)
        text = redaction.hide(words_of(error))
        result: StepResult = {"do": "end", "status": status_of(error), "error": strict(text)}
        return {**result, "unwritten": True} if isinstance(error, StoreError) else result


def _is_meant(error: BaseException) -> bool:
    """Whether somebody ends the step: by cancelling it, by going on with it elsewhere, or by Ctrl-C."""
    if isinstance(error, asyncio.CancelledError) and not isinstance(error, ElsewhereError):
        return not is_leaked(error)
    return isinstance(error, ElsewhereError) or is_ctrl_c(error)


def _clean(name: str) -> str:
    """A step's name as a database can hold it: the id of a call is whatever a server made it."""
    return "".join(each if each.isprintable() else "?" for each in name)


@dataclass(slots=True, kw_only=True)
class Execution:
    """One worker's part in one run; `id` is another for each worker that goes on with it."""

    held: HeldRun
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _storing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _answers: dict[str, tuple[MessageRecord, ToolEnded]] = field(default_factory=dict)
    """What calls have answered that is not known to be stored: the storing is tried again, not the tool."""

    async def begin(self) -> StepResult:
        """Open the session and store that the run began, with its prompt."""
        held = self.held
        await held.hold()
        await held.sessions.check_free(held.order.session_id)
        if not await held.has_begun():
            await held.begin()
        elif not says_prompt(await held.records(), held.run_id):
            held.session = await settle_and_say(*await held.open())
        await held.open()
        return {**self._next(), "since": held.since}

    async def make_room(self) -> StepResult:
        """Compact, since it is time to."""
        run, session = await self.held.open()
        if isinstance(self.held.step(), AskModel):
            run.take_tools()
            self.held.session = await run.keeper.make_room(session)
        return {"do": "ask", "made": self.id}

    async def ask(self, made: str) -> StepResult:
        """Ask the model once; `made` is the execution that has made room for it, if any.

        Where that is another one, others may have said more since.
        """
        run, session = await self.held.open()
        if not isinstance(self.held.step(), AskModel):
            return self._next()
        if made != self.id and not run.spending.limit_reached():
            if run.keeper.is_due(session.context):
                return {"do": "make_room"}
            run.take_tools()
            session = self.held.session = await run.keeper.make_room(session)
        if limit := run.spending.limit_reached():
            return {"do": "end", "status": "limit", "reason": limit.words, "limit": limit.name}
        self.held.session = await ask_model(run, session)
        return self._next()

    async def call(self, call_id: str, share: int, by: str) -> StepResult:
        """Run one call of a batch of `share` and store its result; `by` is the execution that was told to."""
        run, session = await self.held.open()
        call = next((call for call in self.held.open_calls() if call.id == call_id), None)
        if call is None:
            return {}
        known = await approvals_in(session)
        if by != self.id and not (may_run_again(run, call) or known.waits(call)):
            await self._store_result(run, await interrupted_record(run, session, call), None)
            return {"interrupted": call_id}
        if call_id not in self._answers:
            answer = await answer_one(run, session, call, share=share, write=self._write)
            if answer is None:
                return {"do": "end", "status": "needs_approval"}
            self._answers[call_id] = answer
        await to_its_end(self._store_result(run, *self._answers[call_id]))
        del self._answers[call_id]
        return {}

    async def compact(self, call_ids: Sequence[str]) -> StepResult:
        """Answer the calls of the compact tool."""
        run, session = await self.held.open()
        asked = [call for call in self.held.open_calls() if call.id in call_ids]
        if asked:
            self.held.session = await compact(run, session, asked)
        return {"do": "ask"}

    async def end(self, how: StepResult) -> StepResult:
        """Store how the run ended, where the log can take it; what it came to."""
        status: RunStatus = how["status"]
        reason = how.get("reason")
        error = how.get("error") or (reason if status == "limit" else None)
        if not how.get("unwritten"):
            await self._store_end(status, reason)
        run = self.held.run
        if run is None:
            self.held.say_end(status, error)
            return {"status": status, "error": error}
        await run.put_away()
        self.held.place.config.learn(run.keeper.budget)
        output, limit = await self._output(run, status), how.get("limit")
        ended = run.ended(status, output=output, error=error, reason=reason, limit=limit)
        await run.emitter.emit(ended)
        usage = {"input": run.spending.usage.input_tokens, "output": run.spending.usage.output_tokens}
        return {"status": status, "error": error, "usage": usage, "cost": run.spending.cost}

    async def note_end(self, status: RunStatus, error: str) -> None:
        """Note an end that no step came to, where the run had begun and the log can be written."""
        run, error = self.held.run, self.held.redaction.hide(error)
        if run is None:
            self.held.say_end(status, error)
            return
        await to_its_end(run.put_away())
        with contextlib.suppress(StoreError):
            for _ in range(CONFLICTS):
                # A tool that was cut off may still store its result meanwhile.
                with contextlib.suppress(MovedOnError):
                    await self._store_end(status, None)
                    break
        await run.emitter.emit(run.ended(status, error=error))

    def _next(self) -> StepResult:
        assert self.held.run
        assert self.held.session
        match self.held.step():
            case Finish():
                ended: StepResult = {"do": "end", "status": "answered"}
                reason = cut_short_by(self.held.session.context.visible)
                return {**ended, "reason": reason} if reason else ended
            case RunTools(calls=calls):
                others, asked = split_off_compact(self.held.run, calls)
                ids, compact_ids = [call.id for call in others], [call.id for call in asked]
                return {"do": "tools", "by": self.id, "calls": ids, "compact": compact_ids}
            case AskModel():
                return {"do": "ask"}

    async def _store_result(self, run: Run, record: MessageRecord, ended: ToolEnded | None) -> None:
        """Store the result at the log's end, wherever that is by now, unless the call has one."""
        call_id, held = record.message.tool_call_id, self.held
        async with self._storing:
            for attempt in range(1, CONFLICTS + 1):
                if held.session is None or call_id not in [call.id for call in held.open_calls()]:
                    return
                try:
                    stored = await run.store(held.session, record)
                except MovedOnError:
                    if attempt == CONFLICTS:
                        raise
                    held.session = await held.catch_up(held.session)
                else:
                    break
            held.session = stored.session
            if ended is not None:
                await run.emitter.emit(ended)
            await run.show(stored)

    async def _write(self, event: Event) -> None:
        """Store what is asked of a call, behind what others of its batch stored meanwhile."""
        async with self._storing:
            run, session = await self.held.open()
            self.held.session = (await run.store(session, event)).session

    async def _store_end(self, status: RunStatus, reason: str | None) -> None:
        if not await self.held.has_begun():
            return
        run, session = await self.held.reread()
        if not has_ended(await self.held.records(), run.id, status):
            run.session = session
            await to_its_end(run.end(status, reason))

    async def _output(self, run: Run, status: RunStatus) -> str:
        """What is answered, or at a limit what there is of that."""
        if self.held.session is None:
            return ""
        if status == "limit":
            return run.emitter.hide(partial_in(await self.held.records(), run.id))
        step = self.held.step() if status == "answered" else None
        return output_of(run, step)[1] if isinstance(step, Finish) else ""
