"""An agent of strands with our compaction, against the strict provider."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests import door_kit
from tests.door_kit import TASK, WINDOW, provider

pytestmark = pytest.mark.integrations


async def test_an_agent_works_for_sixty_steps_in_a_small_window() -> None:
    import strands
    from openai import AsyncOpenAI
    from strands.models.openai import OpenAIModel

    from agentloop.integrations.strands import CompactConversation

    with provider(says="I look.") as server:
        async with AsyncOpenAI(base_url=server.url, api_key="none") as client:
            agent = strands.Agent(
                OpenAIModel(client, model_id="any"),
                system_prompt="Be brief.",
                tools=[strands.tool(door_kit.look)],
                conversation_manager=CompactConversation(window=WINDOW),
                callback_handler=None,
            )
            result = await agent.invoke_async(TASK)
            again = await agent.invoke_async("And now?")
    assert (str(result).strip(), str(again).strip()) == ("all is seen", "nothing more")
    door_kit.check(server)


def test_what_stays_is_as_it_was() -> None:
    from strands.types.exceptions import ContextWindowOverflowException

    from agentloop.integrations.strands import CompactConversation

    said: list[Any] = [{"role": "user", "content": [{"text": TASK}], "metadata": {"custom": {"a": 1}}}]
    for at in range(40):
        thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "signed"}}}
        uses = [{"toolUse": {"toolUseId": f"{at}{x}", "name": "look", "input": {"n": at}}} for x in "ab"]
        said.append({"role": "assistant", "content": [thought, {"text": "I look."}, *uses]})
        found: list[Any] = [{"text": door_kit.look(at)}, {"json": {"n": at}}]
        results = [
            {"toolResult": {"toolUseId": f"{at}{x}", "status": "success", "content": found}} for x in "ab"
        ]
        said.append({"role": "user", "content": results})
    registry = SimpleNamespace(get_all_tool_specs=list)
    agent = SimpleNamespace(messages=[*said], system_prompt=None, tool_registry=registry)
    manager = CompactConversation(window=WINDOW)
    manager.reduce_context(agent)
    assert len(agent.messages) < len(said)
    assert said[0] in agent.messages
    assert agent.messages[-2:] == said[-2:]
    refused = ContextWindowOverflowException("too long")
    agent.messages = said[:1]
    with pytest.raises(ContextWindowOverflowException, match="too long"):
        manager.reduce_context(agent, refused)


def test_the_script_of_the_documentation_runs() -> None:
    assert door_kit.printed("strands") == "all is seen\n"
