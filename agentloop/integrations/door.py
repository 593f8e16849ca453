"""What the doors to other frameworks share: their messages as chat completions, compacted, and back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from agentloop.compaction import Compaction, compact_messages_async
from agentloop.messages import Json
from agentloop.models import ChatModel
from agentloop.strategies import Strategy
from agentloop.triggers import Trigger

T = TypeVar("T")

_MARK = "agentloop_item"
"""The field that says which item a message was; it is taken out before a message goes anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door(Generic[T]):
    """Keeps the items of another framework inside a window; an item is what one chat message stands for.

    `read` gives that message, `write` the item of a message that no item was, `change` an item with the text
    of a message which is shown shortened. All other items come back as they were given, whatever they hold.
    The rest is as `compact_messages` has it, but that without a `trigger` nothing is done below 75 % of the
    window.
    """

    window: int | str
    strategy: Strategy | None
    model: ChatModel | None
    trigger: Trigger | None
    read: Callable[[T], Json]
    write: Callable[[Json], T]
    change: Callable[[T, str], T]

    async def fold(
        self, items: Sequence[T], *, system: str | None = None, tools: Iterable[Mapping[str, Any]] = ()
    ) -> Sequence[T]:
        """The items that fit, with a record in place of what does not; those given where nothing was done.

        `system` and `tools` are what goes with them in a request.

        Raises:
            UsageError: the window is no size.
            ContextOverflowError: they cannot be made to fit.
        """
        said = [{**self.read(item), _MARK: at} for at, item in enumerate(items)]
        head = [{"role": "system", "content": system, _MARK: -1}] if system else []
        short = await compact_messages_async(
            [*head, *said],
            self.strategy,
            window=self.window,
            model=self.model,
            trigger=self.trigger or Compaction().trigger,
            tools=tools,
        )
        if not any(result.status == "done" for result in short.results):
            return items
        return [self._back(message, items) for message in short if message.get(_MARK) != -1]

    def _back(self, message: Json, items: Sequence[T]) -> T:
        at = message.get(_MARK)
        if at is None:
            return self.write(message)
        item, text = items[at], message["content"]
        if message["role"] != "tool" or text == self.read(item)["content"]:
            return item
        return self.change(item, text)
