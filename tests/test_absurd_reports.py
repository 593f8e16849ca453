"""What a model says of its usage and cost is kept where it can be, and never costs the answer."""

import math
from typing import Any

import pytest

from agentloop.events import ModelCalled
from agentloop.messages import MOST_REPORTED_TOKENS, Message, Usage
from agentloop.models import Answer
from agentloop.run import Agent, Limits
from agentloop.runner import Runner
from agentloop.stores import InMemoryStore
from agentloop.testing import ScriptedModel, calls
from tests.kit import read


async def kept(usage: Any, cost: Any) -> tuple[Usage | None, float | None]:
    """What the log says of an answer with these."""
    store, answer = InMemoryStore(), Answer(message=Message.assistant("done"), usage=usage, cost=cost)
    result = await Runner(Agent(ScriptedModel([answer])), store=store).run("Hello", session_id="s")
    assert (result.status, result.output) == ("answered", "done")
    (called,) = [each.event for each in await store.read("s") if isinstance(each.event, ModelCalled)]
    return called.usage, called.cost


@pytest.mark.parametrize("count", [-1, MOST_REPORTED_TOKENS + 1, 10**400, 1.5, math.nan, True, None, "7"])
@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "cached_tokens"])
async def test_a_usage_that_counts_nothing_is_none(name: str, count: Any) -> None:
    fields = {"input_tokens": 9, "output_tokens": 9, name: count}
    assert await kept(Usage(**fields), 0.5) == (None, 0.5)


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf, 10**400, True, "0.1"])
async def test_a_cost_that_is_no_number_is_none(cost: Any) -> None:
    assert await kept(Usage(input_tokens=MOST_REPORTED_TOKENS), cost) == (
        Usage(input_tokens=MOST_REPORTED_TOKENS),
        None,
    )


async def test_a_limit_on_cost_is_not_held_by_what_is_no_number() -> None:
    batch = calls(("read", {"path": "a"}))
    answer = Answer(message=Message.assistant(None, batch), usage=Usage(input_tokens=9), cost=math.nan)
    runner = Runner(Agent(ScriptedModel([answer, "done"]), tools=[read]), transcripts=None)
    result = await runner.run("Hello", limits=Limits(cost=0.5))
    assert result.status == "limit"
    assert result.reason == "the limit of $0.5 cannot be held: the model does not say what it cost"
