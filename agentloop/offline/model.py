"""The stand-in behind the interface of a model."""

from collections.abc import AsyncGenerator
from dataclasses import replace

from agentloop._plumbing.checks import named_tokens_or_none, whole
from agentloop.context import TokenCounter, counter_for
from agentloop.messages import Message, Usage
from agentloop.models import ModelPart, ModelRequest
from agentloop.offline.chat import chat
from agentloop.offline.named import named_tool_step
from agentloop.offline.reading import reading_step
from agentloop.offline.record import facts_of, record_of
from agentloop.offline.task import file_task, named_files
from agentloop.offline.view import View, view_of
from agentloop.replies import admitted, answer_of, streamed

MOST_CHARS_HEEDED = 2_000
"""It looks for what is asked in so many characters of the newest message; what is pasted stands behind."""


class OfflineModel:
    """Answers by rules, without a key or a network.

    `window` in tokens, or as "8k", makes it refuse larger requests as a server does; `side_by_side` is how
    many files it reads in one step.

    It costs nothing.

    Raises:
        UsageError: `window` is no number of tokens, or `side_by_side` no whole number of at least 1.

    Raises, when asked:
        ContextTooLongError: the request and the output it asks for exceed `window`.
    """

    name = "offline"
    max_output_tokens: int | None = None

    def __init__(self, *, window: int | str | None = None, side_by_side: int = 2) -> None:
        self.window = named_tokens_or_none("window", window)
        whole("side_by_side", side_by_side, 1)
        self._side_by_side = side_by_side

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """The answer's text word by word, then the whole."""
        counter = counter_for(self.name)
        tokens = admitted(request, self.window, counter)
        message = _reply(request, counter, self._side_by_side)
        for part in streamed(answer_of(message, tokens, counter)):
            yield part

    def price(self, usage: Usage, /) -> float:
        """Nothing, whatever was used."""
        return 0.0


def _reply(request: ModelRequest, counter: TokenCounter, side_by_side: int) -> Message:
    view = view_of(request)
    match request.purpose:
        case "summary":
            most = request.max_output_tokens or 2_000
            return Message.assistant(record_of(view.asked, most_tokens=most * 9 // 10, counter=counter))
        case "memory":
            return Message.assistant("\n".join(facts_of(view.asked)))
    return _step(replace(view, asked=view.asked[:MOST_CHARS_HEEDED]), side_by_side)


def _step(view: View, side_by_side: int) -> Message:
    if task := file_task(view.asked):
        return reading_step(task, view, side_by_side)
    if step := named_tool_step(view):
        return step
    if task := named_files(view.asked):
        return reading_step(task, view, side_by_side)
    return Message.assistant(chat(view))
