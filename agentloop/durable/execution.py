"""The steps of the loop as steps of a workflow, each harmless when done again.

`Workflow.run` is what a worker does with one run: it gives `run.loop` the steps of `WorkflowSteps`. Each is
recorded by DBOS with what is to be done next, and what stands recorded is not done again. What a step does
stands in `Execution`, on the run and the session that `HeldRun` keeps from one step to the next.

The log is the truth. A step that is done again, by this worker or another that took the run over, first
looks whether its effect stands in the log; then it does nothing. What was in flight at a kill is known by the
execution that the recorded step before it names: if that is another one, only an idempotent tool runs again.

Who may write to the session, and when:

- Who has its lease: an execution puts an earlier one of its run out, and waits for anybody else.
- Only behind what it knows: where the log says more, it distrusts that and reads on before it writes.
- Others began before it came: its prompt again, behind them; where it had answered by then, its end alone.
- Another run began since: nothing more (`TakenOverError`).
- Another execution of its run put it out: nothing more, and no end (`ElsewhereError`).
"""

import asyncio
import contextlib
import functools
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

from agentloop._plumbing.aio import is_ctrl_c, is_leaked, to_its_end
from agentloop._plumbing.host_logging import warn
from agentloop._plumbing.to_text import strict, told_by
from agentloop.context import AskModel, Finish, RunTools, Step, next_step
from agentloop.durable.engine import ElsewhereError, is_of_run, leases_of
from agentloop.durable.orders import RETRY_SECONDS, Order, RunCancelledError, may_work_later, retry_pause
from agentloop.durable.run_log import (
    OvertakenRun,
    began_at,
    found_overtaken,
    has_ended,
    has_said,
    of_run,
    partial_in,
    says_prompt,
)
from agentloop.emitter import Hides, Sink
from agentloop.errors import AgentLoopError, ConflictError, StoreError, TakenOverError
from agentloop.events import Compacted, MessageRecord, ModelCalled, Record, RunStartRecord
from agentloop.messages import ToolCall, Usage
from agentloop.model_call import used_by
from agentloop.models import Answer
from agentloop.results import as_run_failure, status_of
from agentloop.run import (
    Limits,
    NextStep,
    Run,
    RunConfig,
    answer_one,
    ask_model,
    came_to_nothing,
    compact,
    interrupted_record,
    loop,
    may_run_again,
    settle_and_say,
    split_off_compact,
    start_run,
)
from agentloop.sessions import Holder, MovedOnError, Session, Sessions, has_begun, part_of, rebase_same_run
from agentloop.stores.base import SessionStore
from agentloop.stream import RunEnded, RunStatus, ToolEnded

T = TypeVar("T")

Todo = dict[str, Any]
"""What is to be done next, as plain data: `do` is a `NextStep`, the rest what that step must know."""

StepWork: TypeAlias = Callable[[], Awaitable[Todo]]
"""What a step does."""

CONFLICTS = 5
"""So often in a row somebody else may write to the log before a step gives up."""


class Recorder(Protocol):
    """Does the steps of a run, each at least once, and keeps what they came to for who goes on with it."""

    def __call__(self, name: str, work: StepWork, /) -> Coroutine[Any, Any, Todo]:
        """What the step came to, once that is awaited; its place among the others is that of this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlace:
    """Where a worker's runs are done: with which agent, store and limits, and who is told of them."""

    config: RunConfig
    limits: Limits
    sink: Sink


