"""What one run carries along: its agent, its room, its watchers, and what it has used."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloop.agent import Agent
from agentloop.events import MessageAdded
from agentloop.messages import Message, Usage
from agentloop.room import Room
from agentloop.run_context import RunContext
from agentloop.sessions import Session
from agentloop.stream import MessageAdded as MessageShown
from agentloop.stream import ToolProgress
from agentloop.tokens import TokenCounter, count_message
from agentloop.watch import Watch


@dataclass(slots=True, kw_only=True)
class Run:
    """One run while it goes on; `spills` is the folder for results too long to show, None for nowhere."""

    agent: Agent
    room: Room
    watch: Watch
    counter: TokenCounter
    spills: Path | None
    deps: Any = None
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    cut_off: int = 0
    begun: bool = False

    @property
    def id(self) -> str:
        """The run's id."""
        return self.watch.run_id

    def spend(self, usage: Usage | None, cost: float | None) -> None:
        """Add what one request used."""
        self.usage += usage or Usage()
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    def added(self, message: Message, **marks: Any) -> MessageAdded:
        """The record of this message, its tokens counted; `marks` are further fields of it."""
        tokens = count_message(message, self.counter)
        return MessageAdded(message=message, tokens=tokens, run_id=self.id, **marks)

    async def show(self, session: Session, *events: MessageAdded, **fields: Any) -> None:
        """Show that these messages, among the newest of the session, stand in its log."""
        status = self.room.status(session.context)
        for event in events:
            newest_first = reversed(session.context.said)
            seq = next(entry.seq for entry in newest_first if entry.original is event.message)
            await self.watch.say(
                MessageShown,
                seq=seq,
                message=event.message,
                tokens=event.tokens,
                context=status,
                **fields,
            )

    def context_for(self, call_id: str) -> RunContext[Any]:
        """What a tool may know of this run; its progress is shown from whatever thread it speaks in."""
        loop = asyncio.get_running_loop()

        def progress(text: str) -> None:
            said = self.watch.say(ToolProgress, call_id=call_id, text=text)
            asyncio.run_coroutine_threadsafe(said, loop)

        return RunContext(
            session_id=self.watch.session_id,
            run_id=self.id,
            call_id=call_id,
            deps=self.deps,
            usage=self.usage,
            on_progress=progress,
        )
