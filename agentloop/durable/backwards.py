"""Reading one run's part of a log, from the end of it: a session may be long, a run is its newest part."""

import contextlib
from collections.abc import AsyncGenerator

from agentloop.events import Event, MessageAdded, Record, RunEnded, RunStarted
from agentloop.messages import Message
from agentloop.stores.base import SessionStore
from agentloop.stream import RunStatus

_BLOCK = 256

_SLACK_SECONDS = 86_400.0
"""How far the clocks of two machines may be apart."""


async def backwards(store: SessionStore, session_id: str) -> AsyncGenerator[Record, None]:
    """The records of a log, newest first, read in pieces."""
    info = await store.info(session_id)
    upto = info.length if info else 0
    while upto > 0:
        after = max(0, upto - _BLOCK)
        for record in reversed(await store.read(session_id, after=after, most=upto - after)):
            yield record
        upto = after


async def said_in(store: SessionStore, session_id: str, run_id: str) -> AsyncGenerator[Event, None]:
    """What the log has of its end back to the beginning of that run, newest first."""
    async with contextlib.aclosing(backwards(store, session_id)) as records:
        async for record in records:
            yield record.event
            if isinstance(record.event, RunStarted) and record.event.run_id == run_id:
                return


async def began_at(store: SessionStore, session_id: str, run_id: str, *, submitted: float) -> int:
    """The position of that run's beginning; 0 where it has not begun since it was submitted."""
    async with contextlib.aclosing(backwards(store, session_id)) as records:
        async for record in records:
            if isinstance(record.event, RunStarted) and record.event.run_id == run_id:
                return record.seq
            if record.event.time < submitted - _SLACK_SECONDS:
                break
    return 0


async def has_said(store: SessionStore, session_id: str, run_id: str) -> bool:
    """Whether the log has that run's prompt."""
    async with contextlib.aclosing(said_in(store, session_id, run_id)) as events:
        async for event in events:
            if is_prompt(event, run_id):
                return True
    return False


def is_prompt(event: Event, run_id: str) -> bool:
    """Whether it says that run's prompt."""
    return isinstance(event, MessageAdded) and event.run_id == run_id and event.message.role == "user"


async def has_ended(store: SessionStore, session_id: str, run_id: str, status: RunStatus) -> bool:
    """Whether the log says that the run ended so."""
    async with contextlib.aclosing(said_in(store, session_id, run_id)) as events:
        async for event in events:
            if isinstance(event, RunEnded) and event.run_id == run_id:
                return event.status == status
    return False


async def answer_in(store: SessionStore, session_id: str, run_id: str) -> str:
    """What the model answered in that run; empty where it has not."""
    async with contextlib.aclosing(_by_model(store, session_id, run_id)) as messages:
        async for message in messages:
            return "" if message.tool_calls else message.text
    return ""


async def partial_in(store: SessionStore, session_id: str, run_id: str) -> str:
    """What there is of an answer in that run: the newest text of the model, hidden by a compaction or not."""
    async with contextlib.aclosing(_by_model(store, session_id, run_id)) as messages:
        async for message in messages:
            if message.text.strip():
                return message.text
    return ""


async def _by_model(store: SessionStore, session_id: str, run_id: str) -> AsyncGenerator[Message, None]:
    """What the model said in that run, newest first."""
    async with contextlib.aclosing(said_in(store, session_id, run_id)) as events:
        async for event in events:
            if not isinstance(event, MessageAdded) or event.run_id != run_id:
                continue
            if event.message.role == "assistant":
                yield event.message
