"""A session goes on with the model, server, API, window and compaction that it ran with."""

import json
from itertools import count
from pathlib import Path

import pytest

from agentloop.cli.resume import settings_of_run
from agentloop.cli.settings import settings_for
from agentloop.errors import UsageError
from agentloop.events import RunSetup, RunStartRecord
from tests.cli_kit import agentloop
from tests.strict_provider import StrictProvider

GATEWAY = "https://models.example/v1"


def began(model: str = "mine", **setup: object) -> RunStartRecord:
    """The record of a run on a server of one's own."""
    fields = {"api": "chat", "server": "http://127.0.0.1:1/v1", "window": 32_000, "compact_at": 0.5} | setup
    return RunStartRecord(run_id="r", model=model, setup=RunSetup(**fields))  # type: ignore[arg-type]


def starts(name: str, cwd: Path) -> list[dict[str, object]]:
    """The records of a session that say that a run began."""
    text = agentloop("sessions", "export", name, "--format", "events", cwd=cwd).out
    return [record for record in map(json.loads, text.splitlines()) if record["kind"] == "run_started"]


@pytest.mark.deep
@pytest.mark.parametrize("go_on", [("-c",), ("-r", "talk"), ("--session", "talk")], ids=str)
def test_a_session_goes_on_where_it_began(go_on: tuple[str, ...], tmp_path: Path) -> None:
    with StrictProvider(lambda _: "an answer") as provider:
        begin = ("--base-url", provider.url, "-m", "mine", "--api", "responses", "--window", "32k")
        options = (*begin, "--compact-at", "0.5", "--session", "talk")
        assert agentloop("-p", "one", *options, cwd=tmp_path).status == 0
        done = agentloop("-p", "two", *go_on, cwd=tmp_path)
        assert (done.status, done.out) == (0, "an answer\n")
        told = f"--model mine --window 32000 --base-url {provider.url} --api responses --compact-at 0.5, as"
        assert f"goes on with {told}" in done.err
        assert "offline" not in done.err
        assert provider.requests[-1].path.endswith("/responses")
        other = agentloop("-p", "three", *go_on, "-m", "yours", "--compact-at", "off", cwd=tmp_path)
        assert f"goes on with --base-url {provider.url} --api responses, as before" in other.err
        assert agentloop("-p", "four", *go_on, "-m", "offline", cwd=tmp_path).err.count(provider.url) == 0
        assert len(provider.requests) == 3
    setups = [record["setup"] for record in starts("talk", tmp_path)]
    window = {"cut": False, "window": 32_000, "compact_at": 0.5}
    assert setups[:2] == [{"api": "responses", "server": provider.url, **window}] * 2
    assert setups[2]["compact_at"] == 0.0  # type: ignore[index]


@pytest.mark.deep
def test_compact_needs_no_model(tmp_path: Path) -> None:
    numbers = count()
    with StrictProvider(lambda _: f"What was said {next(numbers)} times, in short.") as provider:
        options = ("--base-url", provider.url, "-m", "mine", "--window", "32k", "--session", "talk")
        for number in range(4):
            agentloop("-p", f"{number} " + "many words " * 100, *options, cwd=tmp_path)
        before = len(provider.requests)
        done = agentloop("compact", "talk", cwd=tmp_path)
        assert done.out.startswith("compacted: "), done.out + done.err
        assert len(provider.requests) > before
    assert "offline" not in done.err


@pytest.mark.deep
def test_a_call_that_says_the_same_is_told_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        done = agentloop("-p", "Hello", "--session", "s", "-m", "offline", cwd=tmp_path)
    assert "as before" not in done.err
    assert "offline model answers" in agentloop("-p", "x", "--session", "t", cwd=tmp_path).err


