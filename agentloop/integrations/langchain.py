"""Compaction for agents of langchain (https://docs.langchain.com/oss/python/langchain/agents).

agent = create_agent(model, tools, middleware=[CompactMiddleware(window="128k")])
"""

from collections.abc import Iterable
from typing import Any

from agentloop._plumbing.aio import in_own_loop
from agentloop.extras import missing_extra
from agentloop.integrations.door import Door
from agentloop.messages import Json
from agentloop.models import ChatModel
from agentloop.strategies import Strategy
from agentloop.triggers import Trigger

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
    from langchain_core.messages.utils import convert_to_openai_messages
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.graph.message import REMOVE_ALL_MESSAGES
except ImportError as error:
    raise missing_extra("langchain needs", "langchain") from error

__all__ = ["CompactMiddleware"]


class CompactMiddleware(Door[AnyMessage], AgentMiddleware[Any, Any]):
    """Keeps an agent's messages inside the window: for the `middleware` of `create_agent`.

    What leaves the messages is replaced by a record of it, in the agent's state too. What stays is as it was,
    with ids and all. `system` and `tools` are what the agent was made with, for which there must be room. The
    other arguments are as `compact_messages` has them; without a `trigger` nothing is done below 75 % of the
    window.
    """

    def __init__(
        self,
        *,
        window: int | str,
        strategy: Strategy | None = None,
        model: ChatModel | None = None,
        trigger: Trigger | None = None,
        system: str | None = None,
        tools: Iterable[Any] = (),
    ) -> None:
        super().__init__(window=window, strategy=strategy, model=model, trigger=trigger)
        self._system, self._schemas = system, [convert_to_openai_tool(tool) for tool in tools]

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Make the messages fit before each request."""
        return in_own_loop(self.abefore_model(state, runtime))

    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """The same, awaited."""
        messages = state["messages"]
        short = await self._fold(messages, system=self._system, tools=self._schemas)
        if short is messages:
            return None
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *short]}

    def _read(self, item: AnyMessage) -> Json:
        read = convert_to_openai_messages(item)
        assert isinstance(read, dict)
        return read

    def _write(self, message: Json) -> AnyMessage:
        kind = AIMessage if message["role"] == "assistant" else HumanMessage
        return kind(content=message["content"])

    def _change(self, item: AnyMessage, text: str) -> AnyMessage:
        return item.model_copy(update={"content": text})
