"""An agent of langchain with our compaction, against the strict provider."""

from typing import Any

import pytest

from tests import door_kit
from tests.door_kit import TASK, WINDOW, provider

pytestmark = pytest.mark.integrations


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_agent_works_for_sixty_steps_in_a_small_window() -> None:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI
    from openai import AsyncOpenAI

    from agentloop.integrations.langchain import CompactMiddleware

    compact = CompactMiddleware(window=WINDOW, system="Be brief.", tools=[door_kit.look])
    with provider() as server:
        async with AsyncOpenAI(base_url=server.url, api_key="none") as client:
            model = ChatOpenAI(model="any", api_key="none", async_client=client.chat.completions)  # type: ignore[arg-type]
            agent: Any = create_agent(model, [door_kit.look], system_prompt="Be brief.", middleware=[compact])
            said = [{"role": "user", "content": TASK}]
            result = await agent.ainvoke({"messages": said}, {"recursion_limit": 999})
            said = [*result["messages"], {"role": "user", "content": "And now?"}]
            again = await agent.ainvoke({"messages": said}, {"recursion_limit": 999})
    assert (result["messages"][-1].content, again["messages"][-1].content) == ("all is seen", "nothing more")
    door_kit.check(server)


async def test_what_stays_is_as_it_was() -> None:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from agentloop.integrations.langchain import CompactMiddleware

    said: list[Any] = [HumanMessage(TASK, id="task", additional_kwargs={"a": 1})]
    for at in range(40):
        call = {"name": "look", "args": {"number": at}, "id": f"c{at}"}
        thought = {"type": "thinking", "thinking": "hm", "signature": "signed"}
        said.append(AIMessage([thought, {"type": "text", "text": "I look."}], tool_calls=[call], id=f"a{at}"))
        said.append(ToolMessage(door_kit.look(at), tool_call_id=f"c{at}", artifact={"at": at}))
    compact = CompactMiddleware(window=WINDOW)
    assert compact.before_model({"messages": said[:7]}, None) is None
    update = compact.before_model({"messages": said}, None)
    assert update
    assert len(update["messages"]) < len(said)
    assert update["messages"][-8:] == said[-8:]
    assert said[0] in update["messages"]


def test_the_script_of_the_documentation_runs() -> None:
    assert door_kit.printed("langchain") == "all is seen\n"
