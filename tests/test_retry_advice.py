"""Advice when to come back that nobody can read is none: the request is tried again as without it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import OpenAIChat, OpenAIResponses
from agentloop.errors import ModelError, ModelUnavailableError
from agentloop.providers.openai.errors import retry_after_seconds
from tests.test_border_breaks import KEY, raw, reachable, response, runner_of

UNREADABLE = {
    "a year beyond all": "Mon, 99999999999999999999 Jan 2024 00:00:00 GMT",
    "an hour beyond all": "Mon, 01 Jan 2024 99999999999999999999:00:00 GMT",
    "a zone beyond all": "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
    "words": "later",
    "below zero": "-5",
    "no ASCII": "bientôt",
    "digits of another script": "٤",
    "another script": "周一",
}


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("name", UNREADABLE)
async def test_advice_that_cannot_be_read_is_none(name: str, status: int, kind: type) -> None:
    reply = response(status, {"error": {"message": f"slow down, {KEY}"}}).replace(
        b"Connection: close\r\n", b"Connection: close\r\nRetry-After: " + UNREADABLE[name].encode() + b"\r\n"
    )
    async with raw(reply) as server:
        model = runner_of(server, kind=kind)
        with pytest.raises(ModelError) as caught:
            await model.run("hi")
    assert isinstance(caught.value, ModelUnavailableError)
    assert caught.value.retry_after_seconds is None
    assert f"({status})" in str(caught.value)
    assert "slow down" in str(caught.value)
    assert len(server.bodies) == 5
    assert [text for text in reachable(caught.value) if KEY in text] == []


@given(
    st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d{1,30} (Jan|Feb) \d{1,30} \d{1,30}:\d+:\d+ ([+-]\d+|GMT)")
)
def test_no_header_makes_reading_it_fail(text: str) -> None:
    for name in ("retry-after", "retry-after-ms"):
        seconds = retry_after_seconds({name: text})
        assert seconds is None or seconds >= 0
