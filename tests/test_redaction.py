"""Secrets are in no file, no event, no line: whole, in pieces, escaped, or echoed by a server."""

import asyncio
import json
import logging
import string
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    Answer,
    Callbacks,
    Compaction,
    Message,
    MicroCompact,
    ModelRequest,
    ModelUnavailableError,
    Replace,
    Retry,
    RunContext,
    Runner,
    Secrets,
    SyncRunner,
    TextPart,
    ToolCall,
    UsageError,
)
from agentloop.context import count_message, counter_for
from agentloop.events import AnyEvent
from agentloop.redaction import KNOWN_SHAPES, Held, Shape, redacted
from agentloop.redaction.values import FREE_TEXT
from agentloop.stream import AnyStreamEvent, MessageAdded, TextDelta, to_json
from agentloop.testing import ScriptedModel, calls
from tests.kit import watched

DIGITS, UPPER, HEX = string.digits, string.ascii_uppercase, "0123456789abcdef"
LETTERS = string.ascii_letters + DIGITS
URL64 = LETTERS + "-_"


@pytest.mark.parametrize("kind", [*get_args(AnyEvent), *get_args(AnyStreamEvent)])
def test_of_each_event_it_is_said_which_fields_hold_free_text(kind: type) -> None:
    named = set(FREE_TEXT[kind.__name__])
    assert named <= {field.name for field in fields(kind)}


def of(alphabet: str, length: int) -> st.SearchStrategy[str]:
    """So many of these characters, the last of them a digit and a letter."""
    return st.text(alphabet, min_size=length - 2, max_size=length - 2).map(lambda text: f"{text}7a")


SHAPES: dict[str, st.SearchStrategy[str]] = {
    "openai": of(LETTERS, 48).map("sk-{}".format),
    "openai project": of(URL64, 120).map("sk-proj-{}".format),
    "anthropic": of(URL64, 95).map("sk-ant-api03-{}".format),
    "openrouter": of(HEX, 64).map("sk-or-v1-{}".format),
    "deepseek": of(HEX, 32).map("sk-{}".format),
    "google": of(URL64, 35).map("AIza{}".format),
    "aws id": st.text(UPPER + DIGITS, min_size=16, max_size=16).map("AKIA{}".format),
    "github": of(LETTERS, 36).map("ghp_{}".format),
    "github fine": of(LETTERS + "_", 82).map("github_pat_{}".format),
    "gitlab": of(URL64, 20).map("glpat-{}".format),
    "slack": of(LETTERS, 24).map("xoxb-123456789012-{}".format),
    "stripe": of(LETTERS, 24).map("sk_live_{}".format),
    "hugging face": of(LETTERS, 34).map("hf_{}".format),
    "npm": of(LETTERS, 36).map("npm_{}".format),
    "pypi": of(URL64, 150).map("pypi-AgEIcHlwaS5vcmc{}".format),
    "telegram": of(URL64, 33).map("110201543:AA{}".format),
    "jwt": st.tuples(of(URL64, 30), of(URL64, 60), of(URL64, 43)).map("eyJ{0[0]}.eyJ{0[1]}.{0[2]}".format),
}
BEHIND_A_NAME: dict[str, tuple[str, st.SearchStrategy[str], str]] = {
    "bearer": ("Authorization: Bearer ", of(LETTERS, 40), ""),
    "aws secret": ("aws_secret_access_key = ", of(LETTERS + "/", 40), ""),
    "url": ("postgres://me:", of(LETTERS, 12), "@db.example.org/x"),
    "environment": ("SERVICE_API_KEY=", of(LETTERS, 24), ""),
    "json": ('"password": "', of(LETTERS, 14), '"'),
    "yaml": ("password: ", of(LETTERS, 14), ""),
    "header": ("x-api-key: ", of(LETTERS, 30), ""),
}
bare = st.sampled_from(sorted(SHAPES)).flatmap(SHAPES.__getitem__)
named = st.sampled_from(sorted(BEHIND_A_NAME)).flatmap(
    lambda kind: BEHIND_A_NAME[kind][1].map(
        lambda secret: (BEHIND_A_NAME[kind][0] + secret + BEHIND_A_NAME[kind][2], secret)
    )
)
planted = named | bare.map(lambda secret: (secret, secret))
"""A text that holds a secret, and the secret in it."""

PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "MIIEow7aBAAKCAQEAx9Zb3k+Q/hQ1\n" * 12
    + "-----END RSA PRIVATE KEY-----"
)
words = st.text(max_size=20) | st.sampled_from(
    ["a key = b", "日本語", "x" * 300, "\n", ": ", "Bearer", '"token"']
)


@given(words, planted, words)
def test_every_known_shape_is_taken_out_and_twice_is_as_once(
    before: str, both: tuple[str, str], after: str
) -> None:
    text, secret = both
    clean = Secrets()(f"{before} {text} {after}")
    assert secret not in clean
    assert "[redacted: " in clean
    assert Secrets()(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "scikit: sk-learn, sk-estimator-doc-link-wrapper, sk-toggleable__label-arrow, sk-container-id-1",
        "the token count: many; tokens: [1, 2, 3]; max_tokens = 4096000000",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "id: 123e4567-e89b-12d3-a456-426614174000",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg==",
        "token = get_token(request2, session)",
        "password = os.environ['DB_PASSWORD_1']",
        "def login(user: str, password: str, token: Optional[str] = None) -> None:",
        "nextPageToken: 'CAUQAA12345678'",
        "https://host.example:8080/path@version",
        '"password": "${DB_PASSWORD}", "token": "{{ token_1 }}", api_key=<your-key-1>',
        '<input type="password" name="password1">',
        "She was the bearer of good news in 1999, and the secret: nobody knew.",
        "primary_key=some_table_id, sort_key: created_at_2024",
        "-----BEGIN CERTIFICATE-----\nMIIEow7aBAAKCAQEAx9Zb3k\n-----END CERTIFICATE-----",
        "ghp_short, hf_model_name_for_a_test_of_names, npm_config_registry_of_the_whole_team_here",
    ],
)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert Secrets()(text) == text


def test_a_block_in_pem_form_goes_whole_also_escaped_and_cut_off() -> None:
    clean = Secrets()
    assert clean(f"a {PEM} b") == "a [redacted: private key] b"
    assert clean(json.dumps({"key": PEM})) == '{"key": "[redacted: private key]"}'
    assert "MIIE" not in clean(PEM[:200] + "\nand so on")


VALUE = 'tricky "välue" / with+all?'


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        quote(VALUE),
        quote(VALUE, safe="").lower(),
        *(b64encode(f"{'me:!'[:length]}{VALUE}!!".encode()).decode() for length in range(5)),
        f"Xy{VALUE}{VALUE}z9",
    ],
)
def test_a_known_value_is_found_in_the_forms_that_carry_it(form: str) -> None:
    clean = Secrets([VALUE])(f"before {form} after")
    assert form[8:-8] not in clean
    assert clean.startswith("before ")
    assert clean.endswith(" after")


def test_the_longest_value_goes_whole_and_overlapping_ones_together() -> None:
    secrets = Secrets(["abcd1234", "abcd1234efgh", "efgh5678"])
    assert secrets("-abcd1234efgh-") == "-[redacted: known value]-"
    assert secrets("-abcd1234efgh5678-") == "-[redacted: known value]-"
    assert Secrets(["aaaa"])("-aaaaaa-") == "-[redacted: known value]-"


@given(
    st.lists(st.text(min_size=4, max_size=9), max_size=3),
    st.lists(
        words | planted.map(lambda both: both[0]) | st.sampled_from(["[redacted: ", "]", PEM]), max_size=6
    ),
    st.booleans(),
)
def test_redacting_twice_changes_nothing(values: list[str], texts: list[str], apart: bool) -> None:
    secrets = Secrets(values)
    once = secrets((" " if apart else "").join([*texts, *values]))
    assert secrets(once) == once


def test_a_mark_that_somebody_else_wrote_hides_nothing() -> None:
    key = "sk-proj-" + "aB3" * 7
    assert key not in Secrets()(f"[redacted: {key}]")


