"""Where secrets got through: behind escapes, at cuts, beside texts; and what must never be rewritten."""

import dataclasses
import json
import random
import typing
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    Message,
    RunContext,
    Runner,
    Secrets,
    SyncRunner,
    ToolCall,
    UsageError,
    events,
    stream,
)
from agentloop.redaction import KNOWN_SHAPES, Held, Shape, head_before, redact_error, redacted, tail_behind
from agentloop.redaction.values import FREE_TEXT
from agentloop.testing import ScriptedModel, calls
from agentloop.workspace import workspace_tools
from tests.test_redaction import SHAPES

GITHUB = "ghp_" + "aB3dE5gH7jK9mN1p" * 2 + "Q3sT"
ESCAPES = [
    *(r"\n", r"\r\n", r"\t", r"\\n", r"\u000a", r"\u001b[1;31m", r"\x1b[0m", r"\033[31m", r"\"", r"\/"),
    *("\x1b[31m", "\x1b[38;5;196m", "\x1b[2K", "%3D", "%0a", "%22", "&quot;"),
]
bare = st.sampled_from(sorted(SHAPES)).flatmap(SHAPES.__getitem__)


@given(bare, st.sampled_from(ESCAPES))
def test_a_key_right_behind_an_escape_goes(key: str, escape: str) -> None:
    clean = Secrets()(f"some text{escape}{key}{escape} and more")
    assert key not in clean
    assert clean.startswith(f"some text{escape[0]}")
    assert "[redacted: " in clean


@pytest.mark.parametrize(
    "text",
    [
        "password\x1b[0m=\x1b[35mT0p{}Secret\x1b[0m",
        "\\u001b[36mapi_key\\u001b[0m: \\u001b[35mT0p{}Secret4567\\u001b[0m",
        "?next=1&client_token%3DT0p{}Secret4567",
    ],
)
def test_a_value_behind_its_name_goes_with_colours_or_percents_between(text: str) -> None:
    assert "T0p" not in Secrets()(text.format("4567890"))


def test_a_tool_that_gives_a_dict_and_nested_json_tell_nothing() -> None:
    def look(text: str) -> dict[str, str]:
        """Look."""
        return {"out": f"token:\n{GITHUB}", "paint": f"\x1b[31m{GITHUB}", "url": f"?a%3D{GITHUB}"}

    nested = {"text": json.dumps({"cell": f"import os\n{GITHUB}"})}
    model = ScriptedModel([calls(look=nested), "done"], window="32k")
    with SyncRunner(Agent(model, tools=[look]), transcripts=None, redact=Secrets()) as runner:
        runner.run("look", session_id="s")
        told = repr(runner.events("s")) + repr(model.requests)
    assert GITHUB not in told
    assert told.count("[redacted: GitHub token]") >= 4


@pytest.mark.whole
@pytest.mark.parametrize("depth", [90, 300, 500, 700, 960, 100_000])
def test_arguments_nested_however_deep_end_no_run_and_tell_nothing(depth: int) -> None:
    def look(text: Any) -> str:
        """Look."""
        return "seen"

    arguments = f'{{"text": {"[" * depth}"{GITHUB}"{"]" * depth}}}'
    model = ScriptedModel([[ToolCall(id="c", name="look", arguments=arguments)], "done"], window="512k")
    with SyncRunner(Agent(model, tools=[look]), transcripts=None, redact=Secrets()) as runner:
        assert runner.run("look", session_id="s").output == "done"
        assert GITHUB not in repr(runner.events("s"))


