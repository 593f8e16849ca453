"""A session goes on with the model, server, API, window and compaction that it ran with."""

import json
from itertools import count
from pathlib import Path

import pytest

from agentloop.cli.session_setup import taken_up
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


@pytest.mark.parametrize("go_on", [("-c",), ("-r", "talk"), ("--session", "talk")], ids=str)
def test_a_session_goes_on_where_it_began(go_on: tuple[str, ...], tmp_path: Path) -> None:
    with StrictProvider(lambda _: "an answer") as provider:
        begin = ("--base-url", provider.url, "-m", "mine", "--api", "responses", "--window", "32k")
        options = (*begin, "--compact-at", "0.5", "--session", "talk")
        assert agentloop("-p", "one", *options, cwd=tmp_path).status == 0
        done = agentloop("-p", "two", *go_on, cwd=tmp_path)
        assert (done.status, done.out) == (0, "an answer\n")
        told = f"goes on with mine at {provider.url}, --api responses, a window of 32k, compaction at 0.5, as"
        assert told in done.err
        assert "offline" not in done.err
        assert provider.requests[-1].path.endswith("/responses")
        other = agentloop("-p", "three", *go_on, "-m", "yours", "--compact-at", "off", cwd=tmp_path)
        assert f"goes on with yours at {provider.url}, --api responses, as before" in other.err
        assert "a window" not in other.err
        assert agentloop("-p", "four", *go_on, "-m", "offline", cwd=tmp_path).err.count(provider.url) == 0
        assert len(provider.requests) == 3
    setups = [record["setup"] for record in starts("talk", tmp_path)]
    window = {"cut": False, "window": 32_000, "compact_at": 0.5}
    assert setups[:2] == [{"api": "responses", "server": provider.url, **window}] * 2
    assert setups[2]["compact_at"] == 0.0  # type: ignore[index]


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


def test_a_call_that_says_the_same_is_told_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        done = agentloop("-p", "Hello", "--session", "s", "-m", "offline", cwd=tmp_path)
    assert "as before" not in done.err
    assert "offline model answers" in agentloop("-p", "x", "--session", "t", cwd=tmp_path).err


def test_a_new_title_makes_no_session_the_newest(tmp_path: Path) -> None:
    for name in ("old", "new"):
        agentloop("-p", "Hello", "--session", name, cwd=tmp_path)
    agentloop("sessions", "rename", "old", "A better title", cwd=tmp_path)
    assert "session new" in agentloop("-p", "more", "-c", cwd=tmp_path).err


def test_a_key_goes_to_no_server_that_the_log_alone_names() -> None:
    run, keyed = began(server=GATEWAY), {"OPENAI_API_KEY": "sk-mine-and-nobody-elses"}
    with pytest.raises(UsageError, match=f"give --base-url {GATEWAY} to send your key there"):
        taken_up(settings_for({}, keyed), run)
    assert taken_up(settings_for({}, {}), run).base_url == GATEWAY
    assert taken_up(settings_for({}, keyed), began()).base_url == "http://127.0.0.1:1/v1"
    local = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"} | keyed
    openai = taken_up(settings_for({}, local), began("gpt-5-mini", server="https://api.openai.com/v1"))
    assert (openai.base_url, openai.model) == ("https://api.openai.com/v1", "gpt-5-mini")


def test_what_is_secret_in_an_address_is_asked_for_again() -> None:
    run = began(server=GATEWAY, cut=True)
    with pytest.raises(UsageError, match=f"ran on {GATEWAY}, with a secret in its address: give --base-url"):
        taken_up(settings_for({}, {}), run)
    given = f"{GATEWAY}?api-version=1"
    assert taken_up(settings_for({}, {"OPENAI_BASE_URL": given}), run).base_url == given
    assert taken_up(settings_for({"base_url": given}, {}), run).model != "mine"


@pytest.mark.parametrize("flags", [{"base_url": "http://127.0.0.1:2/v1"}, {"model": "offline"}])
def test_a_flag_for_another_server_leaves_nothing_of_the_model(flags: dict[str, str]) -> None:
    settings = settings_for(flags, {})
    now = taken_up(settings, began())
    assert (now.model, now.base_url, now.window) == (settings.model, settings.base_url, None)
    assert now.compact_at == 0.5


def test_a_log_of_an_older_version_says_nothing() -> None:
    settings = settings_for({}, {})
    assert taken_up(settings, RunStartRecord(run_id="r", model="mine")) is settings
