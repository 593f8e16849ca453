"""The forms in which a server answers: what differs between the paths of its API."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import openai
from openai import AsyncAPIResponse

from agentloop.models import Answer, ModelPart, ModelRequest
from agentloop.openai_api.dialect import Dialect

Body: TypeAlias = Mapping[str, Any]
Response: TypeAlias = AsyncAPIResponse[Any]
Post: TypeAlias = Callable[[openai.AsyncOpenAI, str, bool, Body], AbstractAsyncContextManager[Response]]
"""Sends a body to a model, streamed or not, and gives the response before its body is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One path of the API: how a request becomes a body, streamed or not, and what comes back an answer.

    `streamed` reads the bytes of a stream in which the server may be silent for so many seconds, `whole` the
    bytes of an answer in one piece. Both raise `BadAnswerError`, `ServerSaidError`, and
    `ModelUnavailableError` where the answer broke off.
    `missing` says what helps where the server has no such path, `kept` are fields that no refusal takes out.
    """

    post: Post
    body: Callable[[ModelRequest, Dialect, bool], dict[str, Any]]
    streamed: Callable[[AsyncIterator[bytes], float], AsyncGenerator[ModelPart, None]]
    whole: Callable[[bytes], Answer]
    missing: str = ""
    kept: frozenset[str] = frozenset()


def post_chat(
    client: openai.AsyncOpenAI, model: str, streams: bool, body: Body
) -> AbstractAsyncContextManager[Response]:
    """Ask for a chat completion; the body goes in as it is, since the client would walk every message."""
    create = client.chat.completions.with_streaming_response.create
    return create(model=model, messages=[], stream=streams, extra_body=body)


def post_responses(
    client: openai.AsyncOpenAI, model: str, streams: bool, body: Body
) -> AbstractAsyncContextManager[Response]:
    """Ask for a response; the body goes in as it is, since the client would walk every item."""
    create = client.responses.with_streaming_response.create
    return create(model=model, input=[], stream=streams, extra_body=body)
