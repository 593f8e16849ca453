"""Ids of calls: each unique where it is used, also where a server leaves them empty or uses them again."""

from collections.abc import Iterable
from dataclasses import replace

from agentloop.messages import Message, ToolCall
from agentloop.wire_form import cleaned


class CallIds:
    """Gives every call an id of its own among those that it has seen."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._used = {call.id for message in messages for call in message.tool_calls}
        self._times: dict[str, int] = {}

    def of_message(self, message: Message) -> Message:
        """The message with ids of their own for its calls; the message itself where they are already."""
        calls = tuple(self.of_call(call) for call in message.tool_calls)
        return replace(message, tool_calls=calls) if calls != message.tool_calls else message

    def of_call(self, call: ToolCall) -> ToolCall:
        """The call by its own id where that is free, else by the next free one made from it."""
        given = cleaned(call.id)
        name = given
        while not name or name in self._used:
            self._times[given] = self._times.get(given, 1) + 1
            name = f"{given or 'call'}_{self._times[given]}"
        self._used.add(name)
        return call if name == call.id else replace(call, id=name)