@pytest.mark.parametrize(
    "text",
    [
        "sha512-" + b64encode(random.Random(1).randbytes(64)).decode(),
        "data:text/plain;base64," + b64encode(random.Random(2).randbytes(3_000)).decode(),
        r"C:\new\table\notes\sk-learn\x0\u00e9t%C3%A9",
        'password="{password}", token="{self.token_1}", secret: {client_secret}',
        "curl -u $USER:$PASS http://x, curl -u {user}:{password} http://x, curl --user-agent a:b http://x",
        "ntn_lines_of_the_whole_table_and_more, hvs.keys_of_a_dict_in_the_module, nvapi-client-of-the-team",
        "https://hooks.slack.com/services/ and https://discord.com/api/webhooks/ are where they live",
        "fw_update_of_the_router_2_of_the_team, csk-learn-of-the-year-2024, dapi0123, pul-request-of-2024",
        "ya29.is_no_token_of_the_world_at_all_here, https://host.example/v1//0-a-title-of-a-long-post-of-1999",
        "Please login with password reset, login as admin password policy, then\n  password protected pages",
        "password required pam_unix.so sha512\npassword [success=1 default=ignore] pam_unix.so\n",
        "password base64-encoded\n  password AES-256-GCM\npassword sha256-hash \r\npassword reset-page-v2",
        "password min_length=8\n\tpassword https://example.com/reset-v2\npassword min-length=8",
        '"auth": "required", "auth": "authenticated", auth: basicAuth1, "auth": {"type": "none"}, oauth=Ab1',
        "Message.Widget.of_the_module_in_a_long_path.Method, MyModuleOfALongNameThatGoesOn.submod.f(x)",
        "terraform.atlasv1.is the prefix, SSWS the scheme, 00-0af7651916cd43dd8448eb211c80319c-b7ad6b",
    ],
)
def test_what_is_no_secret_stays_beside_escapes(text: str) -> None:
    assert Secrets()(text) == text


A40 = "aB3dE5gH7j" * 4


@pytest.mark.parametrize(
    ("before", "secret"),
    [
        ("https://hooks.slack.com/services/", f"T0AB1CD2E/B0AB1CD2EFG/{A40[:24]}"),
        ("https://discord.com/api/webhooks/123456789012345678/", A40 + A40[:28]),
        ("", "hvs." + A40 * 2),
        ("", "shpat_" + "0123456789abcdef" * 2),
        ("", "pplx-" + A40),
        ("", "nvapi-" + A40 + A40[:24]),
        ("", "tvly-" + A40[:32]),
        ("", "lsv2_pt_" + "0123456789abcdef" * 2 + "_0123456789"),
        ("", "lin_api_" + A40),
        ("", "ntn_" + A40 + "Q3sT5v"),
        ("", "AGE-SECRET-KEY-1" + (A40 * 2)[:58].upper()),
        ("", "csk-" + "a1b2c3d4e5f6" * 4),
        ("", "fw_" + A40[:24]),
        ("", "dapi" + "0123456789abcdef" * 2 + "-2"),
        ("", "ya29.a0" + A40 * 4),
        ("", "GOCSPX-" + A40[:28]),
        ("", "1//0g" + A40 * 2),
        ("", "ATATT3xFfGF0" + A40 * 4 + "=0A1B2C3D"),
        ("", "sntrys_eyJ" + A40 * 4 + "=_" + A40 + "abc"),
        ("", "sntryu_" + "0123456789abcdef" * 4),
        ("", "dp.pt." + A40),
        ("", "pul-" + "0123456789" * 4),
        ("", "aB3dE5gH7jK9mN.atlasv1." + A40 + A40[:27]),
        ("Authorization: SSWS ", "00" + A40),
        ("", "MTA0NDk3MzYwMDEyMzQ1Njc4." + "GhI-jK." + A40[:38]),
        ("machine api.example.org login bob password ", "hunter2xyz9"),
        ("machine api.example.org\n  login bob\n  password ", "hunter2xyz9\n"),
        ("machine api.example.org\n  login bob\n  password ", "aB3dE5gH7j==\n"),
        ("machine api.example.org\n  login bob\n  password ", "Hunter2-xyz9\n"),
        ('{"auths":{"host":{"auth":"', b64encode(b"user:passw0rd123").decode()),
        ("//registry.example.org/:_auth=", b64encode(b"user:passw0rd12").decode()),
        ("curl -u admin:", "hunter2hunter2"),
        ("curl -s --user 'admin:", "hunter2hunter2"),
    ],
)
def test_further_shapes_go_whole_and_in_pieces(before: str, secret: str) -> None:
    text = f"use {before}{secret} http://host.example"
    clean = Secrets()(text)
    assert secret not in clean
    assert before in clean
    held = Held(Secrets())
    assert "".join([*map(held.add, text), held.rest()]) == clean