@pytest.mark.parametrize("environment", [{}, {"OPENAI_API_KEY": "sk-test"}], ids=["no key", "a key"])
def test_a_session_begun_offline_goes_on_so_and_says_nothing_else(
    environment: dict[str, str], tmp_path: Path
) -> None:
    agentloop("-p", "Hello", "-m", "offline", "--session", "s", cwd=tmp_path)
    for call in (("-p", "Hello", "-c"), ("compact", "s", "--preview")):
        done = agentloop(*call, cwd=tmp_path, env=environment)
        words = "the session goes on with --model offline, as before: give other options to change that"
        assert (words in done.err) is bool(environment)
        assert "offline model answers" not in done.err


@pytest.mark.deep
def test_a_new_title_makes_no_session_the_newest(tmp_path: Path) -> None:
    for name in ("old", "new"):
        agentloop("-p", "Hello", "--session", name, cwd=tmp_path)
    agentloop("sessions", "rename", "old", "A better title", cwd=tmp_path)
    assert "session new" in agentloop("-p", "more", "-c", cwd=tmp_path).err


KEYED = {"OPENAI_API_KEY": "sk-mine-and-nobody-elses"}
LOCAL = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize("environment", [{}, {"OPENAI_BASE_URL": GATEWAY}], ids=str)
@pytest.mark.parametrize(
    "server", [LOCAL, "https://api.openai.com:9/v1", "http://api.openai.com/v1", "http://127.evil.com/v1"]
)
def test_a_key_goes_to_no_server_that_the_log_alone_names(server: str, environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"give --base-url {server} to send your key there"):
        settings_of_run(settings_for({}, environment | KEYED), began(server=server))


def test_the_key_of_a_gateway_goes_to_nobody_else() -> None:
    settings = settings_for({}, {"OPENAI_BASE_URL": GATEWAY} | KEYED)
    assert settings_of_run(settings, began(server=GATEWAY)).base_url == GATEWAY
    with pytest.raises(UsageError, match="to send your key there"):
        settings_of_run(settings, began(server="https://api.openai.com/v1"))
    assert settings_of_run(settings_for({}, KEYED), began(server="https://api.openai.com/v1")).model == "mine"


@pytest.mark.parametrize("server", [LOCAL, "http://localhost:8080/v1", "http://[::1]:8080/v1"])
def test_a_server_on_this_machine_is_taken_up(server: str) -> None:
    assert settings_of_run(settings_for({}, {}), began(server=server)).base_url == server


@pytest.mark.parametrize(
    "server",
    [GATEWAY, "https://api.openai.com:9/v1", "http://127.evil.com/v1", "http://localhost.evil.com/v1"],
)
def test_a_session_goes_to_no_other_machine_that_the_log_alone_names(server: str) -> None:
    with pytest.raises(UsageError, match=f"give --base-url {server} to send the session there"):
        settings_of_run(settings_for({}, {}), began(server=server))


def test_a_password_in_an_address_of_the_log_is_not_taken_up() -> None:
    run = began(server="http://ann:word@127.0.0.1:1/v1?key=word")
    assert settings_of_run(settings_for({}, {}), run).base_url == LOCAL


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ({"api": "nonsense"}, {"api": "chat", "model": "mine"}),
        ({"compact_at": 7.0}, {"compact_at": 0.8, "model": "mine"}),
        ({"window": -1}, {"window": None, "model": "mine"}),
        ({"server": None}, {"base_url": None, "model": "mine"}),
        ({"server": "http://[bad"}, {"base_url": None, "model": "offline"}),
        ({"server": "file:///etc/passwd"}, {"base_url": None, "model": "offline"}),
        ({"model": "\x1b[2J"}, {"base_url": None, "model": "offline"}),
    ],
    ids=str,
)
def test_what_a_flag_would_refuse_is_passed_over(said: dict[str, object], left: dict[str, object]) -> None:
    now = settings_of_run(settings_for({}, {}), began(**said))  # type: ignore[arg-type]
    assert {name: getattr(now, name) for name in left} == left
    assert "\x1b" not in (now.resumed_with or "")


def test_what_is_secret_in_an_address_is_asked_for_again() -> None:
    run = began(server=GATEWAY, cut=True)
    with pytest.raises(UsageError, match=f"ran on {GATEWAY}, with a secret in its address: give --base-url"):
        settings_of_run(settings_for({}, {}), run)
    given = f"{GATEWAY}?api-version=1"
    assert settings_of_run(settings_for({}, {"OPENAI_BASE_URL": given}), run).base_url == given
    assert settings_of_run(settings_for({"base_url": given}, {}), run).model != "mine"


