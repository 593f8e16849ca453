"""The key and the passwords of an address are in no error, no log, no repr, whatever a server says."""

import asyncio
import json
import traceback
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, AgentLoopError, OpenAIChat, OpenAIResponses, RetryPolicy, Runner, UsageError
from agentloop.cli.settings import settings_for
from agentloop.providers.openai.server import ServerChoice, place_of, wipe_secrets
from tests.cli_kit import agentloop
from tests.kit import watched
from tests.strict_provider import StrictProvider
from tests.strict_replies import Fault, Raw, Reply, events

KEY = "sk-test/Q7+xyz0123456789=abcdefXYZ"
PASSWORD = "pa55+wörd-of-mine"
URL = "http://someone:{password}@127.0.0.1:{port}/v1"
ONCE = RetryPolicy(attempts=1)

ECHOES = [
    f"Incorrect API key provided: {KEY}",
    f"Incorrect API key provided: Bearer {KEY}.",
    f"bad key {KEY[:12]}",
    f"bad key …{KEY[-10:]}",
    f"bad key {KEY[:7]}********{KEY[-4:]}. You can find yours elsewhere",
    f"bad key {KEY[:6]}...{KEY[-4:]}",
    f"see https://login.example.org/?key={quote(KEY, safe='')}",
    f"see https://me:{quote(PASSWORD)}@login.example.org/",
]


def parts_of(key: str) -> Iterator[str]:
    """What of a key would help somebody: any eight characters of it in a row."""
    for form in (key, quote(key, safe=""), quote(key)):
        yield from (form[at : at + 8] for at in range(len(form) - 7))


def assert_keyless(text: str) -> None:
    """No part of the key and no password in any form."""
    assert [part for part in parts_of(KEY) if part in text] == []
    assert [form for form in (PASSWORD, quote(PASSWORD), quote(PASSWORD, safe="")) if form in text] == []


def told(error: BaseException) -> str:
    """The error's traceback with all causes, also those that are hidden, and all that hangs on them."""
    lines = traceback.format_exception(error)
    each: BaseException | None = error
    while each is not None:
        lines += [str(each), repr(each), repr(vars(each))]
        each = each.__cause__ or each.__context__
    return "\n".join(lines)


def answered(fault: str) -> list[Fault | Raw]:
    """The ways to say it."""
    said = {"error": {"message": fault, "type": "invalid_request_error", "code": "invalid_api_key"}}
    return [
        Fault(status=401, body=said),
        Fault(status=400, body=json.dumps(fault)),
        Fault(status=500, body=said),
        Fault(status=429, body={"message": fault}),
        Fault(status=302, headers={"location": "http://127.0.0.1:1/" + quote(fault, safe="/:?=%+@")}),
        events(said),
    ]


@pytest.mark.parametrize("kind", range(6))
@pytest.mark.parametrize("echo", ECHOES)
def test_no_error_shows_the_key_whatever_the_server_says(echo: str, kind: int) -> None:
    with StrictProvider([answered(echo)[kind]]) as provider:
        url = URL.format(password=quote(PASSWORD, safe=""), port=provider.port)
        model = OpenAIChat("m", base_url=url, api_key=KEY, retry=ONCE, window="8k")
        seen, error = asyncio.run(_failed(model))
    assert_keyless(told(error))
    assert_keyless(seen)
    assert_keyless(f"{model!r} {vars(model)!r}")


async def _failed(model: OpenAIChat) -> tuple[str, AgentLoopError]:
    runner = Runner(Agent(model), transcripts=None)
    seen: list[object] = []
    with pytest.raises(AgentLoopError) as caught:
        async for event in runner.stream("hello", session_id="s"):
            seen.append(event)
    return repr(seen), caught.value


def test_a_masked_key_goes_with_what_is_left_of_it() -> None:
    text = wipe_secrets(f"bad key {KEY[:5]}*****{KEY[-3:]}, try … again ... or **bold**", [KEY], "")
    assert text == "bad key ***, try … again ... or **bold**"


