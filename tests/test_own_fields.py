"""What nobody but us asked for is left out wherever a server names it, in whatever words; nothing else is."""

from collections.abc import Callable
from typing import Any

import pytest

from agentloop import OpenAIChat, OpenAIResponses
from agentloop.errors import ModelRefusedError
from tests.server_kit import answer_of, at_once, error_of, saying
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Fault

WORDS: dict[str, tuple[int, Body]] = {
    "invalid": (400, {"message": "Invalid parameter: '{}'"}),
    "a param": (400, {"message": "Bad request body", "param": "{}"}),
    "is invalid": (422, {"message": "The parameter '{}' is invalid here"}),
    "absent": (422, {"detail": [{"loc": ["body", "{}"], "msg": "Input should be absent"}]}),
    "a path": (400, {"message": "Validation failed", "param": "body.{}"}),
    "in Chinese": (400, {"message": "不支持的参数: {}"}),
    "in Chinese, in one": (400, {"message": "不支持{}参数"}),
    "a text": (400, {"message": "Request parameter {} could not be read"}),
}


def filled(value: Any, name: str) -> Any:
    """The value with this name in its texts."""
    match value:
        case str():
            return value.replace("{}", name)
        case dict():
            return {key: filled(item, name) for key, item in value.items()}
        case list():
            return [filled(item, name) for item in value]
    return value


def refusing(status: int, said: Body, name: str) -> Any:
    """A brain that refuses requests with this field in these words."""

    def answer(body: Body) -> Answered | str:
        if body.get(name) is None:
            return "ok"
        return Fault(status=status, body=filled(said if "detail" in said else {"error": said}, name))

    return answer


@pytest.mark.parametrize("words", WORDS)
async def test_our_stream_options_go_in_whatever_words_they_are_refused(words: str) -> None:
    with StrictProvider(refusing(*WORDS[words], "stream_options")) as server:
        model = OpenAIChat("strict", base_url=server.url, retry=at_once())
        for _ in range(2):
            assert (await answer_of(model)).message.text == "ok"
    assert ["stream_options" in body for body in server.bodies] == [True, False, False]
    assert all(body["stream"] for body in server.bodies)


class Asked(StrictProvider):
    """A provider that sees requests to the Responses API as they came, and may refuse them first."""

    def __init__(self, refuse: Callable[[Body], Fault | None], model: str = "strict") -> None:
        super().__init__(lambda _: "ok", model=model)
        self.posted: list[Body] = []
        self._refuse = refuse

    def _unknown(self, body: Body) -> Fault | None:
        self.posted.append(body)
        return self._refuse(body)


def fault_where(name: str, status: int, said: Body) -> Callable[[Body], Fault | None]:
    """Refuses requests with this field in these words."""
    answer = refusing(status, said, name)

    def refuse(body: Body) -> Fault | None:
        fault = answer(body)
        return fault if isinstance(fault, Fault) else None

    return refuse


@pytest.mark.parametrize("words", WORDS)
async def test_our_include_goes_in_whatever_words_it_is_refused(words: str) -> None:
    with Asked(fault_where("include", *WORDS[words])) as server:
        model = OpenAIResponses("strict", base_url=server.url, retry=at_once())
        for _ in range(2):
            assert (await answer_of(model)).message.text == "ok"
    assert ["include" in body for body in server.posted] == [True, False, False]
    assert all(body["store"] is False for body in server.posted)


UNKNOWN = [
    {"message": "Unknown parameter: 'store'.", "param": "store"},
    {"message": "Unrecognized request argument supplied: store"},
    {"message": "This model does not support the store parameter"},
    {"message": "不支持的参数: store"},
    {"message": "[{'type': 'extra_forbidden', 'loc': ('body', 'store'), 'input': False}]"},
]


@pytest.mark.parametrize("said", UNKNOWN)
async def test_store_goes_where_a_server_does_not_know_it(said: Body) -> None:
    with Asked(fault_where("store", 400, said)) as server:
        model = OpenAIResponses("strict", base_url=server.url, retry=at_once())
        for _ in range(2):
            assert (await answer_of(model)).message.text == "ok"
    assert [body.get("store") for body in server.posted] == [False, None, None]
    assert all("include" in body for body in server.posted)


