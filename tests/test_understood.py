"""What servers say is understood as it came; only what is kept and shown of it has no secrets."""

import pytest

from agentloop import OpenAIChat
from agentloop.errors import BadAnswerError, ContextTooLongError
from agentloop.models import ModelRequest
from agentloop.providers.openai import ServerChoice, understand
from tests.server_kit import answer_of, at_once, error_of
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Fault, invalid
from tests.test_border_breaks import reachable

TOO_LONG = (
    "This model's maximum context length is 4000 tokens. However, you requested 5200 tokens (5000 in the "
    "messages, 200 in the completion)."
)
ORDINARY_KEYS = ["context", "token", "model", "000", "length", "messages", "completion"]


@pytest.mark.parametrize("key", ORDINARY_KEYS)
@pytest.mark.parametrize("status", [400, 200])
async def test_an_overflow_is_understood_whatever_the_key(key: str, status: int) -> None:
    said = {"error": {"message": TOO_LONG, "type": "BadRequestError"}}
    with StrictProvider(lambda _: Fault(status=status, body=said)) as server:
        error = await error_of(OpenAIChat("m", base_url=server.url, api_key=key, retry=at_once()))
    assert isinstance(error, ContextTooLongError)
    assert (error.window, error.tokens, error.output_tokens) == (4_000, 5_200, 200)
    assert "***" in str(error)
    assert key not in str(error)


CALLED: tuple[Body, ...] = (
    {"role": "user", "content": "Look"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "seen"},
)


@pytest.mark.parametrize("key", ["sk-no-key-required", "not-required", "required", "reasoning_content"])
async def test_a_dialect_is_understood_whatever_the_key(key: str) -> None:
    def answer(body: Body) -> Answered | str:
        if any("reasoning_content" in message for message in body["messages"]):
            return "ok"
        return invalid(400, "reasoning_content is required in assistant tool call messages")

    with StrictProvider(answer) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=key, retry=at_once())
        assert (await answer_of(model, ModelRequest(messages=CALLED))).message.text == "ok"
        assert len(server.requests) == 2


@pytest.mark.parametrize("key", ["stream_options", "supported", "sk-not-supported"])
async def test_a_field_is_understood_whatever_the_key(key: str) -> None:
    with StrictProvider(lambda _: "ok", refuses=["stream_options"]) as server:
        model = OpenAIChat("strict", base_url=server.url, api_key=key, retry=at_once())
        assert (await answer_of(model)).message.text == "ok"
        assert len(server.requests) == 2


SECRET = "sk-Vault-0123456789-of-the-secret"


KEPT: list[object] = [
    {"error": {"message": f"the key {SECRET} may not", "param": SECRET}},
    {"error": "no", "error_type": SECRET, "beside": {"key": SECRET}},
    {"errors": [{"message": f"bad {SECRET}", "code": SECRET}]},
    {"Message": SECRET},
    {"error": "no", "title": SECRET, SECRET: 1},
    {"error": [SECRET]},
    f"no JSON but {SECRET}",
    "x " * 295 + SECRET,
]


@pytest.mark.parametrize("status", [400, 429, 500, 200])
async def test_what_is_kept_of_it_has_no_secrets(status: int) -> None:
    with StrictProvider([Fault(status=status, body=body) for body in KEPT]) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=SECRET, retry=at_once(1))
        told = [" ".join(reachable(await error_of(model))) for _ in KEPT]
    assert [text for text in told if SECRET[:12] in text] == []
    assert len(told) == len(server.requests)


class _OddError(ValueError):
    """An error that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("odd")


def test_an_error_that_cannot_be_read_is_one_of_ours() -> None:
    server = ServerChoice(model="m", base_url="http://localhost/v1", api_key=SECRET).server()
    error = understand(_OddError(SECRET), server).error
    assert isinstance(error, BadAnswerError)
    assert "_OddError, RuntimeError" in str(error)
    assert SECRET not in " ".join(reachable(error))