@dataclass(slots=True, kw_only=True)
class Workflow:
    """What the workers of this process do with each run.

    A step whose server or database is away is tried again after `retry_seconds`, see `retry_pause`.
    """

    place: WorkPlace
    record: Recorder
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
        held = HeldRun(place=self.place, order=wanted, run_id=run_id, submitted=data["submitted"])
        execution = Execution(held=held)
        try:
            return await loop(WorkflowSteps(workflow=self, execution=execution))
        except RunCancelledError:
            await execution.note_end("interrupted", "cancelled")
            raise
        except asyncio.CancelledError:
            if self._stopping.is_set():
                await held.hand_over()
            raise
        except Exception as error:  # DBOS failed at a step: for DBOS the run is over too; raised again
            await execution.note_end("failed", told_by(error))
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
    _todo: Todo = field(default_factory=dict)

    async def open(self) -> NextStep:
        """Open the session and store that the run began, as one step."""
        self.workflow.check_goes_on()
        step = self._told(await self._recorded("begin", self.execution.begin))
        self.execution.held.since = self._todo.get("since", 0)
        return step

    async def make_room(self) -> NextStep:
        """Compact, since the asking found that it is time to."""
        self.workflow.check_goes_on()
        return self._told(await self._recorded("make_room", self.execution.make_room))

    async def ask(self) -> NextStep:
        """Ask the model, or say that room is to be made before."""
        self.workflow.check_goes_on()
        work = functools.partial(self.execution.ask, self._todo.get("made", ""))
        return self._told(await self._recorded("ask", work))

    async def run_tools(self) -> NextStep:
        """All calls side by side, each a step of its own, begun in call order; the compact tool after."""
        call_ids, to_compact, by = self._todo["calls"], self._todo["compact"], self._todo["by"]
        share = len(call_ids) + len(to_compact)
        works = [
            self._recorded(f"tool {call_id}", functools.partial(self.execution.call, call_id, share, by))
            for call_id in call_ids
        ]
        # All are waited for, since the first to fail would leave the others behind.
        results = await asyncio.gather(*works, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
            if result.get("do") == "end":
                return self._told(result)
        if not to_compact:
            return self._told({"do": "ask"})
        work = functools.partial(self.execution.compact, to_compact)
        return self._told(await self._recorded("compact", work))

    async def end(self) -> Todo:
        """Store how the run ended; what it came to, as the queue shows it."""
        return await self._recorded("end", functools.partial(self.execution.end, self._todo))

    def _told(self, todo: Todo) -> NextStep:
        self._todo = todo
        step: NextStep = todo["do"]
        return step

    def _recorded(self, name: str, work: StepWork) -> Coroutine[Any, Any, Todo]:
        # The end is noted also of a run that was put out.
        held = work if name == "end" else functools.partial(self.execution.held.done, work)
        return self.workflow.record(_clean(name), functools.partial(self._done, held))

    async def _done(self, work: StepWork) -> Todo:
        """What the step comes to; its failure is plain data too, unless it may work later and has tries."""
        tries = 0
        while True:
            try:
                return await self._tried(work)
            except AgentLoopError as error:
                tries += 1
                pause = retry_pause(tries, error, retry_seconds=self.workflow.retry_seconds)
                if pause is None:
                    return self._failed(error)
                self._warn(error, pause)
            await self.workflow.pause(pause)

    async def _tried(self, work: StepWork) -> Todo:
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
                return self._failed(error)
            except BaseException as error:  # a model may raise what ends programs; what is meant to goes on
                if _is_meant(error):
                    raise
                held.distrust()
                return self._failed(as_run_failure(error))
        return self._failed(last)

    def _warn(self, error: AgentLoopError, pause: float) -> None:
        held = self.execution.held
        words = held.redaction.hide(told_by(error))
        warn("step_to_be_tried_again", run_id=held.run_id, error=words, after_seconds=pause)

    def _failed(self, error: Exception) -> Todo:
        redaction = self.execution.held.redaction
        redaction.hide_in(error)
        text = redaction.hide(told_by(error))
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


@dataclass(slots=True, kw_only=True)
class Execution:
    """One worker's part in one run; `id` is another for each worker that goes on with it."""

    held: "HeldRun"
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _storing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _answers: dict[str, tuple[MessageRecord, ToolEnded]] = field(default_factory=dict)
    """What calls have answered that is not known to be stored: the storing is tried again, not the tool."""

    async def begin(self) -> Todo:
        """Open the session and store that the run began, with its prompt."""
        held = self.held
        await held.hold()
        await held.sessions.check_free(held.order.session_id)
        if not await held.has_begun():
            await held.begin()
        elif not await held.has_said():
            held.session = await settle_and_say(*await held.opened())
        await held.opened()
        return {**self._todo(), "since": held.since}

    async def make_room(self) -> Todo:
        """Compact, since it is time to."""
        run, session = await self.held.opened()
        if isinstance(self.held.step(), AskModel):
            self.held.session = await run.keeper.make_room(session)
        return {"do": "ask", "made": self.id}

    async def ask(self, made: str) -> Todo:
        """Ask the model once; `made` is the execution that has made room for it, if any.

        Where that is another one, others may have said more since.
        """
        run, session = await self.held.opened()
        if not isinstance(self.held.step(), AskModel):
            return self._todo()
        if made != self.id and not run.spending.limit_reached():
            if run.keeper.is_due(session.context):
                return {"do": "make_room"}
            session = self.held.session = await run.keeper.make_room(session)
        if reason := run.spending.limit_reached():
            return {"do": "end", "status": "limit", "reason": reason}
        self.held.session = await ask_model(run, session)
        return self._todo()

    async def call(self, call_id: str, share: int, by: str) -> Todo:
        """Run one call of a batch of `share` and store its result; `by` is the execution that was told to."""
        run, session = await self.held.opened()
        call = next((call for call in self.held.open_calls() if call.id == call_id), None)
        if call is None:
            return {}
        if by != self.id and not may_run_again(run, call):
            await self._store_result(run, interrupted_record(run, call), None)
            return {"interrupted": call_id}
        if call_id not in self._answers:
            self._answers[call_id] = await answer_one(run, session, call, share=share)
        await to_its_end(self._store_result(run, *self._answers[call_id]))
        del self._answers[call_id]
        return {}

    async def compact(self, call_ids: Sequence[str]) -> Todo:
        """Answer the calls of the compact tool."""
        run, session = await self.held.opened()
        asked = [call for call in self.held.open_calls() if call.id in call_ids]
        if asked:
            self.held.session = await compact(run, session, asked)
        return {"do": "ask"}

    async def end(self, how: Mapping[str, Any]) -> Todo:
        """Store how the run ended, where the log can take it; what it came to."""
        status: RunStatus = how["status"]
        error = how.get("error") or how.get("reason")
        if not how.get("unwritten"):
            await self._store_end(status, how.get("reason"))
        run = self.held.run
        if run is None:
            self.held.say_end(status, error)
            return {"status": status, "error": error}
        self.held.place.config.learn(run)
        await run.show_end(status, output=await self._output(run, status), error=error)
        usage = {"input": run.spending.usage.input_tokens, "output": run.spending.usage.output_tokens}
        return {"status": status, "error": error, "usage": usage, "cost": run.spending.cost}

    async def note_end(self, status: RunStatus, error: str) -> None:
        """Note an end that no step came to, where the run had begun and the log can be written."""
        run, error = self.held.run, self.held.redaction.hide(error)
        if run is None:
            self.held.say_end(status, error)
            return
        with contextlib.suppress(StoreError):
            await self._store_end_of_cut_off(status)
        await run.show_end(status, error=error)

    def _todo(self) -> Todo:
        assert self.held.run
        match self.held.step():
            case Finish():
                return {"do": "end", "status": "answered"}
            case RunTools(calls=calls):
                others, asked = split_off_compact(self.held.run, calls)
                told = {"calls": [call.id for call in others], "compact": [call.id for call in asked]}
                return {"do": "tools", "by": self.id, **told}
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
                    stored = await run.stored(held.session, record)
                except MovedOnError:
                    if attempt == CONFLICTS:
                        raise
                    held.session = await held.caught_up(held.session)
                else:
                    break
            held.session = stored.session
            if ended is not None:
                await run.emitter.emit(ended)
            await run.show(stored)

    async def _store_end(self, status: RunStatus, reason: str | None) -> None:
        if not await self.held.has_begun():
            return
        run, session = await self.held.reread()
        if not await self.held.has_ended(status):
            run.session = session
            await to_its_end(run.end(status, reason))

    async def _store_end_of_cut_off(self, status: RunStatus) -> None:
        """Store that end, also where a tool that was cut off still stored its result meanwhile."""
        for _ in range(CONFLICTS):
            with contextlib.suppress(MovedOnError):
                await self._store_end(status, None)
                break

    async def _output(self, run: Run, status: RunStatus) -> str:
        """What is answered, or at a limit what there is of that."""
        if self.held.session is None:
            return ""
        if status == "limit":
            partial = await partial_in(self.held.store, self.held.order.session_id, run.id)
            return run.emitter.hide(partial)
        step = self.held.step() if status == "answered" else None
        return run.emitter.hide(step.answer) if isinstance(step, Finish) else ""


@dataclass(slots=True, kw_only=True)
class HeldRun:
    """The run and its session, kept in memory between steps so that a step costs what is new.

    `since` is the position of the run's beginning, 0 until that is known.
    """

    place: WorkPlace
    order: Order
    run_id: str
    submitted: float
    since: int = 0
    run: Run | None = None
    session: Session | None = None
    _held: tuple[contextlib.AsyncExitStack, Holder] | None = None
    """The session's lease, and what lets go of it; None until it is taken."""
    _is_distrusted: bool = False
    """Whether what is known of the session may be out of date."""
    _overtaken: OvertakenRun = field(default_factory=OvertakenRun)
    """Whether others had the session since the run spoke."""
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The calls of a batch are steps side by side: one of them opens the session, the others find it open."""

    @property
    def sessions(self) -> Sessions:
        """The sessions as the run's owner sees them, held for all executions of the run."""
        return replace(
            self.place.config.sessions,
            leases=leases_of(self.run_id),
            owner=self.order.owner,
            ttl_seconds=self.order.ttl_seconds,
        )

    @property
    def store(self) -> SessionStore:
        """Where the session lives."""
        return self.place.config.sessions.store

    @property
    def redaction(self) -> Hides:
        """What takes secrets out of all that is said."""
        return self.place.config.redaction

    async def opened(self) -> tuple[Run, Session]:
        """The run and its session to go on with, from the log where it is not known or not trusted.

        Where others had the session before this execution came to it, the prompt is said again behind them.

        Raises:
            TakenOverError: another run has begun in the session since it came to it.
        """
        async with self._opening:
            run, session = await self._known()
            if self._overtaken.speaks_again:
                # What others left in flight is settled, and the prompt said behind it.
                self.session = session = await settle_and_say(run, session, self.order.prompt)
                self._overtaken = OvertakenRun()
            return run, session

    async def reread(self) -> tuple[Run, Session]:
        """The run and its session as the log has them now; nothing is said in it.

        Raises:
            TakenOverError: see `opened`.
        """
        async with self._opening:
            self.distrust()
            return await self._known()

    async def done(self, work: Callable[[], Awaitable[T]]) -> T:
        """What this work comes to, done as a part of who holds the session, and ended when that is put out.

        Raises:
            TakenOverError: another run has put this one out.
            ElsewhereError: another execution of it has.
        """
        async with self._opening:
            hold = await self.hold()
        known = contextlib.nullcontext() if hold.lease is None else part_of(hold.lease)
        try:
            with known, hold.working(self._check_alone):
                return await work()
        except TakenOverError:
            if hold.put_out_by is not None and is_of_run(hold.put_out_by, self.run_id):
                raise ElsewhereError from None
            raise

    async def hold(self) -> Holder:
        """Take the session's lease, over from an earlier execution of the run; what it is held by.

        It is waited for while a run of anybody else has it, for as long as that lives.
        """
        if self._held is None:
            stack = contextlib.AsyncExitStack()
            hold = await stack.enter_async_context(self.sessions.held(self.order.session_id))
            self._held = stack, hold
        return self._held[1]

    async def hand_over(self) -> None:
        """Work on the session no more, but keep it from all but the run's next execution."""
        if self._held is not None:
            await self._held[1].leave()

    async def let_go(self) -> None:
        """Let go of the session and of whoever watches."""
        if self.run is not None:
            self.run.emitter.callback_list.close()
        if self._held is not None:
            await self._held[0].aclose()

    def distrust(self) -> None:
        """What is known of the session may be out of date: before the next step, what is newer is read."""
        self._is_distrusted = True

    async def begin(self) -> None:
        """Store that the run began, with its prompt."""
        session = await self.sessions.open(self.order.session_id)
        self.run = run = await self._new_run()
        self.session = await start_run(run, session, self.order.prompt)
        # Asked of the log, since others may have written just before it.
        await self.has_begun()

    def say_end(self, status: RunStatus, error: str | None) -> None:
        """Tell the worker's own listener the end of a run that never came to its beginning here."""
        ended = RunEnded(
            session_id=self.order.session_id,
            run_id=self.run_id,
            time=time.time(),
            status=status,
            output="",
            usage=Usage(),
            cost=None,
            error=error,
        )
        self.place.sink(ended)

    async def has_begun(self) -> bool:
        """Whether the log has this run's beginning."""
        if not self.since:
            place = self.store, self.order.session_id, self.run_id
            self.since = await began_at(*place, submitted=self.submitted)
        return self.since > 0

    async def has_said(self) -> bool:
        """Whether the log has the run's prompt."""
        return await has_said(self.store, self.order.session_id, self.run_id)

    async def has_ended(self, status: RunStatus) -> bool:
        """Whether the log says that the run ended so."""
        return await has_ended(self.store, self.order.session_id, self.run_id, status)

    async def caught_up(self, session: Session) -> Session:
        """The session with what was written since.

        Raises:
            TakenOverError: another run has begun in it.
            ConflictError: it was deleted meanwhile; `BegunAnewError` where its id is another's now.
        """
        newer = await session.newer()
        if has_begun(newer, other_than=self.run_id):
            raise TakenOverError(session.id)
        # Nobody else began; but the prompt may stand there though its write failed.
        if self._overtaken.speaks_again and says_prompt(newer, self.run_id):
            self._overtaken = OvertakenRun()
        return await session.having(newer)

    def step(self) -> Step:
        """The one thing to do next; a run that others came behind has its own answer."""
        return self._overtaken.answer or next_step(self.session.context.messages if self.session else ())

    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet, in call order."""
        step = self.step()
        return step.calls if isinstance(step, RunTools) else ()

    async def _known(self) -> tuple[Run, Session]:
        await self.hold()
        if self.run is None or self.session is None:
            self.run, self.session = await self._resumed()
        elif self._is_distrusted:
            self.session = await self.caught_up(self.session)
        self._is_distrusted = False
        return self.run, self.session

    async def _resumed(self) -> tuple[Run, Session]:
        session = await self.sessions.open(self.order.session_id)
        records = await self.store.read(self.order.session_id, after=self.since - 1)
        if not (records and self._is_begin(records[0])):
            raise ConflictError(session.id, expected=self.since, actual=0)
        self._overtaken = found_overtaken(records, self.run_id)
        run = await self._new_run()
        run.session = session
        spend_again(run, records)
        return run, session

    async def _new_run(self) -> Run:
        config, hold = replace(self.place.config, sessions=self.sessions), await self.hold()
        return await config.new_run(
            self.order.session_id,
            self.place.sink,
            run_id=self.run_id,
            rebase=rebase_same_run,
            has_lapsed=hold.has_lapsed,
            limits=self.place.limits,
        )

    def _is_begin(self, record: Record) -> bool:
        return isinstance(record.event, RunStartRecord) and record.event.run_id == self.run_id

    async def _check_alone(self) -> None:
        """That no other run has begun in the session, once there is a run to ask."""
        if self.run is not None:
            await self.run.check_alone()


def spend_again(run: Run, records: Sequence[Record]) -> None:
    """Add what the run's requests in these records used; the first record is its beginning.

    Its seconds are counted from there too, by the clock on the wall, also those that others had the session.
    """
    if records:
        run.spending.started -= max(0.0, time.time() - records[0].event.time)
    asked: ModelCalled | None = None
    beside: list[ModelCalled] = []
    for record in of_run(records, run.id):
        match record.event:
            case ModelCalled(purpose="agent") as called:
                asked = called
            case ModelCalled() as called:
                beside.append(called)
            case Compacted(tokens=tokens):
                run.spending.add_beside(used_by(beside, tokens))
                beside = []
            case MessageRecord() as said if asked and said.message.role == "assistant":
                run.spend(_answer(said, asked), asked.counted)
                run.in_vain = run.in_vain + 1 if came_to_nothing(said.message, said.finish) else 0
                asked = None
    run.spending.add_beside(used_by(beside, 0))


def _answer(said: MessageRecord, called: ModelCalled) -> Answer:
    return Answer(message=said.message, usage=called.usage, finish=said.finish, cost=called.cost)
