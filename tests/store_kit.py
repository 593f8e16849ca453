"""What the tests of stores share: what is said and read, a store with nothing beside, writers elsewhere."""

import asyncio
import subprocess
import sys

from agentloop.events import MessageAdded
from agentloop.messages import Message
from agentloop.stores import InMemoryStore, SessionStore

WRITER = """
import asyncio, sys
from agentloop.errors import ConflictError
from agentloop.events import MessageAdded
from agentloop.messages import Message
from agentloop.stores import open_store

async def main(url, session_id, name, records):
    store, length = open_store(url), 0
    for number in range(records):
        event = MessageAdded(message=Message.user(f"{name} {number}"), tokens=1)
        while True:
            try:
                length = await store.append(session_id, [event], expect=length)
                break
            except ConflictError as error:
                length = error.actual
    await store.close()

asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
"""
"""A program that writes so many records into a session of the store at a URL: `name 0`, `name 1`, …"""


class LogAlone:
    """A store with the verbs that every store must have, and no other; in memory."""

    def __init__(self) -> None:
        store = InMemoryStore()
        self.append, self.read, self.info, self.list = store.append, store.read, store.info, store.list
        self.delete, self.sweep, self.close = store.delete, store.sweep, store.close


def said(text: str = "hi") -> MessageAdded:
    """What a user said just now."""
    return MessageAdded(message=Message.user(text), tokens=1)


async def texts(store: SessionStore, session_id: str = "s") -> list[str]:
    """What the messages of a session say, in order."""
    records = await store.read(session_id)
    return [record.event.message.text for record in records if isinstance(record.event, MessageAdded)]


async def ran(script: str, *arguments: str) -> tuple[int, str]:
    """Run a script in a Python of its own, where a warning is an error; its status and all that it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", script, *arguments,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
