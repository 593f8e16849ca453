"""Ids of calls: each unique where it is used, also where a server leaves them empty or uses them again."""

from collections.abc import Collection
from operator import is_

from agentloop._plumbing.strict_json import cleaned
from agentloop.messages import Message, ToolCall


class CallIds:
    """Gives every call an id of its own among those that it has given and those that are `known`."""

    def __init__(self, known: Collection[str] = ()) -> None:
        self._known = known
        self._given: set[str] = set()
        self._times: dict[str, int] = {}

    def of_message(self, message: Message) -> Message:
        """The message with ids of their own for its calls; the message itself where they are already."""
        calls = tuple(map(self.of_call, message.tool_calls))
        same = all(map(is_, calls, message.tool_calls))
        return message if same else message.with_calls(calls)

    def of_call(self, call: ToolCall) -> ToolCall:
        """The call by its own id where that is free, else by the next free one made from it."""
        said = cleaned(call.id)
        name = said
        while not name or name in self._given or name in self._known:
            self._times[said] = self._times[said] + 1 if said in self._times else 2
            name = f"{said or 'call'}_{self._times[said]}"
        self._given.add(name)
        return call if name == call.id else call.with_id(name)
