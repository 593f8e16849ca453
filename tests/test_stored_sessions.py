"""What `runner.sessions` does, and a session that begins with a history."""

from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Message, OfflineModel, Runner, SyncRunner, ToolCall, tool
from agentloop.errors import AgentLoopError, SessionNotFoundError, StoreError, UsageError
from agentloop.events import MessageRecord, RunEndRecord, RunStartRecord
from agentloop.sessions import StoredSessions
from agentloop.stores import InMemoryStore
from agentloop.stream import AnyStreamEvent, MessageAdded
from agentloop.sync import SyncSessions
from agentloop.testing import ScriptedModel
from tests.cli_kit import agentloop
from tests.fuzz_faults import DyingStore


@tool
def look() -> str:
    """Look."""
    return "a whale"


LOOKS = [ToolCall(id="call_1", name="look", arguments="{}")]
EARLIER = [
    {"role": "user", "content": "My cat is Mia."},
    {"role": "assistant", "content": "A fine name."},
]


def runner(*answers: Any, **given: Any) -> Runner:
    return Runner(Agent(ScriptedModel(answers), tools=[look]), transcripts=None, **given)


def sent(of: Runner) -> list[str]:
    """What the model was shown of the conversation the last time."""
    model = of.agent.model
    assert isinstance(model, ScriptedModel)
    return [each["content"] or "" for each in model.requests[-1].messages if each["role"] != "system"]


async def test_a_history_begins_a_session_and_gives_it_its_title() -> None:
    of = runner("Mia.", "It is Mia.", "Mia again.")
    result = await of.run("What is my cat called?", history=EARLIER)
    assert sent(of) == ["My cat is Mia.", "A fine name.", "What is my cat called?"]
    assert (await of.sessions.info(result.session_id)).title == "My cat is Mia."
    messages = [Message.from_openai(each) for each in EARLIER]
    assert (await of.run("And?", history=messages)).session_id != result.session_id
    again = await of.sessions.messages(result.session_id)
    await of.run("Who?", history=again)
    assert sent(of) == [*(each.text for each in again), "Who?"]


@pytest.mark.parametrize(
    "history", [EARLIER, [Message.user("Look."), Message.assistant(None, tool_calls=LOOKS)]]
)
@pytest.mark.parametrize("writes_last", [False, True])
async def test_a_history_is_stored_with_the_beginning_of_its_run_or_not_at_all(
    history: list[Any], writes_last: bool
) -> None:
    store = InMemoryStore()
    dying = DyingStore(store, on_death=lambda: None)
    dying.dies(1, writes_last=writes_last)
    with pytest.raises(StoreError):
        await runner(store=dying).run("And?", session_id="s", history=history)
    kinds = [type(record.event) for record in await store.read("s")]
    assert (MessageRecord in kinds, RunStartRecord in kinds) == (writes_last, writes_last)
    if writes_last:
        again = runner("Mia.", store=store)
        await again.resume("s")
        assert sent(again)[-1] == "And?"


async def test_what_was_said_before_the_run_is_not_shown_as_its_own() -> None:
    of, events = runner("Mia."), list[AnyStreamEvent]()
    await of.run("And?", history=EARLIER, on_event=events.append)
    shown = [event.message.text for event in events if isinstance(event, MessageAdded)]
    assert shown == ["And?", "Mia."]


async def test_a_history_without_its_results_is_answered_before_the_prompt() -> None:
    of = runner("I was interrupted.")
    await of.run("And?", history=[Message.user("Look."), Message.assistant(None, tool_calls=LOOKS)])
    said = sent(of)
    assert (said[0], said[-1]) == ("Look.", "And?")
    assert any("interrupted" in each for each in said)


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        (7, "must be a list of messages, not 7"),
        ({"role": "user"}, "must be a list of messages"),
        ([7], "message 1: it must be a Message or a chat-completions dict, not 7"),
        ([{"content": "x"}], "message 1: "),
        ([*EARLIER, {"role": "king", "content": "x"}], "message 3: 'king' is no role"),
        ("no export", "nothing imported: line 1"),
    ],
)
async def test_a_history_that_is_none_is_refused_and_nothing_is_stored(history: Any, fault: str) -> None:
    of = runner("never")
    with pytest.raises(UsageError, match=fault):
        await of.run("Hello.", session_id="s", history=history)
    assert not await of.sessions.list()


async def test_a_history_begins_no_session_that_exists() -> None:
    of = runner("yes", "no")
    await of.run("Hello.", session_id="s")
    before = await of.events("s")
    with pytest.raises(UsageError, match=r"^a history begins a new session, and 's' exists: leave it out$"):
        await of.run("Hello.", session_id="s", history=EARLIER)
    assert await of.events("s") == before


async def test_a_session_is_renamed_searched_exported_and_imported() -> None:
    of = runner(LOOKS, "It is a whale.")
    await of.run("What is there?", session_id="s")
    await of.sessions.rename("s", "Of whales")
    assert [info.title for info in await of.sessions.list()] == ["Of whales"]
    assert {found.session_id for found in await of.sessions.search("whale")} == {"s"}
    for format in ("openai", "events"):
        again = await of.sessions.import_(await of.sessions.export("s", format=format))  # type: ignore[arg-type]
        assert await of.sessions.messages(again) == await of.sessions.messages("s")
    assert (await of.sessions.export("s", format="markdown")).startswith("# Of whales\n\n## ")
    assert [each.text for each in await of.sessions.messages("s", shown=True)][-1] == "It is a whale."