BODY = b64encode(random.Random(3).randbytes(1_200)).decode()
LINES = [BODY[at : at + 64] for at in range(0, len(BODY), 64)]
PEM_LINES = ["-----BEGIN RSA PRIVATE KEY-----", *LINES, "-----END RSA PRIVATE KEY-----"]
LISTINGS: list[Callable[[int, str], str]] = [
    lambda number, line: line,
    lambda number, line: f"{number:>6}\t{line}",
    lambda number, line: f"{number}:{line}",
    lambda number, line: f"keys/k.pem:{number}: {line}",
]


@pytest.mark.parametrize("listed", LISTINGS)
@pytest.mark.many(40)
@given(st.integers(0, 10), st.integers(12, len(PEM_LINES)), st.booleans())
def test_a_block_cut_off_at_either_end_goes_also_in_a_listing(
    listed: Callable[[int, str], str], first: int, last: int, carriage: bool
) -> None:
    first, last = (0, last) if first == 0 else (first, len(PEM_LINES))
    shown = [listed(number, line) for number, line in enumerate(PEM_LINES, 1)][first:last]
    text = ("\r\n" if carriage else "\n").join(["before", *shown, "after it", ""])
    clean = Secrets()(text)
    assert [line for line in LINES if line in clean] == []
    assert clean.startswith("before")
    assert clean.endswith(("after it\n", "after it\r\n"))
    held = Held(Secrets())
    pieces = [held.add(text[at : at + 11]) for at in range(0, len(text), 11)]
    assert "".join([*pieces, held.rest()]) == clean


def test_lines_of_letters_with_no_key_around_them_stay() -> None:
    text = "\n".join([*LINES, "-----END CERTIFICATE-----", *LINES, "and so on"])
    assert Secrets()(text) == text


def workspace_text(root: Path, redact: Secrets, *asked: tuple[str, dict[str, Any]]) -> str:
    """What the model is sent of these calls of the built-in tools."""
    model = ScriptedModel([calls(*asked), "done"], window="1m")
    agent = Agent(model, tools=workspace_tools(root, allow=["shell"]))
    with SyncRunner(agent, transcripts=None, redact=redact) as runner:
        result = runner.run("look")
    return "\n".join(message.text for message in result.messages if message.role == "tool")


def test_no_built_in_tool_cuts_a_secret_in_two(tmp_path: Path) -> None:
    (tmp_path / "k.pem").write_text("\n".join(PEM_LINES) + "\n")
    (tmp_path / "long.js").write_text(f"{'x' * 1_970} {GITHUB} {'y' * 300}")
    (tmp_path / "min.js").write_text(
        f'{"a;" * 300}t="{GITHUB}";v="hunter2hunter2";{"b;" * 38}NEEDLE;{"c;" * 300}'
    )
    told = workspace_text(
        tmp_path,
        Secrets(["hunter2hunter2"]),
        ("read_file", {"path": "k.pem"}),
        ("read_file", {"path": "k.pem", "offset": 5, "limit": 4}),
        ("read_file", {"path": "long.js"}),
        ("search_files", {"query": LINES[4][:9].replace("+", ".")}),
        ("search_files", {"query": "NEEDLE"}),
        ("run_command", {"command": "head -5 k.pem; grep -n . k.pem | tail -6"}),
    )
    assert "NEEDLE" in told
    assert [line for line in LINES if line[:20] in told] == []
    assert [part for part in (GITHUB[4:12], GITHUB[-8:], "hunter2", "2hunter2") if part in told] == []