@pytest.mark.parametrize(
    ("piece", "chars"),
    [
        ("a", 5_000_000),
        ("sk-", 5_000_000),
        ("令牌 key=", 500_000),
        ("bearer ", 500_000),
        ("login a ", 500_000),
        ("\npassword 1a", 500_000),
        ("auth=Ogab", 500_000),
        ("MOab.", 500_000),
        pytest.param("eyJaaaaaaaaa.", 5_000_000, marks=pytest.mark.deep),
        pytest.param("-----BEGIN PRIVATE KEY----- aaaa", 5_000_000, marks=pytest.mark.deep),
        pytest.param("token:1", 5_000_000, marks=pytest.mark.deep),
    ],
)
def test_5_mb_of_anything_are_read_whole_and_in_pieces(piece: str, chars: int) -> None:
    text = f"password{' ' * 1_000}" + piece * (chars // len(piece))
    secrets = Secrets(["correct horse battery"])
    assert secrets(text).startswith("password ")
    held, start = Held(secrets), text[:300_000]
    shown = [held.add(start[at : at + 5_000]) for at in range(0, len(start), 5_000)]
    assert "".join([*shown, held.rest()]) == secrets(start)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(UsageError, match=r"values\[1\] must be a text of at least 4 characters"):
        Secrets(["long enough", "abc"])
    with pytest.raises(UsageError, match="values must be a list"):
        Secrets("a single text")
    with pytest.raises(UsageError, match="shapes must be a list of Shape"):
        Secrets(shapes=["sk-.*"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="pattern must be a regular expression"):
        Shape(kind="x", pattern="(")
    with pytest.raises(UsageError, match="kind must be"):
        Shape(kind="a]b", pattern="x")
    with pytest.raises(UsageError, match="words must be a whole number from 1 to 40"):
        Shape(kind="a", pattern="x", words=41)
    with pytest.raises(UsageError, match="redact must be a function"):
        Runner(Agent(ScriptedModel([])), redact=Secrets)  # type: ignore[arg-type]
    assert "correct" not in repr(Secrets(["correct horse"]))


@pytest.mark.many(150)
@given(
    st.lists(
        words | planted.map(lambda both: both[0]) | st.sampled_from([PEM, PEM[:90], "correct horse"]),
        max_size=8,
    ),
    st.lists(st.integers(1, 40), min_size=1, max_size=20),
    st.sampled_from(["", " ", "\n", ", "]),
)
def test_what_is_shown_in_pieces_is_the_redacted_whole(
    texts: list[str], cuts: list[int], between: str
) -> None:
    text = between.join(texts)
    secrets = Secrets(["correct horse battery", "日本語 secret"])
    held, shown, at = Held(secrets), [], 0
    while at < len(text):
        size = cuts[len(shown) % len(cuts)]
        shown.append(held.add(text[at : at + size]))
        at += size
    assert "".join([*shown, held.rest()]) == secrets(text)


def test_ordinary_text_is_shown_while_it_comes() -> None:
    held = Held(Secrets())
    assert [held.add(piece) for piece in ("Half an ", "ans", "wer ")] == ["Half an ", "", "answer "]
    assert [held.add(piece) for piece in ("The ", "password ", "is here ")] == ["The ", "", ""]
    assert held.rest() == "password is here "
    assert held.add("これは普通の文章です。") != ""


def test_a_redaction_that_is_a_plain_function_sees_the_whole_answer() -> None:
    held = Held(lambda text: text.replace("two words", "X"))
    assert [held.add(piece) for piece in ("one two ", "words ", "three")] == ["", "", ""]
    assert held.rest() == "one X three"


@given(planted, st.booleans())
def test_arguments_stay_json_whatever_is_taken_out(both: tuple[str, str], escaped: bool) -> None:
    text, secret = both
    written = json.dumps({"a": [{text: text}], "n": 1.0, "password": secret}, ensure_ascii=escaped)
    if escaped:
        written = written.replace(secret, "".join(f"\\u{ord(letter):04x}" for letter in secret))
    message = Message.assistant(None, [ToolCall(id="c", name="write", arguments=written)])
    (call,) = redacted(message, Secrets()).tool_calls
    assert secret not in json.dumps(json.loads(call.arguments))
    assert call.decoded() is not None


def test_arguments_stay_json_under_a_redaction_that_knows_none() -> None:
    message = Message.assistant(None, [ToolCall(id="c", name="write", arguments='{"a": "b"}')])
    (call,) = redacted(message, lambda text: text.replace('"', "?")).tool_calls
    assert isinstance(json.loads(call.arguments), dict)
    doubled = '{"a": "sk-proj-\\u0061bcdefghijklmnopqrstu7", "a": "none"}'
    message = Message.assistant(None, [ToolCall(id="c", name="write", arguments=doubled)])
    (call,) = redacted(message, Secrets()).tool_calls
    assert call.arguments == '{"a": "none"}'


def test_what_holds_no_secret_is_the_very_same() -> None:
    message = Message.from_openai(
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "fine"}],
            "reasoning_content": "as it was \ud800 ",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{ "a" : 1e5 }'}}
            ],
        }
    )
    assert redacted(message, Secrets()) is message


