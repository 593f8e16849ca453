"""An agent of pydantic-ai with our compaction, against the strict provider."""

from typing import Any

import pytest

from tests import door_kit
from tests.door_kit import TASK, WINDOW, provider

pytestmark = pytest.mark.integrations


async def test_an_agent_works_for_sixty_steps_in_a_small_window() -> None:
    import pydantic_ai
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from agentloop.integrations.pydantic_ai import CompactHistory

    with provider() as server:
        async with AsyncOpenAI(base_url=server.url, api_key="none") as client:
            model = OpenAIChatModel("any", provider=OpenAIProvider(openai_client=client))
            compact = CompactHistory(window=WINDOW)
            agent = pydantic_ai.Agent(model, instructions="Be brief.", capabilities=[compact])
            agent.tool_plain(door_kit.look)
            limits = pydantic_ai.usage.UsageLimits(request_limit=None)
            result = await agent.run(TASK, usage_limits=limits)
            again = await agent.run("And now?", message_history=result.all_messages())
    assert (result.output, again.output) == ("all is seen", "nothing more")
    door_kit.check(server)


async def test_what_stays_is_as_it_was() -> None:
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    from agentloop.integrations import pydantic_ai as door

    said: list[Any] = [ModelRequest(parts=[UserPromptPart(["See", "this"])], metadata={"a": 1})]
    for at in range(40):
        call = ToolCallPart("look", {"number": at}, f"c{at}")
        thought = ThinkingPart("hm", signature=f"signed {at}")
        said.append(ModelResponse(parts=[thought, TextPart("I look."), call]))
        said.append(ModelRequest(parts=[ToolReturnPart("look", door_kit.look(at), f"c{at}")], run_id="r"))
    capability = door.CompactHistory(window=WINDOW)
    items = list(door._items(said))
    kept = list(door._messages(await capability._fold(items)))
    assert len(kept) < len(said)
    assert kept[-9:] == said[-9:]
    assert list(door._messages(items)) == said
    few = items[:3]
    assert await capability._fold(few) is few


def test_the_script_of_the_documentation_runs() -> None:
    assert door_kit.printed("pydantic_ai") == "all is seen\n"
