"""Runs that work on one session at a time: what tests of them share."""

import asyncio
from typing import Any

from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stores import SessionStore
from agentloop.testing import ScriptedModel, calls
from tests.kit import until


def runner_for(answers: list[Any], *tools: Any, store: SessionStore, **options: Any) -> Runner:
    return Runner(Agent(ScriptedModel(answers), tools=tools), store=store, transcripts=None, **options)


class Gate:
    """A tool that says when it runs, and ends when it is let."""

    def __init__(self) -> None:
        self.inside, self.go_on = asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def wait(self) -> str:
        """Wait."""
        self.inside.set()
        try:
            await until(self.go_on)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "waited"


class AtWork:
    """A run on session `s` that is in its tool."""

    def __init__(self, store: SessionStore, **options: Any) -> None:
        self.gate = Gate()
        self.runner = runner_for([calls(wait={}), "first"], self.gate.wait, store=store, **options)
        self.task = asyncio.create_task(self.runner.run("Go", session_id="s"))

    async def __aenter__(self) -> "AtWork":
        await until(self.gate.inside)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        assert (await asyncio.wait({self.task}, timeout=120))[0], "it does not end"


async def log(store: SessionStore) -> list[Any]:
    return [record.event for record in await store.read("s")]