NOT_UNKNOWN = [
    {"message": "Vector store not found."},
    {"message": "The vector store is not supported for this model."},
    {"message": "Bad request body", "param": "store"},
    {"message": "Invalid parameter: 'store'"},
    {"message": "Prompt 'pmpt_1' is not supported when 'store' is false"},
    {"message": "store=false is not supported"},
    {"message": "`store` cannot be changed here"},
    {"message": "store is fixed at 1"},
    {"message": "Unsupported: use metadata instead of store"},
    {"message": "`store` must be true when `background` is true.", "param": "store"},
    {"message": "Unsupported value: 'store' does not support false with this model.", "param": "store"},
    {
        "message": "Item with id 'msg_1' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input."
    },
]


@pytest.mark.parametrize("said", NOT_UNKNOWN)
async def test_a_server_is_never_let_store_a_conversation_for_a_mention_of_it(said: Body) -> None:
    with Asked(fault_where("store", 400, said)) as server:
        model = OpenAIResponses("strict", base_url=server.url, retry=at_once())
        for _ in range(2):
            assert isinstance(await error_of(model), ModelRefusedError)
    assert [body["store"] for body in server.posted] == [False] * len(server.posted)


@pytest.mark.parametrize("said", UNKNOWN)
async def test_a_store_that_the_user_set_is_never_left_out(said: Body) -> None:
    with Asked(fault_where("store", 400, said)) as server:
        model = OpenAIResponses("strict", base_url=server.url, retry=at_once(), extra_body={"store": False})
        assert isinstance(await error_of(model), ModelRefusedError)
    assert [body["store"] for body in server.posted] == [False]


async def test_what_did_not_help_when_it_was_left_out_is_asked_for_again() -> None:
    faults = [Fault(status=400, body={"error": {"message": "No `stream_options` without a stream"}})] * 2
    with StrictProvider([*faults, "ok"]) as server:
        model = OpenAIChat("strict", base_url=server.url, retry=at_once())
        assert isinstance(await error_of(model), ModelRefusedError)
        assert (await answer_of(model)).usage is not None
    assert ["stream_options" in body for body in server.bodies] == [True, False, True]


ECHO = "bad value in {'messages': [{'role': 'user'}], 'stream': true, 'stream_options': {}}"
SENT_ONCE: dict[str, tuple[int, Body]] = {
    "quotes the request": (400, {"message": ECHO}),
    "another field": (400, {"message": "Invalid parameter: 'temperature'", "param": "temperature"}),
    "a range": (400, {"message": "invalid temperature: must be between 0 and 1"}),
    "an idea of the user's": (400, {"message": "Invalid value for 'seed': too large", "param": "seed"}),
    "a key": (401, {"message": "no rights to use stream_options"}),
    "a plan": (403, {"message": "stream_options are for paying users"}),
    "what is needed": (400, {"message": "Invalid parameter: 'messages'", "param": "messages"}),
}


@pytest.mark.parametrize("words", SENT_ONCE)
async def test_l17_what_names_no_field_of_ours_is_sent_once(words: str) -> None:
    status, said = SENT_ONCE[words]
    with StrictProvider(lambda _: Fault(status=status, body={"error": said})) as server:
        model = OpenAIChat(
            "strict", base_url=server.url, retry=at_once(), temperature=1.5, extra_body={"seed": 1}
        )
        assert isinstance(await error_of(model), ModelRefusedError)
        assert len(server.requests) == 1


async def test_what_a_user_asked_for_is_no_field_of_ours() -> None:
    said = {"message": "Invalid value in 'include'", "param": "include[1]"}
    with StrictProvider(lambda _: Fault(status=400, body={"error": said})) as server:
        fields = {"include": ["message.output_text.logprobs"]}
        model = OpenAIResponses("strict", base_url=server.url, retry=at_once(), extra_body=fields)
        assert isinstance(await error_of(model), ModelRefusedError)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "message",
    [
        "invalid temperature: only 1 is allowed for this model",
        "不支持的参数：temperature",
        "模型不支持 temperature",
        "temperature 参数不支持",
    ],
)
async def test_a_field_that_one_model_does_not_take_is_left_out(message: str) -> None:
    with StrictProvider(refusing(400, {"message": message}, "temperature")) as server:
        model = OpenAIChat("strict", base_url=server.url, retry=at_once(), temperature=0.2)
        assert (await answer_of(model, saying("Hello"))).message.text == "ok"
    assert ["temperature" in body for body in server.bodies] == [True, False]
