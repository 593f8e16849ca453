"""An agent of openai-agents with our compaction, against the strict provider."""

from typing import Any

import pytest

from tests import door_kit
from tests.door_kit import TASK, WINDOW, provider

pytestmark = pytest.mark.integrations


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_agent_works_for_sixty_steps_in_a_small_window(api: str) -> None:
    import agents
    from openai import AsyncOpenAI

    from agentloop.integrations.openai_agents import CompactInput, CompactSession

    agents.set_tracing_disabled(True)
    compact = CompactInput(window=WINDOW)
    whole = agents.SQLiteSession("s")
    session = CompactSession(whole, compact)
    settings = agents.RunConfig(call_model_input_filter=compact)
    models = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}
    with provider(thinks="hm" if api == "responses" else None) as server:
        async with AsyncOpenAI(base_url=server.url, api_key="none") as client:
            model = models[api]("any", openai_client=client)
            tools = [agents.function_tool(door_kit.look)]
            agent = agents.Agent(name="looker", instructions="Be brief.", model=model, tools=tools)
            options: dict[str, Any] = {"session": session, "run_config": settings, "max_turns": 99}
            result = await agents.Runner.run(agent, TASK, **options)
            again = await agents.Runner.run(agent, "And now?", **options)
    assert (result.final_output, again.final_output) == ("all is seen", "nothing more")
    door_kit.check(server)
    thoughts = door_kit.STEPS if api == "responses" else 0
    assert len(await whole.get_items()) == 2 * door_kit.STEPS + 4 + thoughts
    whole.close()


async def test_what_stays_is_as_it_was_and_what_was_sent_is_sent_again() -> None:
    from agentloop.integrations.openai_agents import CompactInput

    said: list[Any] = [{"role": "user", "content": TASK}]
    for at in range(40):
        said.append({"type": "reasoning", "id": f"rs_{at}", "summary": [], "encrypted_content": "signed"})
        call = {"type": "function_call", "call_id": f"c{at}", "name": "look", "id": f"fc_{at}"}
        said.append({**call, "arguments": f'{{"number": {at}}}', "status": "completed"})
        said.append({"type": "function_call_output", "call_id": f"c{at}", "output": door_kit.look(at)})
    compact = CompactInput(window=WINDOW)
    assert await compact.fold(said[:7]) == said[:7]
    short = await compact.fold(said)
    assert len(short) < len(said)
    assert short[-9:] == said[-9:]
    more = [*said, {"role": "user", "content": "Go on."}]
    assert await compact.fold(more) == [*short, more[-1]]


def test_the_script_of_the_documentation_runs() -> None:
    assert door_kit.printed("openai_agents") == "all is seen\n"
