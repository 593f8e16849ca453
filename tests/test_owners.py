"""A runner bound to an owner sees that owner's sessions alone; new ones get an owner and a time to live."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agentloop.cli.settings import settings_for
from agentloop.errors import SessionNotFoundError, UsageError
from agentloop.events import Described, MessageRecord
from agentloop.messages import Message
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stores import InMemoryStore, SessionStore, SQLiteStore
from agentloop.sync import SyncRunner
from agentloop.testing import ScriptedModel
from tests.cli_kit import agentloop


def runner_for(store: SessionStore, owner: str | None = None, **options: Any) -> Runner:
    return Runner(Agent(ScriptedModel(["one", "two"])), store=store, transcripts=None, owner=owner, **options)


async def test_a_new_session_has_its_owner_and_its_time_to_live_on_its_first_records() -> None:
    store = InMemoryStore()
    await runner_for(store, "ann", ttl_seconds=60, folder="/here").run("Hello", session_id="s")
    described = [record.event for record in await store.read("s") if isinstance(record.event, Described)]
    assert described == [Described(title="Hello", folder="/here", owner="ann", ttl_seconds=60.0)]
    info = await store.info("s")
    assert info
    assert (info.owner, info.ttl_seconds, info.expires) == ("ann", 60.0, info.updated + 60)
    await runner_for(store, ttl_seconds=9).run("Again", session_id="s")
    assert await store.list(owner="ann") == (await store.info("s"),)
    info = await store.info("s")
    assert info
    assert info.ttl_seconds == 60.0, "only new sessions are given one"


LOOKS: dict[str, Callable[[Runner], Coroutine[Any, Any, Any]]] = {
    "resume": lambda runner: runner.resume("s"),
    "compact": lambda runner: runner.compact("s"),
    "preview": lambda runner: runner.preview("s"),
    "undo": lambda runner: runner.undo("s"),
    "events": lambda runner: runner.events("s"),
    "status": lambda runner: runner.status("s"),
}


@pytest.mark.parametrize("owner", [None, "bob"])
@pytest.mark.parametrize("look", LOOKS)
async def test_what_is_somebody_elses_or_nobodys_is_not_there(look: str, owner: str | None) -> None:
    store = InMemoryStore()
    await runner_for(store, owner).run("Hello", session_id="s")
    before = await store.read("s")
    with pytest.raises(SessionNotFoundError, match="there is no session 's'"):
        await LOOKS[look](runner_for(store, "ann"))
    assert await store.read("s") == before
    await LOOKS[look](runner_for(store, owner))
    await LOOKS[look](runner_for(store))


@pytest.mark.parametrize("owner", [None, "bob"])
async def test_an_id_that_is_taken_is_refused_without_saying_whose_it_is(owner: str | None) -> None:
    store = InMemoryStore()
    await runner_for(store, owner).run("Hello", session_id="s")
    before, ann = await store.read("s"), runner_for(store, "ann")
    with pytest.raises(UsageError) as error:
        await ann.run("Hello?", session_id="s")
    assert str(error.value) == (
        "session id 's' is taken by another owner: choose another id, or name its owner (owner=, --owner)"
    )
    with pytest.raises(UsageError, match="choose another"):
        await anext(ann.stream("Hello?", session_id="s"))
    assert await store.read("s") == before
    assert not ann.agent.model.requests  # type: ignore[attr-defined]


async def test_a_session_that_another_begins_at_the_same_moment_is_not_entered() -> None:
    class Crossing(InMemoryStore):
        crossed = False

        async def append(self, session_id: str, events: Any, *, expect: int) -> int:
            if not self.crossed:
                self.crossed = True
                said = MessageRecord(message=Message.user("bob's secret"), tokens=3)
                await super().append(session_id, [Described(owner="bob"), said], expect=0)
            return await super().append(session_id, events, expect=expect)

    store, ann = Crossing(), None
    ann = runner_for(store, "ann")
    with pytest.raises(Exception, match="somebody else wrote"):
        await ann.run("Hello", session_id="s")
    assert not ann.agent.model.requests  # type: ignore[attr-defined]
    assert len(await store.read("s")) == 2


@pytest.mark.parametrize("bad", ["", "a\nb", "x" * 201, 5, ["ann"]])
def test_an_owner_that_is_none_is_refused_at_once(bad: Any) -> None:
    with pytest.raises(UsageError, match="bad owner"):
        runner_for(InMemoryStore(), bad)


def test_without_await_it_is_the_same() -> None:
    store = InMemoryStore()
    agent = Agent(ScriptedModel(["one"]))
    with SyncRunner(agent, store=store, transcripts=None, owner="ann", ttl_seconds=5) as runner:
        runner.run("Hello", session_id="s")
        assert runner.status("s").tokens > 0
    with (
        SyncRunner(agent, store=store, transcripts=None, owner="bob") as runner,
        pytest.raises(SessionNotFoundError),
    ):
        runner.events("s")


@pytest.mark.deep
async def test_the_command_line_finds_an_owners_sessions_alone(tmp_path: Path) -> None:
    ann, bob = {"AGENTLOOP_OWNER": "ann"}, ("--owner", "bob")
    store = ("--store", f"sqlite:///{tmp_path}/s.db")
    call = (*store, "-m", "offline", "-p")
    begun = agentloop(*call, "Hello", "--session", "of-ann", "--ttl", "12h", cwd=tmp_path, env=ann)
    assert begun.status == 0, begun.err
    agentloop(*call, "Hello", "--session", "of-bob", *bob, cwd=tmp_path)
    sessions = SQLiteStore(tmp_path / "s.db")
    found = {info.id: (info.owner, info.ttl_seconds) for info in await sessions.list()}
    assert found == {"of-ann": ("ann", 43_200.0), "of-bob": ("bob", None)}
    await sessions.close()

    latest = agentloop(*call, "Again", "-c", cwd=tmp_path, env=ann)
    assert latest.status == 0
    assert "-r of-ann" in latest.err.splitlines()[-1]
    carl = ("--owner", "carl")
    for refused, says in (
        (agentloop(*call, "Again", "-r", "of-bob", cwd=tmp_path, env=ann), "no session has the id"),
        (
            agentloop(*call, "Again", "-c", *carl, cwd=tmp_path, env=ann),
            "no session of the folder",
        ),
        (
            agentloop(*call, "Again", "--session", "of-bob", cwd=tmp_path, env=ann),
            "is taken by another owner: choose",
        ),
        (agentloop("undo", "of-bob", *store, cwd=tmp_path, env=ann), "no session has the id"),
    ):
        assert refused.status == 2
        assert says in refused.complaint()
        assert refused.out == ""
    hint = agentloop(*call, "Again", "-r", "of-bob", *bob, cwd=tmp_path).err.splitlines()[-1]
    assert "--owner bob -r of-bob" in hint


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("12h", 43_200), (" 30D ", 2_592_000), ("2 w", 1_209_600)],
)
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert settings_for({"ttl": text}, {}).ttl_seconds == seconds
    assert settings_for({}, {"AGENTLOOP_TTL": text}).ttl_seconds == seconds


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1y", "nan", "inf", "1e3", "5 5", "٣"])
def test_what_is_no_time_is_refused_by_the_name_of_where_it_stood(text: str) -> None:
    with pytest.raises(UsageError, match=r"--ttl: .* is no time above 0"):
        settings_for({"ttl": text}, {})
    with pytest.raises(UsageError, match="AGENTLOOP_OWNER: bad owner"):
        settings_for({}, {"AGENTLOOP_OWNER": "a\nb"})
