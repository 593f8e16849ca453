"""What the doors to other frameworks share: their messages as chat completions, compacted, and back."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from agentloop.compaction import Compaction, compact_messages_async
from agentloop.messages import Json
from agentloop.models import ChatModel
from agentloop.strategies import Strategy
from agentloop.triggers import Trigger

T = TypeVar("T")

_MARK = "agentloop_item"
"""The field that says which item a message was; it is taken out before a message goes anywhere."""


class Door(ABC, Generic[T]):
    """Keeps the items of another framework inside a window; an item is what one chat message stands for.

    All items come back as they were given, whatever they hold, but for those that are shown shortened. The
    arguments are as `compact_messages` has them, but that without a `trigger` nothing is done below 75 % of
    the window.
    """

    def __init__(
        self,
        *,
        window: int | str,
        strategy: Strategy | None = None,
        model: ChatModel | None = None,
        trigger: Trigger | None = None,
    ) -> None:
        super().__init__()
        self._window, self._strategy, self._model = window, strategy, model
        self._trigger = trigger or Compaction().trigger

    @abstractmethod
    def _read(self, item: T) -> Json:
        """The message that the item is."""

    @abstractmethod
    def _write(self, message: Json) -> T:
        """The item of a message that no item was."""

    @abstractmethod
    def _change(self, item: T, text: str) -> T:
        """The item with the text of a message which is shown shortened."""

    async def _fold(
        self,
        items: Sequence[T],
        *,
        system: str | None = None,
        tools: Iterable[Mapping[str, Any]] = (),
        trigger: Trigger | None = None,
    ) -> Sequence[T]:
        """The items that fit, with a record in place of what does not; those given where nothing was done.

        `system` and `tools` are what goes with them in a request, `trigger` stands for that of the door.

        Raises:
            UsageError: the window is no size.
            ContextOverflowError: they cannot be made to fit.
        """
        said = [{**self._read(item), _MARK: at} for at, item in enumerate(items)]
        head = [{"role": "system", "content": system, _MARK: -1}] if system else []
        short = await compact_messages_async(
            [*head, *said],
            self._strategy,
            window=self._window,
            model=self._model,
            trigger=trigger or self._trigger,
            tools=tools,
        )
        if not any(result.status == "done" for result in short.results):
            return items
        return [self._back(message, items) for message in short if message.get(_MARK) != -1]

    def _back(self, message: Json, items: Sequence[T]) -> T:
        at = message.get(_MARK)
        if at is None:
            return self._write(message)
        item, text = items[at], message["content"]
        if message["role"] != "tool" or text == self._read(item)["content"]:
            return item
        return self._change(item, text)


def schema_of(name: str, description: str | None, parameters: Mapping[str, Any]) -> Json:
    """The tool as chat completions have it."""
    function = {"name": name, "description": description or "", "parameters": parameters}
    return {"type": "function", "function": function}
