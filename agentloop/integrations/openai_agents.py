"""Compaction for agents of openai-agents (https://openai.github.io/openai-agents-python).

compact = CompactInput(window="128k")
await Runner.run(agent, prompt, run_config=RunConfig(call_model_input_filter=compact))
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from agentloop.context import chat_messages
from agentloop.extras import missing_extra
from agentloop.integrations.door import Door, schema_of
from agentloop.messages import Json

try:
    from agents import FunctionTool, SessionABC
    from agents.memory import Session
    from agents.run_config import CallModelData, ModelInputData
except ImportError as error:
    raise missing_extra("openai-agents needs", "openai-agents") from error

__all__ = ["CompactInput", "CompactSession"]

_Item: TypeAlias = tuple[Any, ...]
"""The items of one message: a user's, a result, or an answer with its thoughts and calls."""

MOST_KEPT = 16
"""So many inputs are remembered with what became of them, one for each run that goes on."""


class CompactInput(Door[_Item]):
    """Keeps what an agent sends inside the window: a `call_model_input_filter` of a `RunConfig`.

    What leaves the input is replaced by a record of it. What stays is as it was, thoughts and ids too. Each
    input begins as the one before it was sent, so that a provider's prompt cache helps. The arguments are as
    `compact_messages` has them; without a `trigger` nothing is done below 75 % of the window.
    """

    @cached_property
    def _sent(self) -> OrderedDict[int, tuple[list[Any], list[Any]]]:
        """The newest inputs that were made to fit, each with what was sent in its place."""
        return OrderedDict()

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """The input that fits."""
        given, asked = data.model_data, list(data.model_data.input)
        tools = [
            schema_of(tool.name, tool.description, tool.params_json_schema)
            for tool in data.agent.tools
            if isinstance(tool, FunctionTool)
        ]
        short = await self.fold(asked, system=given.instructions, tools=tools)
        return ModelInputData(input=short, instructions=given.instructions)

    async def fold(
        self, items: Sequence[Any], *, system: str | None = None, tools: Iterable[Json] = ()
    ) -> list[Any]:
        """The items that fit, beginning with what the same were sent as before."""
        key, known = next(
            ((key, known) for key, known in self._sent.items() if items[: len(known[0])] == known[0]),
            (id(items), ([], [])),
        )
        asked = [*known[1], *items[len(known[0]) :]]
        groups = list(_groups(asked))
        short = await self._fold(groups, system=system, tools=tools)
        sent = asked if short is groups else [item for group in short for item in group]
        if short is not groups or key in self._sent:
            self._sent[key] = list(items), sent
            self._sent.move_to_end(key)
            if len(self._sent) > MOST_KEPT:
                self._sent.popitem(last=False)
        return list(sent)

    def _read(self, item: _Item) -> Json:
        return next(iter(chat_messages(item)), {"role": "assistant", "content": ""})

    def _write(self, message: Json) -> _Item:
        return ({"type": "message", "role": message["role"], "content": message["content"]},)

    def _change(self, item: _Item, text: str) -> _Item:
        return ({**item[0], "output": text},)


class CompactSession(SessionABC):
    """A session that gives what fits the window; all that was said stays in the `session` below it."""

    def __init__(self, session: Session, compact: CompactInput) -> None:
        self._session, self._compact = session, compact
        self.session_id = session.session_id

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items that fit; with a `limit` the newest ones as they were said."""
        items = await self._session.get_items(limit)
        return items if limit is not None else await self._compact.fold(items)

    async def add_items(self, items: list[Any]) -> None:
        """Keep these items, whole."""
        await self._session.add_items(items)

    async def pop_item(self) -> Any:
        """Take the newest item back."""
        return await self._session.pop_item()

    async def clear_session(self) -> None:
        """Forget all items."""
        await self._session.clear_session()


def _groups(items: Iterable[Any]) -> Iterator[_Item]:
    """The items by the message that they make together: thoughts, texts and calls in a row are one answer."""
    answer: list[Any] = []
    for item in items:
        is_result = str(item.get("type", "")).endswith("_output")
        if not is_result and (item.get("role") == "assistant" or "role" not in item):
            answer.append(item)
            continue
        if answer:
            yield tuple(answer)
            answer = []
        yield (item,)
    if answer:
        yield tuple(answer)
