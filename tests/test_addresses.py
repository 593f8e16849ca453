"""The secrets of an address are in no hint, no output and no file, wherever they stand in it."""

import json
from pathlib import Path

import pytest

from agentloop.cli.settings import settings_for
from agentloop.providers.openai.server import wipe_secrets
from agentloop.redaction import known_in_address, secrets_in_address
from tests.cli_kit import agentloop
from tests.strict_provider import StrictProvider
from tests.strict_replies import Call, Reply
from tests.test_keys_in_errors import all_of

SECRET = "Zq81vXk27mPw"


@pytest.mark.parametrize(
    "address",
    [
        f"http://ann:{SECRET}@h/v1",
        f"http://{SECRET}@h/v1",
        f"http://h/v1?api-key={SECRET}",
        f"http://h/v1?u=1&subscription={SECRET}#x",
        f"http://h/v1?{SECRET}",
        f"http://h/v1#token={SECRET}",
        f"http://ann:a/{SECRET}@h/v1",
        f"postgresql://ann:{SECRET}@h/d",
        f"postgresql://ann@h/d?password={SECRET}",
        f"postgresql://ann:a?{SECRET}@h/d",
    ],
)
def test_every_place_for_a_secret_is_known(address: str) -> None:
    assert SECRET in "".join(secrets_in_address(address))
    assert SECRET not in wipe_secrets(f"no such host: {address} or {SECRET}", ["sk-x"], address)


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost:8080/v1",
        "https://mine.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
        "postgresql://ann@h/d?sslmode=verify-full&application_name=agentloop-of-ann&connect_timeout=5",
        "postgresql://h/d?sslkey=/home/ann/client.key",
        "sqlite:////home/ann/sessions-of-mine.db",
        "http://h/v1?key=&a=b",
        "",
    ],
)
def test_what_is_no_secret_is_taken_for_none(address: str) -> None:
    assert secrets_in_address(address) == ()


@pytest.mark.deep
@pytest.mark.parametrize("status", [0, 1])
def test_a_key_in_the_query_of_the_base_url_is_written_nowhere(tmp_path: Path, status: int) -> None:
    said = Reply(text=f"You sent {SECRET} to me.")
    with StrictProvider(
        [said] if status == 0 else lambda _: said, model="m" if status == 0 else "other"
    ) as provider:
        url = f"{provider.url}?api-key={SECRET}&api-version=2024-10-21"
        call = ("-p", "hi on 2024-10-21", "-m", "m", "--base-url", url, "--session", "s")
        done = agentloop(*call, cwd=tmp_path, env={"OPENAI_API_KEY": "sk-x"})
        assert SECRET in provider.requests[0].path
    assert done.status == status, done.err
    assert SECRET not in done.out + done.err + all_of(tmp_path)
    assert "go on with: " in done.err
    assert "and the same --base-url (OPENAI_BASE_URL), which holds a secret" in done.err
    if status == 0:
        assert "You sent [redacted: known value] to me." in done.out
        assert "hi on 2024-10-21" in agentloop("sessions", "export", "s", cwd=tmp_path).out


def test_the_password_of_the_store_is_redacted_too() -> None:
    redact = settings_for({"store": f"postgresql://ann:{SECRET}@h/d", "model": "m"}, {}).redact
    assert redact is not None
    assert redact(f"ann and {SECRET}") == "ann and [redacted: known value]"


LONG = "Zq81vXk27mPw49Lc"


@pytest.mark.parametrize(
    "address",
    [
        f"http://ann:{SECRET}@h/v1",
        f"http://{LONG}@h/v1",
        f"http://h/v1?apiKey={SECRET}",
        f"http://h/v1?x-amz-signature={SECRET}",
        f"http://h/v1?subscription={LONG}",
        f"http://h/v1?{LONG}",
        f"postgresql://ann:{SECRET}@h1:1,h2:2/d",
        f"postgresql://ann@h/d?sslpassword={SECRET}",
    ],
)
def test_what_is_surely_a_secret_is_known(address: str) -> None:
    assert {SECRET, LONG} & {*known_in_address(address)}
    assert {*known_in_address(address)} <= {*secrets_in_address(address)}


def test_a_password_of_letters_is_known_too() -> None:
    assert known_in_address("postgresql://ann:swordfish@h/d") == ("swordfish",)
    assert known_in_address("postgresql://ann@h/d?password=swordfish") == ("swordfish",)


@pytest.mark.parametrize(
    "address",
    [
        "http://h/v1?env=production&provider=anthropic&tenant=contoso-limited",
        "http://h/v1?cluster=prod-eu-west-1a&since=2024-10-21T12:00:00Z",
        "http://h/v1?tenant=8d3c9b1e-4f5a-4b6c-8d7e-9f0a1b2c3d4e",
        "http://h/v1?tokenizer=anthropic-2024&design=production2&monkey=business1",
        "http://h/v1?sort_key=created_at&token=production",
        "http://h/v1?production#introduction",
        "http://assistant@h/v1",
        "postgresql://postgres:postgres@localhost/d",
        "postgresql://postgres:password@localhost/d?password=postgres",
        "postgresql://ann:agentloop@h/agentloop",
        "postgresql://postgres:postgres@h1:1,h2:2/d",
    ],
)
def test_a_word_of_an_address_is_taken_out_of_no_text(address: str) -> None:
    assert known_in_address(address) == ()


@pytest.mark.deep
def test_plain_words_of_the_base_url_stay_in_prompts_and_files(tmp_path: Path) -> None:
    written = "env = production\nprovider = anthropic\n"
    call = Call(name="write_file", arguments=json.dumps({"path": "a.txt", "content": written}))
    with StrictProvider([Reply(calls=(call,)), "Written for assistant."], model="m") as provider:
        url = provider.url.replace("//", "//assistant@") + "?env=production&provider=anthropic"
        asked = ("-p", "Write the production config", "-m", "m", "--base-url", url, "--allow", "write")
        done = agentloop(*asked, cwd=tmp_path, env={"OPENAI_API_KEY": "sk-x"})
    assert done.status == 0, done.err
    assert "Written for assistant." in done.out
    assert provider.bodies[0]["messages"][-1]["content"] == "Write the production config"
    assert (tmp_path / "a.txt").read_text() == written


@pytest.mark.deep
@pytest.mark.parametrize(
    "url",
    [
        "h/v1?api-key={}",
        "ftp://h/v1?api-key={}",
        "http://[h/v1?api-key={}",
        "h/v1#{}",
        "http://ho st/v1?k={}",
    ],
)
def test_an_address_that_is_none_is_named_without_its_query(url: str, tmp_path: Path) -> None:
    done = agentloop("-p", "hi", "-m", "m", "--base-url", url.format(SECRET), cwd=tmp_path)
    assert done.status == 2
    assert "/v1" in done.err
    assert SECRET not in done.out + done.err
