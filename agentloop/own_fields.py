"""Which fields of a message are one API's own: kept in the log, and sent to no other API.

Chat completions get every field of a message but `response_items`; the Responses API gets what the typed
fields say and `response_items`, so that `reasoning_content` and the like never reach it.
"""

from collections.abc import Iterable

from agentloop.messages import Json

RESPONSE_ITEMS = "response_items"
"""The items that an assistant message of the Responses API came as; no other API knows the field.

What the typed fields of the message say is left out there, and filled in again when it is sent.
"""


def for_chat_completions(messages: Iterable[Json]) -> tuple[Json, ...]:
    """The messages without what only the Responses API takes.

    Example:
        >>> for_chat_completions([{"role": "assistant", "content": "Yes.", "response_items": []}])
        ({'role': 'assistant', 'content': 'Yes.'},)
    """
    return tuple(
        {key: value for key, value in message.items() if key != RESPONSE_ITEMS}
        if RESPONSE_ITEMS in message
        else message
        for message in messages
    )