@pytest.mark.deep
@pytest.mark.parametrize("shift", [3, 20, 37])
def test_output_that_is_cut_shows_no_half_of_a_secret(tmp_path: Path, shift: int) -> None:
    half = 512 * 1024
    line = "one word after another "
    text = (line * 60_000)[:1_300_000]
    for place in (half - shift, len(text) - half - shift):
        text = text[: place - 1] + f" {GITHUB} " + text[place + len(GITHUB) + 1 :]
    (tmp_path / "out").write_text(text)
    told = workspace_text(tmp_path, Secrets(), ("run_command", {"command": "cat out"}))
    assert [at for at in range(len(GITHUB) - 7) if GITHUB[at : at + 8] in told] == []
    (tmp_path / "out").write_text("first\n" + text[: 2 * half - 100])
    told = workspace_text(tmp_path, Secrets(), ("read_file", {"path": "out"}))
    assert GITHUB[:12] not in told


@given(st.integers(0, 300), st.text("ab 1", max_size=120), st.text("ab 1", max_size=120))
def test_a_cut_text_is_a_part_of_the_redacted_one(slack: int, before: str, after: str) -> None:
    text, secrets = f"{before} {GITHUB} {after}", Secrets(["ab ab1"])
    assert secrets(text).startswith(head_before(text, slack, secrets))
    assert secrets(text).endswith(tail_behind(text, slack, secrets))
    assert head_before(text, 0, secrets) == tail_behind(text, 0, secrets) == secrets(text)


def test_a_tool_can_redact_before_it_cuts() -> None:
    def look(context: RunContext[None]) -> str:
        """Look."""
        return context.redact(f"it is {GITHUB}")[:20]

    model = ScriptedModel([calls(look={}), "done"])
    with SyncRunner(Agent(model, tools=[look]), transcripts=None, redact=Secrets()) as runner:
        result = runner.run("look")
    assert result.messages[2].text == "it is [redacted: Git"


WORDS = [
    "assistant",
    "user",
    "tool",
    "function",
    "answered",
    "text",
    "type",
    "role",
    "content",
    "stop",
    "look",
]