class Speaking:
    """A model whose answers come in pieces cut at given lengths, some behind a retry that says a secret."""

    name, window, max_output_tokens = "speaking", 6_000, None

    def __init__(self, answers: Sequence[Message], cuts: Sequence[int], secret: str) -> None:
        self.requests: list[ModelRequest] = []
        self._answers, self._cuts, self._secret = iter(answers), cuts, secret

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[TextPart | Retry | Answer, None]:
        self.requests.append(request)
        if request.purpose == "summary":
            yield Answer(message=Message.assistant(f"They spoke of {self._secret} at length."))
            return
        message = next(self._answers, None)
        yield TextPart(text=self._secret[:9])
        yield Retry(attempt=1, wait_seconds=0.0, error=f"bad key {self._secret}")
        if message is None:
            raise ModelUnavailableError(f"no answer for {self._secret}") from ValueError(self._secret)
        at = 0
        while at < len(message.text):
            size = self._cuts[at % len(self._cuts)]
            yield TextPart(text=message.text[at : at + size])
            at += size
        yield Answer(message=message)


def leaky(secret: str) -> Any:
    """A tool that says the secret and raises with it."""

    async def leak(context: RunContext[None], text: str) -> str:
        """Say it."""
        context.progress(f"working with {secret}")
        await asyncio.sleep(0)
        if "fail" in text:
            raise ValueError(f"cannot use {secret}")
        return f"{secret} found: " + "so many words of a long result " * 800 + secret

    return leak


class Talking(Callbacks):
    """Raises with the secret, and puts it into a summary."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.seen: list[str] = []

    def before_compaction(self, request: Any) -> Replace:
        self.seen.append(repr(request))
        return Replace(f"A summary that names {self.secret} once.")

    def after_compaction(self, result: Any) -> None:
        self.seen.append(repr(result))
        raise ValueError(self.secret)

    def on_event(self, event: Any) -> None:
        self.seen.append(repr(event))


def answers_with(text: str) -> list[Message]:
    """Three answers that say it in every place."""
    batch = calls(("leak", {"text": text}), ("leak", {"text": f"fail {text}"}))
    extra = {"reasoning_content": f"thinking of {text}", "reasoning_details": [{"data": {"k": [text]}}]}
    return [
        Message(role="assistant", content=f"I use {text} now", tool_calls=tuple(batch), extra=extra),
        Message.assistant(None, calls(("leak", {"text": "again"}))),
        Message(role="assistant", content=f"The end: {text}, that is it.", extra=extra),
    ]


def on_disc(folder: Path) -> bytes:
    """All bytes and names of the files below."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return b"".join(str(path).encode() + path.read_bytes() for path in files)


