"""All stores keep the same contract, and so may a store of the user's own."""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, OfflineModel, Runner
from agentloop.codec import decode, encode
from agentloop.errors import UsageError
from agentloop.events import Described, Event, MessageRecord
from agentloop.messages import Message
from agentloop.stores import InMemoryStore, SessionInfo, SessionStore, SQLiteStore, open_store
from agentloop.stores.lines import change_of, changed
from agentloop.testing import CHECKS, Check, store_contract
from tests.postgres_kit import Server
from tests.store_kit import said

pytestmark = pytest.mark.whole

Make = Callable[[], SessionStore]
KINDS = ("memory", "sqlite", "postgres")


@pytest.fixture(scope="module")
def shared(postgres: Server) -> Iterator[str]:
    """A database for the checks, which need no empty one."""
    with postgres.database() as url:
        yield url


@pytest.fixture(params=KINDS)
def make_store(request: pytest.FixtureRequest) -> Make:
    """Makes stores of one kind; the first of them holds nothing."""
    return made(request, "database")


@pytest.fixture(params=KINDS)
def make_used_store(request: pytest.FixtureRequest) -> Make:
    """Makes stores of one kind, which may hold other sessions."""
    return made(request, "shared")


def made(request: pytest.FixtureRequest, database: str) -> Make:
    if request.param == "memory":
        return InMemoryStore
    if request.param == "sqlite":
        path = request.getfixturevalue("tmp_path") / "sub" / "sessions.db"
        return lambda: SQLiteStore(path)
    url = request.getfixturevalue(database)
    return lambda: open_store(url)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_contract(make_used_store: Make, check: Check) -> None:
    store = make_used_store()
    try:
        await check(store)
    finally:
        await store.close()


@pytest.mark.deep
async def test_the_contract_in_one_call(make_store: Make) -> None:
    await store_contract(make_store)


NEWER = st.builds(
    Described,
    title=st.sampled_from([None, "", "T", "\ud800", "\ud83d\ude42", "\ude42\ud83d"]),
    folder=st.sampled_from([None, "/a", "/\udce9", "/\ud83d\ude42"]),
    owner=st.sampled_from([None, "me", "you", "\ud83d\ude42"]),
    ttl_seconds=st.sampled_from([None, 0, -1.0, 5, 2.5]),
    time=st.sampled_from([1.0, 2, -3.5]),
)
SAID = st.builds(said).map(lambda event: replace(event, time=4.0))
APPENDS = st.lists(st.lists(st.one_of(NEWER, SAID), min_size=1, max_size=3), min_size=1, max_size=4)


def line(name: str, events: Sequence[Event]) -> SessionInfo:
    """The line by the words of `Described` as the log says them again, one field after the other."""
    events = [decode(encode(event)) for event in events]
    found: dict[str, Any] = {}
    for event in events:
        for field in ("title", "folder", "owner", "ttl_seconds"):
            if (value := getattr(event, field, None)) is not None:
                found[field] = value
    ttl = found.pop("ttl_seconds", 0)
    return SessionInfo(
        id=name,
        title=found.get("title"),
        folder=found.get("folder"),
        owner=found.get("owner"),
        ttl_seconds=ttl if ttl in (5, 2.5) else None,
        created=events[0].time,
        updated=max(event.time for event in events),
        length=len(events),
    )


@given(APPENDS)
def test_a_change_of_all_is_the_changes_of_its_parts(appends: list[list[Event]]) -> None:
    whole = [event for events in appends for event in events]
    info = None
    for events in appends:
        info = changed(info, "s", change_of(events))
    assert info == changed(None, "s", change_of(whole)) == line("s", whole)


@pytest.mark.many(15)
@given(appends=APPENDS)
def test_every_store_says_of_a_session_what_its_events_do(
    make_used_store: Make, appends: list[list[Event]]
) -> None:
    async def told() -> None:
        store, name, written = make_used_store(), uuid.uuid4().hex, list[Event]()
        for events in appends:
            await store.append(name, events, expect=len(written))
            written += events
            assert await store.info(name) == line(name, written)
        await store.close()

    asyncio.run(told())


async def test_stores_are_opened_by_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, path in (
        ("sqlite:///relative 1.db", tmp_path / "relative 1.db"),
        (f"sqlite:///{tmp_path}/abs#ä%20.db", tmp_path / "abs#ä%20.db"),
    ):
        store = open_store(url)
        assert not path.exists()
        await store.append("s", [MessageRecord(message=Message.user("hi"), tokens=1)], expect=0)
        await store.close()
        assert path.is_file()
    assert isinstance(open_store("memory:"), InMemoryStore)
    own = InMemoryStore()
    assert open_store(own) is own


async def test_a_relative_path_means_the_folder_it_was_named_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///here.db")
    monkeypatch.chdir(tmp_path / "later")
    await store.append("s", [MessageRecord(message=Message.user("hi"), tokens=1)], expect=0)
    await store.close()
    assert (tmp_path / "here.db").is_file()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "'' is no store URL: use memory:, sqlite:///relative"),
        ("sessions.db", "'sessions.db' is no store URL"),
        ("memory:x", "is no store URL"),
        ("mysql://localhost/x", "is no store URL"),
        ("sqlite:", "bad store URL"),
        ("sqlite:x.db", "bad store URL"),
        ("sqlite://x.db", "bad store URL"),
        ("sqlite:///", "bad store URL"),
        ("sqlite:////", "bad store URL"),
        ("sqlite:///a\0b", "bad store URL"),
        ("sqlite:///:memory:", "bad store URL.*use memory:"),
        ("sqlite:///x.db?mode=ro", "query string"),
        ("postgresql:me:secret@host/db", "bad PostgreSQL URL: it begins with neither .*; use postgresql://"),
        (
            "postgres://me:secret@a/b@host/db",
            "bad PostgreSQL URL: a bare @ or / stands .*; use postgresql://",
        ),
    ],
)
def test_a_bad_url_is_one_clear_line(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        open_store(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("prompt", ["\ud83d\ude42 Hello", "a" * 58 + "\ud83d\ude42 and more", "\ude42\ud83d"])
async def test_a_title_of_halves_is_the_one_that_the_log_has(prompt: str, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    async with Runner(Agent(OfflineModel()), store=store, transcripts=None) as runner:
        done = await runner.run(prompt)
        info = await store.info(done.session_id)
        assert await store.check() == ()
        assert info is not None
        assert (info.title or "").encode().decode() == info.title