@pytest.mark.parametrize("flags", [{"base_url": "http://127.0.0.1:2/v1"}, {"model": "offline"}])
def test_a_flag_for_another_server_leaves_nothing_of_the_model(flags: dict[str, str]) -> None:
    settings = settings_for(flags, {})
    now = settings_of_run(settings, began())
    assert (now.model, now.base_url, now.window) == (settings.model, settings.base_url, None)
    assert now.compact_at == 0.5


@pytest.mark.parametrize(("model", "api"), [("mine", "chat"), ("offline", None)])
def test_a_flag_for_the_model_that_it_had_keeps_its_window(model: str, api: str | None) -> None:
    server = "http://127.0.0.1:1/v1" if api else None
    now = settings_of_run(settings_for({"model": model}, {}), began(model, api=api, server=server))
    assert (now.model, now.base_url, now.window) == (model, server, 32_000)


@pytest.mark.deep
def test_a_header_that_a_session_ran_with_is_asked_for_again(tmp_path: Path) -> None:
    header = ("--header", "X-Gateway: word-of-mine")
    with StrictProvider(lambda _: "an answer", key="word-of-mine") as provider:
        begin = ("--base-url", provider.url, "-m", "mine", "--window", "32k", "--session", "talk")
        assert (
            agentloop(
                "-p", "one", *begin, "--header", "Authorization: Bearer word-of-mine", *header, cwd=tmp_path
            ).status
            == 0
        )
        done = agentloop("-p", "two", "-c", cwd=tmp_path)
        assert done.status == 1
        asked = (
            "--header 'Authorization: …' and --header 'X-Gateway: …', whose value is not kept: give it again"
        )
        assert f"the session ran with {asked}" in done.err
        assert (
            f"{provider.url} asks who you are (401): set OPENAI_API_KEY, or give the header it wants"
            in done.err
        )
        assert "not kept: give" not in agentloop("-p", "two", "-c", "-m", "offline", cwd=tmp_path).err
    [first, *_] = starts("talk", tmp_path)
    assert first["setup"]["headers"] == ["Authorization", "X-Gateway"]  # type: ignore[index]
    assert "word-of-mine" not in json.dumps(first)


def test_a_header_that_is_given_again_is_not_asked_for() -> None:
    flags = {"header": ("x-gateway: again",), "base_url": "http://127.0.0.1:1/v1"}
    resumed = settings_of_run(settings_for(flags, {}), began(headers=("X-Gateway",)))
    assert "header" not in (resumed.resumed_with or "")
    missing = settings_of_run(
        settings_for({"base_url": "http://127.0.0.1:1/v1"}, {}), began(headers=("X-Gateway",))
    )
    assert "--header 'X-Gateway: …', whose value is not kept" in (missing.resumed_with or "")


def test_a_log_of_an_older_version_says_nothing() -> None:
    settings = settings_for({}, {})
    assert settings_of_run(settings, RunStartRecord(run_id="r", model="mine")) is settings


@pytest.mark.deep
def test_a_session_of_another_folder_says_where_tools_work(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    place = ("--store", f"sqlite:///{tmp_path}/s.db", "-m", "offline")
    assert agentloop("-p", "Look", *place, "--session", "talk", cwd=tmp_path / "mine").status == 0
    words = f"the session's folder is {tmp_path / 'mine'}; tools work in {tmp_path / 'other'}"
    said = agentloop("-p", "Look", *place, "-r", "talk", cwd=tmp_path / "other").err
    assert words in said.replace("\n", " ")
    asked = agentloop("-p", "Look", *place, "-r", "talk", "--workdir", ".", cwd=tmp_path / "other")
    assert "folder is" not in asked.err
    assert "folder is" not in agentloop("-p", "Look", *place, "-r", "talk", cwd=tmp_path / "mine").err