def test_values_that_are_words_of_the_structure_ruin_no_run(tmp_path: Path) -> None:
    def look(subject: str) -> str:
        """Look."""
        return f"a tool said text to {subject}"

    model = ScriptedModel([calls(look={"subject": "it"}), "the assistant has answered"], window="8k")
    store, redact = (
        f"sqlite:///{tmp_path / 's.db'}",
        Secrets(WORDS),
    )
    message = Message(role="user", content=({"type": "text", "text": "the user said"},))
    with SyncRunner(Agent(model, tools=[look]), store=store, transcripts=None, redact=redact) as runner:
        result = runner.run(message, session_id="look")
        kinds = [type(record.event).__name__ for record in runner.events("look")]
    assert (result.status, len(model.requests)) == ("answered", 2)
    assert [each.role for each in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.messages[0].content == ({"type": "text", "text": "the [redacted: known value] said"},)
    assert result.messages[1].tool_calls[0].name == "look"
    assert "known value" in result.messages[2].text
    assert result.output == "the [redacted: known value] has [redacted: known value]"
    assert kinds[-1] == "RunEndRecord"


def test_every_record_and_event_says_where_it_is_free_text() -> None:
    kinds = [*typing.get_args(events.AnyEvent), *typing.get_args(stream.AnyStreamEvent), Message, ToolCall]
    assert {kind.__name__ for kind in kinds} <= FREE_TEXT.keys()
    for kind in kinds:
        names = {each.name for each in dataclasses.fields(kind)}
        known = [each for each in kinds if each.__name__ == kind.__name__]
        every = {each.name for other in known for each in dataclasses.fields(other)}
        assert set(FREE_TEXT[kind.__name__]) <= every, names


class Failing:
    """A redaction that fails, or gives no text, once it has seen a word."""

    def __init__(self, word: str, fails: Callable[[str], object]) -> None:
        self.word, self.fails = word, fails

    def __call__(self, text: str) -> Any:
        return self.fails(text) if self.word in text else text.replace(GITHUB, "***")


def raising(text: str) -> object:
    raise RuntimeError(f"cannot take {text}")


@pytest.mark.parametrize("word", ["prompt", "argument", "progress", "result", "answer"])
@pytest.mark.parametrize("fails", [raising, lambda text: None, str.encode])
async def test_a_redaction_that_fails_ends_the_run_and_stores_nothing_as_it_was(
    tmp_path: Path, word: str, fails: Callable[[str], object]
) -> None:
    async def look(context: RunContext[None], text: str) -> str:
        """Look."""
        context.progress(f"progress {GITHUB}")
        return f"result {GITHUB}"

    model = ScriptedModel([calls(look={"text": f"argument {GITHUB}"}), f"answer {GITHUB}"])
    store = f"sqlite:///{tmp_path / 's.db'}"
    async with Runner(
        Agent(model, tools=[look]), store=store, transcripts=None, redact=Failing(word, fails)
    ) as runner:
        shown: list[Any] = []

        async def watch() -> None:
            async for event in runner.stream(f"prompt {GITHUB}", session_id="s"):
                shown.append(event)

        if word == "progress":
            await watch()
        else:
            with pytest.raises(UsageError, match="redact must ") as caught:
                await watch()
            assert shown[-1].error == str(caught.value)
    assert shown[-1].status == ("usage" if word != "progress" else "answered")
    assert GITHUB[4:] not in repr(shown)
    assert GITHUB[4:].encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


class Counting:
    """A redaction that counts the characters it is asked to look at."""

    def __init__(self, redact: Secrets) -> None:
        self.redact, self.chars = redact, 0

    def __call__(self, text: str) -> str:
        self.chars += len(text)
        return self.redact(text)

    def settled(self, text: str) -> int:
        self.chars += len(text)
        return self.redact.settled(text)


@pytest.mark.deep
@pytest.mark.parametrize(
    "piece", ["ab ", LINES[0] + "\n", "password ", "-----BEGIN PRIVATE KEY-----\n", "a" * 9]
)
def test_a_stream_is_looked_at_a_fixed_number_of_times(piece: str) -> None:
    counting = Counting(Secrets(values=["ab ab ab"]))
    held, times = Held(counting), 40_000 // len(piece)
    shown = "".join([*(held.add(piece) for _ in range(times)), held.rest()])
    assert shown == counting.redact(piece * times)
    assert counting.chars < 25 * 40_000


def test_an_error_of_the_system_names_no_secret() -> None:
    error = OSError(2, f"no such {GITHUB}", f"/tmp/{GITHUB}", None, f"/var/{GITHUB}")
    redact_error(error, Secrets())
    assert GITHUB not in f"{error} {error!r} {error.filename} {error.filename2} {error.strerror}"
    assert "/tmp/[redacted: GitHub token]" in str(error)


def test_a_shape_shows_its_kind_alone() -> None:
    assert repr(Shape(kind="badge", pattern="badge-[0-9]{6}", hints=("badge-",))) == "Shape(kind='badge')"
    assert repr(KNOWN_SHAPES) == "KNOWN_SHAPES"


def test_provider_fields_are_redacted_under_the_keys_they_have() -> None:
    extra = {"reasoning_details": [{"type": "text", "text": f"I saw {GITHUB}", "id": "text"}], "text": "text"}
    message = Message(role="assistant", content="fine", extra=extra)
    clean = redacted(message, Secrets(["text"]))
    assert clean.extra["reasoning_details"] == [
        {"type": "text", "text": "I saw [redacted: GitHub token]", "id": "text"}
    ]
    assert clean.extra["text"] == "[redacted: known value]"
