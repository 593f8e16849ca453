"""`OpenAIChat`, a model behind chat completions, and how its requests are made."""

from typing import Any

from openai import AsyncOpenAI

from agentloop.context import for_chat_completions
from agentloop.models import Answer, ModelRequest
from agentloop.providers.openai.chat_answer import GrowingCompletion, whole
from agentloop.providers.openai.dialect import Dialect
from agentloop.providers.openai.endpoint import Body, Posted, ServedModel
from agentloop.providers.openai.fields import OWN_FIELDS, fields_for
from agentloop.providers.openai.schemas import answer_format


class OpenAIChat(ServedModel):
    """A model behind chat completions.

    Args:
        model: Its name, as the server knows it.
        base_url: The API's address; by default `OPENAI_BASE_URL` of the environment, else OpenAI's own.
        api_key: By default `OPENAI_API_KEY` of the environment; with a base URL and no key a placeholder
            is sent, as servers on one's own machine want none.
        headers: Sent with each request to that address, and to no other, such as a gateway's token. They are
            kept secret like the key; an `Authorization` among them is sent in its place.
        window: The most tokens a request and its answer may have together, such as 128000 or "128k".
        price: What it costs, where that is not what is published for a model of that name.
        max_output_tokens: The most tokens of an answer; no limit is sent where it is None.
        stream: Whether answers are asked for piece by piece.
        retry: How failures that may pass are tried again.
        timeout_seconds: The longest silence of the server: 300 by default. One that goes on saying that it
            lives, and nothing more, is waited for four times as long.
        temperature: Sent where it is not None.
        extra_body: Further fields of every request.

    One instance serves several event loops; connections are kept for each, for as long as it runs.

    Raises:
        UsageError: a size, a number, a header or the base URL makes no sense.
    """

    api = "chat"

    def _body(self, request: ModelRequest, dialect: Dialect, streams: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"messages": for_chat_completions(request.messages)}
        if request.tools:
            body["tools"] = request.tools
        if limit := request.max_output_tokens or self.max_output_tokens:
            body[dialect.limit_field] = limit
        if request.answer_schema is not None:
            wanted = answer_format(request.answer_schema)
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        if streams:
            body["stream_options"] = OWN_FIELDS["stream_options"]
        return {**fields_for(self._fields, request), **body}

    def _post(self, client: AsyncOpenAI, streams: bool, body: Body) -> Posted:
        create = client.chat.completions.with_streaming_response.create
        return create(model=self._choice.model, messages=[], stream=streams, extra_body=body)

    def _growing(self) -> GrowingCompletion:
        return GrowingCompletion()

    def _whole(self, body: bytes) -> Answer:
        return whole(body)
