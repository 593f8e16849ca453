"""A model that a server has: what the classes behind its several paths share."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from agentloop.messages import Usage
from agentloop.models import ModelPart, ModelRequest
from agentloop.openai_api.endpoint import Endpoint


class ServedModel:
    """A model behind one path of a server's API; `max_output_tokens` limits answers that name no limit."""

    def __init__(self, endpoint: Endpoint, max_output_tokens: int | None) -> None:
        self._endpoint = endpoint
        self._max_output_tokens = max_output_tokens

    def __repr__(self) -> str:
        choice, window = self._endpoint.choice, self._endpoint.window
        return f"{type(self).__name__}({choice.model!r}, base_url={choice.place!r}, window={window})"

    @property
    def name(self) -> str:
        """The model's name, as the server knows it."""
        return self._endpoint.choice.model

    @property
    def window(self) -> int | None:
        """The most tokens a request and its answer may have together.

        Where none was given, the one published for a model of that name, else what `ask_window` found out;
        None where none is known.
        """
        return self._endpoint.window.tokens

    async def ask_window(self) -> int | None:
        """The window; where none is given nor published, the server is asked for it, once and for 3 seconds.

        A server that does not say, or not in time, leaves it unknown. OpenAI's own never says, and is not
        asked. Never raises.
        """
        return await self._endpoint.ask_window()

    def price(self, usage: Usage, /) -> float | None:
        """What this usage costs in US dollars, by the given price, else the published one.

        None where none is known: a server on this machine has no published price. Never raises.
        """
        return self._endpoint.price(usage)

    @property
    def max_output_tokens(self) -> int | None:
        """The most tokens of an answer, None for no limit of ours."""
        return self._max_output_tokens

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelPart, None]:
        """Answer the request: text as it comes, a `Retry` before each wait, then one `Answer`.

        Raises:
            UsageError: no server is named, or the key cannot be sent.
            ModelUnavailableError: no connection, 408, 409, 429 or 5xx, at the last try too.
            ModelRefusedError: any other 4xx, and 429 for an unpaid bill; it is sent once, but where the
                refusal names what can be left out or said otherwise: that is found out once, and kept to by
                this instance.
            ContextTooLongError: the server says so, in whatever words; it is sent once.
            BadAnswerError: what came is no answer.
        """
        async with aclosing(self._endpoint.answer(request)) as parts:
            async for part in parts:
                yield part

    async def close(self) -> None:
        """Close the connections of the running event loop; those of others close when these end."""
        await self._endpoint.close()
