"""One execution of a run: the steps that a worker does of it, each harmless when done again.

The log is the truth. A step that is done again, by this worker or another that took the run over, first
looks whether its effect stands in the log; then it does nothing. What was in flight at a kill is known by the
execution that the recorded step before it names: if that is another one, only an idempotent tool runs again.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentloop._plumbing.aio import to_its_end
from agentloop.context import AskModel, Finish, RunTools
from agentloop.durable.backwards import partial_in
from agentloop.durable.live import Live
from agentloop.errors import StoreError
from agentloop.events import MessageAdded
from agentloop.redaction import redacted
from agentloop.run import Run, answer_one, ask, compact, interrupted, may_run_again, parted, settle_and_say
from agentloop.sessions import MovedOnError, check_free
from agentloop.stream import RunStatus, ToolEnded

Todo = dict[str, Any]
"""What is to be done next, as plain data: `do` is ask, make_room, tools or end."""

CONFLICTS = 5
"""So often in a row somebody else may write to the log before a step gives up."""


@dataclass(slots=True, kw_only=True)
class Execution:
    """One worker's part in one run; `id` is another for each worker that goes on with it."""

    live: Live
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _storing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _answers: dict[str, tuple[MessageAdded, ToolEnded]] = field(default_factory=dict)
    """What calls have answered that is not known to be stored: the storing is tried again, not the tool."""

    async def begin(self) -> Todo:
        """Open the session and store that the run began, with its prompt."""
        live = self.live
        await live.hold()
        await check_free(live.order.session_id, live.place.store, live.order.owner)
        if not await live.has_begun():
            await live.begin()
        elif not await live.has_said():
            live.session = await settle_and_say(*await live.opened())
        await live.opened()
        return {**self._todo(), "since": live.since}

    async def make_room(self) -> Todo:
        """Compact, since it is time to."""
        run, session = await self.live.opened()
        if isinstance(self.live.step(), AskModel):
            self.live.session = await run.room.make(session)
        return {"do": "ask", "made": self.id}

    async def ask(self, made: str) -> Todo:
        """Ask the model once; `made` is the execution that has made room for it, if any.

        Where that is another one, others may have said more since.
        """
        run, session = await self.live.opened()
        if not isinstance(self.live.step(), AskModel):
            return self._todo()
        if made != self.id and not run.spending.limit_reached():
            if run.room.is_due(session.context):
                return {"do": "make_room"}
            session = self.live.session = await run.room.make(session)
        if reason := run.spending.limit_reached():
            return {"do": "end", "status": "limit", "reason": reason}
        self.live.session = await ask(run, session)
        return self._todo()

    async def call(self, call_id: str, share: int, by: str) -> Todo:
        """Run one call of a batch of `share` and store its result; `by` is the execution that was told to."""
        run, session = await self.live.opened()
        call = next((call for call in self.live.open_calls() if call.id == call_id), None)
        if call is None:
            return {}
        if by != self.id and not may_run_again(run, call):
            await self._store_result(run, interrupted(run, call), None)
            return {"interrupted": call_id}
        if call_id not in self._answers:
            self._answers[call_id] = await answer_one(run, session, call, share=share)
        await to_its_end(self._store_result(run, *self._answers[call_id]))
        del self._answers[call_id]
        return {}

    async def compact(self, call_ids: Sequence[str]) -> Todo:
        """Answer the calls of the compact tool."""
        run, session = await self.live.opened()
        asked = [call for call in self.live.open_calls() if call.id in call_ids]
        if asked:
            self.live.session = await compact(run, session, asked)
        return {"do": "ask"}

    async def end(self, how: Mapping[str, Any]) -> Todo:
        """Store how the run ended, where the log can take it; what it came to."""
        status: RunStatus = how["status"]
        error = how.get("error") or how.get("reason")
        if not how.get("unwritten"):
            await self._store_end(status, how.get("reason"))
        run = self.live.run
        if run is None:
            self.live.say_end(status, error)
            return {"status": status, "error": error}
        self.live.place.setting.learn(run)
        await run.show_end(status, output=await self._output(run, status), error=error)
        usage = {"input": run.spending.usage.input_tokens, "output": run.spending.usage.output_tokens}
        return {"status": status, "error": error, "usage": usage, "cost": run.spending.cost}

    async def note_end(self, status: RunStatus, error: str) -> None:
        """Note an end that no step came to, where the run had begun and the log can be written."""
        run, error = self.live.run, redacted(error, self.live.place.setting.redact)
        if run is None:
            self.live.say_end(status, error)
            return
        with contextlib.suppress(StoreError):
            await self._store_end_of_cut_off(status)
        await run.show_end(status, error=error)

    def _todo(self) -> Todo:
        assert self.live.run
        match self.live.step():
            case Finish():
                return {"do": "end", "status": "answered"}
            case RunTools(calls=calls):
                others, asked = parted(self.live.run, calls)
                told = {"calls": [call.id for call in others], "compact": [call.id for call in asked]}
                return {"do": "tools", "by": self.id, **told}
            case AskModel():
                return {"do": "ask"}

    async def _store_result(self, run: Run, record: MessageAdded, ended: ToolEnded | None) -> None:
        """Store the result at the log's end, wherever that is by now, unless the call has one."""
        call_id, live = record.message.tool_call_id, self.live
        async with self._storing:
            for attempt in range(1, CONFLICTS + 1):
                if live.session is None or call_id not in [call.id for call in live.open_calls()]:
                    return
                try:
                    stored = await run.stored(live.session, record)
                except MovedOnError:
                    if attempt == CONFLICTS:
                        raise
                    live.session = await live.caught_up(live.session)
                else:
                    break
            live.session = stored.session
            if ended is not None:
                await run.watch.say(ended)
            await run.show(stored)

    async def _store_end(self, status: RunStatus, reason: str | None) -> None:
        if not await self.live.has_begun():
            return
        run, session = await self.live.reread()
        if not await self.live.has_ended(status):
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
        if self.live.session is None:
            return ""
        if status == "limit":
            partial = await partial_in(self.live.place.store, self.live.order.session_id, run.id)
            return redacted(partial, run.watch.redact)
        step = self.live.step() if status == "answered" else None
        return redacted(step.answer, run.watch.redact) if isinstance(step, Finish) else ""