async def test_a_fork_goes_on_by_itself_from_a_position() -> None:
    of = runner("one", "two", "three", "never")
    for prompt in ("A?", "B?"):
        await of.run(prompt, session_id="s")
    before = await of.events("s")
    ends = [record.seq for record in before if isinstance(record.event, RunEndRecord)]
    fork = await of.sessions.fork("s", at=ends[0])
    await of.run("C?", session_id=fork)
    assert sent(of) == ["A?", "one", "C?"]
    assert await of.events("s") == before
    whole = await of.sessions.fork("s", new_id="whole")
    assert await of.sessions.messages(whole) == await of.sessions.messages("s")
    assert (await of.sessions.info(whole)).title == (await of.sessions.info("s")).title


async def test_no_fork_parts_a_call_from_its_result() -> None:
    of = runner(LOOKS, "It is a whale.")
    await of.run("What is there?", session_id="s")
    (asked,) = [
        record.seq
        for record in await of.events("s")
        if isinstance(record.event, MessageRecord) and record.event.message.tool_calls
    ]
    with pytest.raises(UsageError, match=f"^position {asked} stands between a call and its results: name"):
        await of.sessions.fork("s", at=asked)
    assert await of.sessions.fork("s", at=asked - 1)


@pytest.mark.parametrize("keep_files", [False, True])
async def test_its_transcripts_go_with_a_session_unless_they_are_to_stay(
    keep_files: bool, tmp_path: Path
) -> None:
    agent = Agent(ScriptedModel(["a" * 4_000, "b", "so far", "so far"], window=8_000))
    of = Runner(agent, transcripts=tmp_path)
    for prompt in ("Hello.", "And?"):
        await of.run(prompt, session_id="s")
    await of.compact("s")
    there = list(tmp_path.iterdir())
    assert there
    await of.sessions.delete("s", keep_files=keep_files)
    assert not await of.sessions.list()
    assert list(tmp_path.iterdir()) == (there if keep_files else [])


@pytest.mark.parametrize(
    "call",
    [
        lambda of: of.info("none"),
        lambda of: of.messages("none"),
        lambda of: of.export("none"),
        lambda of: of.rename("none", "Title"),
        lambda of: of.fork("none"),
        lambda of: of.search("word", session_id="none"),
        lambda of: of.delete("none"),
    ],
)
@pytest.mark.parametrize("owner", [None, "ann"])
async def test_what_is_not_there_or_another_owners_is_not_found(call: Any, owner: str | None) -> None:
    store = InMemoryStore()
    await runner("x", store=store, owner="bob").run("Hello.", session_id="none" if owner else "other")
    with pytest.raises(SessionNotFoundError, match=r"^there is no session 'none'$"):
        await call(runner(store=store, owner=owner).sessions)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (
            lambda of: of.export("s", format="pdf"),
            "format must be one of openai, events, markdown",
        ),
        (lambda of: of.rename("s", " "), "the title is empty"),
        (lambda of: of.rename("s", 7), "title must be a text"),
        (lambda of: of.fork("s", at=0), "at must be a whole number from 1 to"),
        (lambda of: of.fork("s", at=999), "at must be a whole number from 1 to"),
        (lambda of: of.fork("s", new_id="s"), "session 's' exists already"),
        (lambda of: of.fork("s", new_id="../s"), "bad session id"),
        (lambda of: of.import_([]), "nothing to import"),
        (lambda of: of.import_(EARLIER, session_id="s"), "session 's' exists already"),
        (lambda of: of.search(" "), "."),
    ],
)
async def test_what_is_given_wrongly_is_one_clear_line(call: Any, fault: str) -> None:
    of = runner("yes")
    await of.run("Hello.", session_id="s")
    with pytest.raises(AgentLoopError, match=fault) as caught:
        await call(of.sessions)
    assert "\n" not in str(caught.value)


def test_it_is_the_same_without_await() -> None:
    names = {name for name in vars(StoredSessions) if not name.startswith("_")}
    beneath = {"sessions", "redact", "transcripts", "model", "events_of", "begin", "describe", "deletion"}
    assert names - beneath - {"expired", "texts"} == {name for name in vars(SyncSessions) if name[0] != "_"}
    with SyncRunner(Agent(OfflineModel()), transcripts=None) as of:
        of.run("Hello.", session_id="s", history=EARLIER)
        fork = of.sessions.fork("s")
        assert {info.id for info in of.sessions.list()} == {"s", fork}
        of.sessions.rename(fork, "Copy")
        assert of.sessions.info(fork).title == "Copy"
        assert of.sessions.messages(fork)[0].text == EARLIER[0]["content"]
        assert of.sessions.import_(of.sessions.export(fork), session_id="again") == "again"
        assert of.sessions.search("cat", most=1)
        of.sessions.delete("again")
        assert not of.sessions.sweep()


def test_a_session_is_forked_on_the_command_line(tmp_path: Path) -> None:
    agentloop("-m", "offline", "-p", "Hello.", "--session", "s", cwd=tmp_path)
    done = agentloop("sessions", "fork", "s", "--session", "copy", cwd=tmp_path)
    assert (done.status, done.out) == (0, "copy\n"), done.err
    copies = [agentloop("sessions", "export", name, cwd=tmp_path).out for name in ("s", "copy")]
    assert copies[0] == copies[1]
    assert agentloop("sessions", "fork", "s", "--at", "999", cwd=tmp_path).status == 2
