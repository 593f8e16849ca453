"""How a model that lives in this process answers, so that nothing above can tell it from a server."""

import re
from collections.abc import Iterator

from agentloop.context import TokenCounter, count_message, count_request
from agentloop.errors import ContextTooLongError
from agentloop.messages import Message, Usage
from agentloop.models import Answer, ModelPart, ModelRequest, OutputPart, TextPart
from agentloop.prompts import FINAL_ANSWER

_PIECES = re.compile(r"\s*\S+|\s+\Z")


def admitted(request: ModelRequest, window: int | None, counter: TokenCounter) -> int:
    """The request's tokens by our own count.

    Raises:
        ContextTooLongError: with the output it asks for it is larger than the window.
    """
    tokens = count_request(request, counter)
    wanted = tokens + (request.max_output_tokens or 0)
    if window is not None and wanted > window:
        raise ContextTooLongError(
            f"the request is {wanted} tokens, the window is {window}: shorten the messages",
            window=window,
            tokens=wanted,
        )
    return tokens


def answer_of(message: Message, input_tokens: int, counter: TokenCounter) -> Answer:
    """The message as a finished answer whose usage is our own count."""
    usage = Usage(input_tokens=input_tokens, output_tokens=count_message(message, counter))
    return Answer(message=message, usage=usage, finish="tool_calls" if message.tool_calls else "stop")


def streamed(answer: Answer) -> Iterator[ModelPart]:
    """The answer word by word, and with it the arguments of what gives an answer of a type."""
    for piece in _PIECES.findall(answer.message.text):
        yield TextPart(text=piece)
    for call in answer.message.tool_calls:
        if call.name.startswith(FINAL_ANSWER):
            yield from (OutputPart(tool=call.name, text=piece) for piece in _PIECES.findall(call.arguments))
    yield answer
