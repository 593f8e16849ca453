"""What triggers and strategies see, made from messages: to try one of yours without a model or a store."""

from agentloop.context import Context
from agentloop.events import MessageRecord, Record
from agentloop.messages import Message


def context_of(*messages: Message, tokens: int = 10, time: float = 0.0) -> Context:
    """The context after these messages, each taken to be so many tokens long and said at this time.

    Example:
        >>> context_of(Message.user("hi"), Message.assistant("hello"), tokens=8).tokens
        16
    """
    said = (MessageRecord(message=message, tokens=tokens, time=time) for message in messages)
    return Context.of(Record(seq=seq, event=event) for seq, event in enumerate(said, 1))
