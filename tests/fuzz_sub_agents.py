"""The sub-agents of fuzzed conversations, whose models need no server, and what must hold of their logs."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat
from random import Random
from typing import Any

from agentloop.compaction import Compaction
from agentloop.errors import ModelRefusedError, ModelUnavailableError
from agentloop.messages import ToolCall
from agentloop.models import ModelRequest
from agentloop.run import Agent, Limits
from agentloop.testing import Reply, ScriptedModel
from agentloop.tools import Tool, tool
from tests.fuzz_plan import Plan
from tests.fuzz_texts import text
from tests.kit import assert_valid

NAMES = ("scout", "digger")
"""One that has all the steps that it wants, and one that a limit cuts."""
WINDOW = 1_500
FIRST_NUMBER = 1_000_000
"""Calls of sub-agents are counted from here on, those of the session itself from 0."""


@dataclass(kw_only=True)
class SubAgents:
    """Two sub-agents with a tool that must do its work once; `is_cut` says whether the run ends in it.

    Where the plan wants it, they have another one that needs a yes. `offered` are the tools by the numbers of
    their calls, `ran` is what ran: the number, and with how many words.

    What they say is drawn from their task and from how often it was asked about.
    """

    plan: Plan
    is_cut: Callable[[], bool]
    did: Counter[int] = field(default_factory=Counter)
    ran: list[tuple[int, int]] = field(default_factory=list)
    offered: dict[int, str] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    _asked: Counter[str] = field(default_factory=Counter)
    _number: int = FIRST_NUMBER

    def tools(self) -> list[Tool]:
        """Both as tools."""
        policy = Compaction(micro=self.plan.micro, trigger=self.plan.trigger, strategy=self.plan.strategy)
        limits = (None, Limits(steps=2))
        made = []
        for name, limit in zip(NAMES, limits, strict=True):
            model = ScriptedModel(repeat(self._reply), window=WINDOW, name=name)
            below = Agent(model, tools=self._tools_below(), compaction=policy, max_steps=12)
            made.append(below.as_tool(name, "Finds out one thing.", limits=limit))
        return made

    def _tools_below(self) -> list[Any]:
        async def bury(number: int, words: int) -> str:
            """Bury."""
            return await self._dig(number, words)

        asking = tool(name="_bury", needs_approval=True)(bury)
        return [self._dig, asking] if self.plan.wants.below else [self._dig]

    async def _dig(self, number: int, words: int) -> str:
        """Dig."""
        self.did[number] += 1
        self.ran.append((number, words))
        await asyncio.sleep(0)
        if self.is_cut():
            await asyncio.Event().wait()
        return text("words", words, str(number))

    async def _reply(self, request: ModelRequest) -> Reply:
        try:
            assert_valid([request])
        except AssertionError as error:
            self.failures.append(error)
        users = [str(message["content"]) for message in request.messages if message["role"] == "user"]
        at = self._asked[users[0]]
        self._asked[users[0]] += 1
        draw = Random(f"{self.plan.seed} below {users[0][:80]} {at}")
        match draw.choice(["calls"] * 9 + ["text"] * 2 + ["refused", "away", "blank"]):
            case "calls" if request.tools:
                return [self._call(draw) for _ in range(draw.choice([1, 1, 3]))]
            case "refused":
                return ModelRefusedError("no", status=400)
            case "away":
                return ModelUnavailableError("away")
            case "blank":
                return ""
        return f"I found {at}. " + text("words", draw.choice([3, 50]), "")

    def _call(self, draw: Random) -> ToolCall:
        self._number += 1
        arguments = json.dumps({"number": self._number, "words": draw.choice([5, 600, 600])})
        name = draw.choice(["_bury", "_dig"]) if self.plan.wants.below else "_dig"
        self.offered[self._number] = name
        return ToolCall(id=f"dig_{self._number:06d}", name=name, arguments=arguments)