@pytest.mark.many(12)
@given(planted, st.lists(st.integers(1, 30), min_size=1, max_size=8))
@example(("Authorization: Bearer abcdefgh12345678abcdefgh", "abcdefgh12345678abcdefgh"), [1])
def test_no_secret_of_a_run_reaches_a_file_an_event_or_a_line(
    tmp_path_factory: pytest.TempPathFactory, both: tuple[str, str], cuts: list[int]
) -> None:
    text, secret = both
    folder = tmp_path_factory.mktemp("run")
    log, talking = StringIO(), Talking(text)
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(log),
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    try:
        seen, model, failed = asyncio.run(_conversation(folder, text, cuts, talking))
    finally:
        structlog.reset_defaults()
    said = [
        repr(seen),
        json.dumps([to_json(event) for event in seen]),
        repr(talking.seen),
        log.getvalue(),
        failed,
    ]
    assert secret not in "".join(said)
    assert secret not in repr(model.requests)
    assert secret.encode() not in on_disc(folder)
    assert b"[redacted: " in on_disc(folder)
    assert "run_ended" in log.getvalue()
    assert list((folder / "kept").glob("transcript_*"))
    assert list((folder / "kept").glob("result_*"))


async def _conversation(
    folder: Path, text: str, cuts: list[int], talking: Talking
) -> tuple[list[AnyStreamEvent], Speaking, str]:
    model = Speaking(answers_with(text), cuts, text)
    agent = Agent(model, tools=[leaky(text)], compaction=Compaction(micro=MicroCompact()))
    async with Runner(
        agent,
        store=f"sqlite:///{folder / 'sessions.db'}",
        transcripts=folder / "kept",
        callbacks=[talking],
        redact=Secrets(),
    ) as runner:
        seen = await watched(runner, f"{text} is what I have", session_id="s")
        shown = "".join(event.text for event in seen if isinstance(event, TextDelta))
        told = [event.message.text for event in seen if isinstance(event, MessageAdded)]
        assert shown == "".join(Secrets()(message.text) for message in answers_with(text))
        assert told[-1] == Secrets()(answers_with(text)[-1].text)
        await runner.compact("s", focus=f"keep {text}")
        failed = ""
        try:
            await runner.run(f"and {text}?", session_id="s")
        except ModelUnavailableError as error:
            failed = f"{error} {error.__cause__}"
        assert failed
        counter = counter_for(model.name)
        for record in await runner.events("s"):
            message = getattr(record.event, "message", None)
            if message is not None:
                assert record.event.tokens == count_message(message, counter)  # type: ignore[attr-defined]
    return seen, model, failed


def test_a_secret_that_a_shortened_result_or_title_would_cut_is_gone_before(tmp_path: Path) -> None:
    secret = "sk-proj-" + "aB3" * 40
    for shift in range(0, 60, 7):
        prompt = "x" * shift + f" {secret} and more"
        model = ScriptedModel([calls(leak={"text": "go"}), "done"], window="8k")
        with SyncRunner(
            Agent(model, tools=[leaky(secret)]),
            store=f"sqlite:///{tmp_path / f'{shift}.db'}",
            transcripts=tmp_path / str(shift),
            redact=Secrets(),
        ) as runner:
            runner.run(prompt, session_id="s")
    assert secret[:20].encode() not in on_disc(tmp_path)


def test_without_redact_nothing_changes() -> None:
    secret = "sk-proj-" + "aB3" * 10
    with SyncRunner(Agent(ScriptedModel([f"It is {secret}."])), transcripts=None) as runner:
        assert runner.run("say it").output == f"It is {secret}."


def test_a_function_of_ones_own_will_do() -> None:
    model = ScriptedModel(["The plan is Blue Fox."])
    with SyncRunner(
        Agent(model), transcripts=None, redact=lambda text: text.replace("Blue Fox", "[redacted: plan]")
    ) as runner:
        result = runner.run("What of Blue Fox?")
    assert result.output == "The plan is [redacted: plan]."
    assert "Blue Fox" not in repr(model.requests)


def test_every_shape_has_a_kind_and_letters_to_look_for() -> None:
    assert all(shape.kind and shape.hints for shape in KNOWN_SHAPES)


@pytest.mark.parametrize("ours", KNOWN_SHAPES, ids=lambda shape: shape.kind)
def test_every_shape_of_ours_is_one_that_a_user_could_give(ours: Shape) -> None:
    assert Shape(kind=ours.kind, pattern=ours.pattern, hints=ours.hints, words=ours.words) == ours