@given(
    st.text("abcXYZ019-_/+=", min_size=8, max_size=40), st.data(), st.text(max_size=20), st.text(max_size=20)
)
def test_any_part_of_any_key_goes(key: str, data: st.DataObject, before: str, after: str) -> None:
    start = data.draw(st.integers(0, len(key) - 8))
    end = data.draw(st.integers(start + 8, len(key)))
    text = wipe_secrets(f"{before} {key[start:end]} {after}", [key], "http://host/v1")
    assert key[start:end] not in text


def test_the_key_is_sent_and_the_answer_comes() -> None:
    with StrictProvider([Reply(text="hello")], key=KEY) as provider:
        model = OpenAIChat("m", base_url=provider.url, api_key=KEY, window="8k")
        seen = asyncio.run(watched(Runner(Agent(model), transcripts=None), "hello"))
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert_keyless(repr(seen))


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
def test_no_repr_shows_the_key(kind: type[OpenAIChat]) -> None:
    url = URL.format(password=quote(PASSWORD, safe=""), port=1)
    model = kind("m", base_url=url, api_key=KEY)
    choice = ServerChoice(model="m", base_url=url, api_key=KEY)
    deep = [vars(value) for value in vars(model).values() if hasattr(value, "__dict__")]
    settings = settings_for({"base_url": url, "model": "m"}, {"OPENAI_API_KEY": KEY})
    for value in (model, vars(model), deep, choice, choice.server(), settings, Agent(model)):
        assert_keyless(repr(value))
    assert "http://127.0.0.1:1/v1" in repr(model)


@pytest.mark.parametrize("url", ["ftp://{}host/v1", "http://{}ho st/v1", "http://{}host:999999/v1"])
def test_an_address_that_is_none_is_named_without_its_password(url: str) -> None:
    full, shown = url.format(f"me:{PASSWORD}@"), url.format("")
    with pytest.raises(UsageError) as caught:
        OpenAIChat("m", base_url=full, api_key=KEY)
    assert_keyless(told(caught.value))
    assert str(caught.value) == f"bad base URL {shown!r}: write one such as http://localhost:8080/v1"
    assert place_of(full) == shown


@pytest.mark.parametrize("ending", ["/b", "#b", "?b", "/b@c", "?b#c@d"])
def test_a_password_that_ends_the_host_is_not_shown_either(tmp_path: Path, ending: str) -> None:
    url = f"https://me:{PASSWORD}{ending}@host/v1"
    with pytest.raises(UsageError, match="bad base URL") as caught:
        OpenAIChat("m", base_url=url, api_key=KEY)
    assert_keyless(told(caught.value))
    done = agentloop("-p", "hi", "-m", "m", "--base-url", url, cwd=tmp_path, env={"OPENAI_API_KEY": KEY})
    assert done.status == 2
    assert_keyless(done.out + done.err)


# The command line


