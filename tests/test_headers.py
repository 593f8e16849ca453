"""Headers of a user's own: sent to their server, to no other, and shown nowhere."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agentloop import Agent, AgentLoopError, OpenAIChat, OpenAIResponses, Runner, UsageError
from agentloop.cli.settings import settings_for
from agentloop.errors import ModelUnavailableError
from agentloop.redaction import secrets_in_header
from tests.cli_kit import agentloop
from tests.server_kit import answer_of, at_once, error_of
from tests.strict_provider import StrictProvider
from tests.strict_replies import Fault, Raw, Reply, events
from tests.test_keys_in_errors import all_of, told

TOKEN = "gw-7f31-Quiet-0c9e-4b2d"
GIVEN = {"X-Gateway-Token": TOKEN, "X-Title": "My application"}
KINDS = [OpenAIChat, OpenAIResponses]


def model_at(url: str, kind: type[OpenAIChat | OpenAIResponses] = OpenAIChat, **options: Any) -> Any:
    """A model there, with these headers unless others are given."""
    return kind("m", base_url=url, retry=at_once(1), **({"headers": GIVEN, "window": "32k"} | options))


def sent(provider: StrictProvider, at: int = -1) -> Mapping[str, str]:
    """The headers of a request that the provider got."""
    return provider.requests[at].headers


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_headers_go_with_each_request_beside_the_key(
    kind: type[OpenAIChat], stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with StrictProvider(["hello", "hello"], key="sk-mine") as provider:
        model = model_at(provider.url, kind, api_key="sk-mine", stream=stream)
        for _ in range(2):
            assert (await answer_of(model)).message.text == "hello"
    for request in provider.requests:
        assert request.headers["x-gateway-token"] == TOKEN
        assert request.headers["x-title"] == "My application"
        assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize("name", ["Authorization", "authorization"])
@pytest.mark.parametrize("login", ["", "me:of-the-address@"])
async def test_an_authorization_stands_in_place_of_the_key(
    name: str, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    with StrictProvider(["hello"] * 2, key=TOKEN) as provider:
        url = provider.url.replace("://", f"://{login}")
        for key in (None, "sk-given"):
            await answer_of(model_at(url, api_key=key, headers={name: f"Bearer {TOKEN}"}))
    assert [request.headers["authorization"] for request in provider.requests] == [f"Bearer {TOKEN}"] * 2


async def test_a_key_is_needed_no_more_and_no_placeholder_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with StrictProvider(["hello"] * 2) as provider:
        await answer_of(model_at(provider.url, headers={"api-key": TOKEN}))
        await answer_of(model_at(provider.url, headers=None))
        with pytest.raises(UsageError, match="no key and no server"):
            await answer_of(OpenAIChat("m", headers=GIVEN))
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    first, second = provider.requests
    assert first.headers["api-key"] == TOKEN
    assert "authorization" not in first.headers
    assert second.headers["authorization"] == "Bearer no-key"
    assert OpenAIChat("m", headers={"Authorization": "x"}).name == "m"


async def test_the_question_for_the_window_has_them_too() -> None:
    pages = {"/v1/models": {"data": [{"id": "m", "max_model_len": 9_000}]}}
    with StrictProvider([], pages=pages) as provider:
        model = model_at(provider.url, window=None, headers=GIVEN | {"Authorization": f"Bearer {TOKEN}"})
        assert await model.ask_window() == 9_000
        await model.close()
    [(_, headers)] = [asked for asked in provider.asked if asked[0] == "/v1/models"]
    assert (headers["x-gateway-token"], headers["authorization"]) == (TOKEN, f"Bearer {TOKEN}")


async def test_another_server_that_a_request_is_led_to_gets_none_of_them() -> None:
    given = GIVEN | {"Authorization": f"Bearer {TOKEN}", "Cookie": f"session={TOKEN}"}
    with StrictProvider([]) as other:
        there = Fault(status=307, headers={"location": f"{other.url}/chat/completions"})
        with StrictProvider([there]) as provider:
            error = await error_of(model_at(provider.url, headers=given))
        assert {name: sent(provider).get(name.lower()) for name in given} == given
        assert (other.connections, other.url.removesuffix("/v1") in str(error)) == (0, True)


async def test_the_same_server_gets_them_again() -> None:
    def brain(number: int) -> Fault | Reply:
        there = {"location": "/v1/chat/completions"}
        return Fault(status=307, headers=there) if number == 1 else Reply(text="here")

    given = GIVEN | {"Authorization": f"Bearer {TOKEN}", "Cookie": f"session={TOKEN}"}
    with StrictProvider([brain(1), brain(2)]) as provider:
        assert (await answer_of(model_at(provider.url, headers=given))).message.text == "here"
    for request in provider.requests:
        assert {name: request.headers.get(name.lower()) for name in given} == given


@pytest.mark.parametrize("stream", [True, False])
async def test_a_bare_failure_behind_a_redirect_is_one_of_ours(stream: bool) -> None:
    there = Fault(status=307, headers={"location": "/v1/chat/completions"})
    with StrictProvider([there, *[Fault(status=500)] * 9]) as provider:
        error = await error_of(model_at(provider.url, stream=stream))
    assert isinstance(error, ModelUnavailableError)


ECHOES = [
    f"no such token: {TOKEN}",
    f"no such token: {TOKEN[:14]}",
    f"no such token: {TOKEN[:5]}****{TOKEN[-4:]}",
    f"see https://login.example.org/?token={quote(TOKEN, safe='')}",
]


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize(
    "headers",
    [GIVEN, {"Authorization": f"Bearer {TOKEN}"}, {"Cookie": f"a=b; session={TOKEN}"}, {"X-Odd": TOKEN}],
)
async def test_no_error_shows_their_values_whatever_the_server_says(
    echo: str, headers: Mapping[str, str]
) -> None:
    said = {"error": {"message": echo, "type": "invalid_request_error"}}
    answers: list[Fault | Raw] = [Fault(status=401, body=said), Fault(status=500, body=echo), events(said)]
    with StrictProvider(answers) as provider:
        model = model_at(provider.url, headers=headers)
        for _ in answers:
            error: AgentLoopError = await error_of(model)
            assert not [part for part in parts_of_token() if part in told(error)]
    assert TOKEN not in f"{model!r} {vars(model)!r} {Agent(model)!r}"
    assert "My application" not in repr(model)


def parts_of_token() -> list[str]:
    """What of it would help somebody."""
    return [TOKEN[at : at + 8] for at in range(len(TOKEN) - 7)]


async def test_plain_values_take_nothing_out_of_what_a_server_says() -> None:
    said = "My application: see https://my.example/help of 2025-01-01"
    given = {"X-Title": "My application", "HTTP-Referer": "https://my.example/", "api-version": "2025-01-01"}
    with StrictProvider([Fault(status=400, body={"error": {"message": said}})]) as provider:
        assert said in str(await error_of(model_at(provider.url, headers=given)))


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("X-Api-Key", "correcthorse", ("correcthorse",)),
        ("Authorization", "Basic bWU6c2VjcmV0", ("bWU6c2VjcmV0",)),
        ("X-Odd", "abc", ()),
        ("X-Team", "blue team", ()),
        ("X-Server", "https://me:pa55word@host/", ("https://me:pa55word@host/", "https://me:pa55word@host/")),
    ],
)
def test_which_values_are_secret(name: str, value: str, secrets: tuple[str, ...]) -> None:
    assert secrets_in_header(name, value) == tuple(dict.fromkeys(secrets))


BAD = [
    (5, "headers must be a mapping"),
    ([("A", "b")], "headers must be a mapping"),
    ({"": "secret"}, "bad name ''"),
    ({"A b": "secret"}, "bad name 'A b'"),
    ({"A:": "secret"}, "bad name 'A:'"),
    ({"A\n": "secret"}, "bad name"),
    ({"Ä": "secret"}, "bad name"),
    ({5: "secret"}, "bad name 5"),
    ({"X-A": 5}, "the value of X-A must be a text, not int"),
    ({"X-A": None}, "the value of X-A must be a text"),
    ({"X-A": b"secret"}, "the value of X-A must be a text"),
    ({"X-A": " "}, "X-A has no value"),
    ({"X-A": "secret\r\nX-B: c"}, "the value of X-A holds characters"),
    ({"X-A": "secret\n"}, "the value of X-A holds characters"),
    ({"X-A": "secret\x00"}, "the value of X-A holds characters"),
    ({"X-A": "sécret"}, "the value of X-A holds characters"),
    ({"X-A": "secret", "x-a": "other"}, "x-a is given twice"),
    ({"Content-Length": "5"}, "Content-Length is set by the client"),
    ({"host": "secret"}, "host is set by the client"),
    ({"Transfer-Encoding": "chunked"}, "set by the client"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("bad", "fault"), BAD)
def test_a_bad_header_is_one_line_without_its_value(kind: type[OpenAIChat], bad: Any, fault: str) -> None:
    with pytest.raises(UsageError, match=re.escape(fault)) as caught:
        kind("m", base_url="http://localhost/v1", headers=bad)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


# The command line


def test_flags_become_headers() -> None:
    settings = settings_for({"header": ("X-A: b: c ", "authorization:Bearer d")}, {})
    assert settings.headers == {"X-A": "b: c", "authorization": "Bearer d"}
    assert (settings.model, settings.model_is_fallback) == ("gpt-5-mini", False)
    assert settings.typed_options == ()
    assert "Bearer" not in repr(settings)
    assert settings_for({}, {}).headers == {}


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (("secret",), "--header: a header without a colon"),
        ((": secret",), "--header: the header: bad name ''"),
        (("X-A : secret",), "bad name 'X-A '"),
        (("X-A:",), "X-A has no value"),
        (("X-A: secret", "x-a: secret"), "x-a is given twice"),
        (("Host: secret",), "Host is set by the client"),
        (("X-A: secret\nX-B: c",), "the value of X-A holds characters"),
    ],
)
def test_a_bad_flag_is_one_line_without_its_value(lines: tuple[str, ...], fault: str, tmp_path: Path) -> None:
    flags = [word for line in lines for word in ("--header", line)]
    with pytest.raises(UsageError, match=re.escape(fault)) as caught:
        settings_for({"header": lines}, {})
    assert "secret" not in str(caught.value)
    if lines[0] == "secret":
        done = agentloop("-p", "hi", *flags, cwd=tmp_path)
        assert done.status == 2
        assert "secret" not in done.complaint()


def test_a_session_behind_a_gateway_is_gone_on_with_by_giving_them_again(tmp_path: Path) -> None:
    said = f"I saw {TOKEN} there."
    flags = ("--header", f"Authorization: Bearer {TOKEN}", "--header", "X-Title: My application")
    with StrictProvider([Reply(text=said, piece_chars=3), "again"], key=TOKEN) as provider:
        url = ("--base-url", provider.url, "--window", "32k", "-m", "m")
        first = agentloop("-p", f"use {TOKEN}", *url, *flags, "--session", "s", cwd=tmp_path)
        assert first.status == 0, first.err
        refused = agentloop("-p", "go on", "-r", "s", cwd=tmp_path)
        alone = agentloop("-p", "go on", "-r", "s", *flags, cwd=tmp_path)
        again = agentloop("-p", "go on", "-r", "s", *flags, *url, cwd=tmp_path)
    assert provider.requests[0].headers["x-title"] == "My application"
    [hint] = [line for line in first.err.splitlines() if "go on with" in line]
    assert "and the same --header Authorization, which is not kept" in hint
    assert refused.status == 1, refused.err
    assert (alone.status, "to send your headers there" in alone.complaint()) == (2, True)
    assert (again.status, again.out) == (0, "again\n")
    everything = "".join(done.out + done.err for done in (first, refused, alone, again)) + all_of(tmp_path)
    assert TOKEN not in everything
    assert "My application" not in everything
    assert TOKEN not in provider.requests[0].raw.decode()


def test_models_of_a_gateway_are_listed(tmp_path: Path) -> None:
    with StrictProvider([], key=TOKEN) as provider:
        done = agentloop(
            "models", "--base-url", provider.url, "--header", f"X-Gateway-Token: {TOKEN}", cwd=tmp_path
        )
        [(_, headers)] = provider.asked
    assert done.status == 0, done.err
    assert headers["x-gateway-token"] == TOKEN


def test_a_run_of_the_library_shows_none_of_it() -> None:
    with StrictProvider([Fault(status=403, body={"error": {"message": f"no {TOKEN}"}})]) as provider:
        runner = Runner(Agent(model_at(provider.url)), transcripts=None)
        with pytest.raises(AgentLoopError) as caught:
            asyncio.run(runner.run("hi"))
    assert TOKEN not in told(caught.value)
