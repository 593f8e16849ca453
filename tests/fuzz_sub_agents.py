"""The sub-agents of fuzzed conversations, whose models need no server, and what must hold of their logs."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from random import Random
from typing import Any

from agentloop.codec import decode, encode
from agentloop.compaction import Compaction
from agentloop.context import Context
from agentloop.errors import ModelRefusedError, ModelUnavailableError
from agentloop.events import MessageRecord, Record, RunEndRecord
from agentloop.messages import Message, ToolCall
from agentloop.models import ModelRequest
from agentloop.run import Agent, Limits
from agentloop.testing import Reply, ScriptedModel
from agentloop.tools import Tool
from tests.fuzz_plan import Plan
from tests.fuzz_texts import text
from tests.kit import assert_valid

NAMES = ("scout", "digger")
"""One that has all the steps that it wants, and one that a limit cuts."""
WINDOW = 1_500


@dataclass(kw_only=True)
class SubAgents:
    """Two sub-agents with a tool that must do its work once; `is_cut` says whether the run ends in it.

    What they say is drawn from their task and from how often it was asked about.
    """

    plan: Plan
    is_cut: Callable[[], bool]
    did: Counter[int] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)
    _asked: Counter[str] = field(default_factory=Counter)
    _number: int = 0

    def tools(self) -> list[Tool]:
        """Both as tools."""
        policy = Compaction(micro=self.plan.micro, trigger=self.plan.trigger, strategy=self.plan.strategy)
        limits = (None, Limits(steps=2))
        made = []
        for name, limit in zip(NAMES, limits, strict=True):
            model = ScriptedModel(repeat(self._reply), window=WINDOW, name=name)
            below = Agent(model, tools=[self._dig], compaction=policy, max_steps=12)
            made.append(below.as_tool(name, "Finds out one thing.", limits=limit))
        return made

    async def _dig(self, number: int, words: int) -> str:
        """Dig."""
        self.did[number] += 1
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
        return ToolCall(id=f"dig_{self._number:06d}", name="_dig", arguments=arguments)


def sub_agent_problems(
    subs: SubAgents, branches: Mapping[str, Sequence[Record]], main: Sequence[Record]
) -> Iterator[str]:
    """L1, L3, L7 and L13 of each log of a sub-agent, and that its answer is the result of its call."""
    yield from (f"L1 a sub-agent's request is not valid: {error}" for error in subs.failures)
    messages = {name: _messages(records) for name, records in branches.items()}
    called = {_number(call) for said in messages.values() for each in said for call in each.tool_calls}
    for number, times in subs.did.items():
        if times > 1:
            yield f"L7 call {number} of a sub-agent ran {times} times"
        if times and number not in called:
            yield f"call {number} of a sub-agent ran and stands in no message of its log"
    for name, records in branches.items():
        yield from (f"{line} ({name})" for line in _log_problems(records))
    yield from _answers(branches, _messages(main))


def _log_problems(records: Sequence[Record]) -> Iterator[str]:
    if any(encode(decode(encode(record.event))) != encode(record.event) for record in records):
        yield "L3 a record cannot be read back"
    grown = Context()
    for record in records:
        grown = grown.add(record)
    if list(grown.visible) != list(Context.of(records).visible):
        yield "L13 the context grown is not the one from scratch"
    results = Counter(each.tool_call_id for each in _messages(records) if each.role == "tool")
    yield from (f"call {call_id} has {count} results" for call_id, count in results.items() if count > 1)
    ends = [each for each in records if isinstance(each.event, RunEndRecord)]
    answered = next(
        (each.seq for each in ends if getattr(each.event, "status", "") == "answered"), len(records)
    )
    if any(message.role == "assistant" for message in _messages(records[answered:])):
        yield "L7 it was asked again once it had answered"


def _answers(branches: Mapping[str, Sequence[Record]], main: Sequence[Message]) -> Iterator[str]:
    results = {message.tool_call_id: message.text for message in main if message.role == "tool"}
    ended: dict[str, str] = {}
    for records in branches.values():
        ends = [record.event for record in records if isinstance(record.event, RunEndRecord)]
        if ends and ends[-1].status == "answered":
            said = _messages(records)
            ended[said[0].text] = said[-1].text
    for call in (call for message in main for call in message.tool_calls if call.name in NAMES):
        answer = ended.get(str((call.decoded() or {}).get("task")))
        told = results.get(call.id)
        if answer is None or told is None or told.startswith(("interrupted", "stopped", "failed")):
            continue
        if not told.startswith(answer.strip()[:8]):
            yield f"a sub-agent answered {answer[:40]!r} and the result of its call is {told[:80]!r}"


def _number(call: ToolCall) -> Any:
    return (call.decoded() or {}).get("number")


def _messages(records: Sequence[Record]) -> list[Message]:
    return [record.event.message for record in records if isinstance(record.event, MessageRecord)]