def all_of(folder: Path) -> str:
    """All bytes of the files below."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "".join(path.read_bytes().decode("utf-8", "replace") for path in files)


@pytest.mark.deep
@pytest.mark.parametrize("options", [(), ("--json",), ("--output-format", "json"), ("--verbose",)])
def test_the_command_line_keeps_keys_out_of_all_that_it_writes(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    other, shaped = "Zq81-of-the-vault", "ghp_" + "a1B2" * 9
    said = f"I saw {KEY}, {other} and {shaped}; and {b64encode(other.encode()).decode()} too."
    with StrictProvider([Reply(text=said, piece_chars=3)], key=KEY) as provider:
        done = agentloop(
            "-p",
            f"use {other} with {shaped}",
            *options,
            cwd=tmp_path,
            env={
                "OPENAI_API_KEY": KEY,
                "OPENAI_BASE_URL": provider.url,
                "VAULT_TOKEN": other,
                "AGENTLOOP_LOG": "debug",
                "KEYBOARD": "keyboard-of-mine",
                "SOME_KEY_FILE": "/home/of/the/key",
                "USE_TOKEN": "true",
            },
        )
        sent = provider.requests[0].raw.decode()
    assert done.status == 0, done.err
    everything = done.out + done.err + all_of(tmp_path)
    assert_keyless(everything)
    assert other not in everything + sent
    assert shaped not in everything + sent
    assert b64encode(other.encode()).decode()[:-3] not in everything
    assert "[redacted: known value]" in done.out


@pytest.mark.deep
def test_redaction_can_be_switched_off_and_replaced(tmp_path: Path) -> None:
    shaped = "ghp_" + "a1B2" * 9
    (tmp_path / "own.py").write_text(
        "def hide(text):\n    return text.replace('Blue Fox', '[plan]')\n\n\nnothing = 5\n"
    )

    def prompt_stored(session: str, *options: str, **env: str) -> str:
        prompt = f"Blue Fox and {shaped}"
        done = agentloop("-m", "offline", "-p", prompt, "--session", session, *options, cwd=tmp_path, env=env)
        assert done.status == 0, done.err
        shown = agentloop("sessions", "export", session, "--redact", "off", cwd=tmp_path)
        return str(json.loads(shown.out)[0]["content"])

    assert prompt_stored("on") == "Blue Fox and [redacted: GitHub token]"
    assert prompt_stored("off", "--redact", "off") == f"Blue Fox and {shaped}"
    assert prompt_stored("own", "--redact", "own:hide") == f"[plan] and {shaped}"
    assert prompt_stored("env", AGENTLOOP_REDACT="own:hide") == f"[plan] and {shaped}"
    assert prompt_stored("flag", "--redact", "off", AGENTLOOP_REDACT="own:hide") == f"Blue Fox and {shaped}"
    for shape in ("openai", "events", "markdown"):
        out = agentloop("sessions", "export", "off", "--format", shape, cwd=tmp_path).out
        assert shaped not in out
        assert "[redacted: GitHub token]" in out
    for words in (("show", "off"), ("list",), ("list", "--json")):
        assert shaped not in agentloop("sessions", *words, cwd=tmp_path).out


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("own", "--redact: 'own' names no function: write MODULE:NAME, or off"),
        ("own:nothing", "own:nothing is no redaction"),
        ("own:Kind", "own:Kind is no redaction"),
        ("own:missing", "module 'own' has no 'missing'"),
        ("none_such:x", "module 'none_such' does not import"),
        (" ", "--redact is empty"),
    ],
)
def test_a_bad_redaction_is_one_line(tmp_path: Path, given: str, complaint: str) -> None:
    (tmp_path / "own.py").write_text("nothing = 5\nclass Kind: ...\n")
    done = agentloop("-m", "offline", "-p", "hello", "--redact", given, cwd=tmp_path)
    assert done.status == 2
    assert complaint in done.complaint()


@pytest.mark.deep
def test_an_import_and_a_title_are_redacted_and_counted_again(tmp_path: Path) -> None:
    shaped = "ghp_" + "a1B2" * 9
    (tmp_path / "in.jsonl").write_text(
        json.dumps({"role": "user", "content": f"keep {shaped}"})
        + "\n"
        + json.dumps({"role": "assistant", "content": "kept"})
    )
    assert agentloop("sessions", "import", "in.jsonl", "--session", "s", cwd=tmp_path).status == 0
    (tmp_path / "in.jsonl").unlink()
    assert agentloop("sessions", "rename", "s", f"on {shaped}", cwd=tmp_path).status == 0
    assert shaped not in all_of(tmp_path)
    lines = agentloop("sessions", "export", "s", "--format", "events", cwd=tmp_path).out.splitlines()
    (tmp_path / "plain.jsonl").write_text('{"role": "user", "content": "keep [redacted: GitHub token]"}\n')
    assert agentloop("sessions", "import", "plain.jsonl", "--session", "t", cwd=tmp_path).status == 0
    plain = agentloop("sessions", "export", "t", "--format", "events", cwd=tmp_path).out.splitlines()
    assert json.loads(lines[0])["tokens"] == json.loads(plain[0])["tokens"]
