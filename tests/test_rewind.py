"""A turn taken back: the session goes on without it, nothing is erased, and undo gives it back (L21)."""

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Compaction, Message, OpenAIChat, OpenAIResponses, Runner
from agentloop.codec import encode
from agentloop.context import Context
from agentloop.errors import ModelRefusedError, SessionBusyError, SessionNotFoundError, UsageError
from agentloop.events import Compacted, MessageRecord
from agentloop.sessions import Session, rewind_turns
from agentloop.stores import InMemoryStore
from agentloop.strategies import KeepRecentTurns
from agentloop.testing import ScriptedModel, calls
from tests.cli_kit import agentloop
from tests.kit import added, assert_valid, histories, lines, orderly, until
from tests.refusing_kit import Refusing, refusal
from tests.server_kit import at_once
from tests.strict_bodies import Body

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
REFUSED = {
    "an image": (Message(role="user", content=({"type": "text", "text": "Look."}, PICTURE)), 400),
    "a flagged text": (Message.user("FLAGGED"), 403),
    "unprocessable": (Message.user("FLAGGED"), 422),
}


async def seen(runner: Runner) -> list[Message]:
    """What the model sees of session s."""
    return list((await Session.open("s", runner.store)).context.messages)


def flagged(body: Body) -> bool:
    text = str(body)
    return "FLAGGED" in text or "AAAA" in text


@pytest.mark.parametrize("api", [OpenAIChat, OpenAIResponses])
@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("before", [[], ["Hello."]])
async def test_l21_a_refused_turn_is_taken_back_and_the_session_goes_on(
    api: Any, refused: str, before: list[str]
) -> None:
    prompt, status = REFUSED[refused]
    with Refusing(flagged, refusal("This content is not allowed here.", status=status)) as server:
        model = api("strict", base_url=server.url, api_key="k", window="32k", retry=at_once())
        runner = Runner(Agent(model), transcripts=None)
        for text in before:
            await runner.run(text, session_id="s")
        with pytest.raises(ModelRefusedError):
            await runner.run(prompt, session_id="s")
        said = len(await runner.events("s"))
        assert await runner.rewind("s") == 1
        assert len(await runner.events("s")) == said + 1
        assert (await runner.run("And now?", session_id="s")).output == "ok"
        assert not flagged(server.bodies[-1])
        assert any(flagged({"log": record.event}) for record in await runner.events("s"))


async def test_l21_so_does_a_turn_whose_result_is_refused() -> None:
    def look() -> str:
        """Look."""
        return "FLAGGED"

    brain = ScriptedModel(["hi", calls(("look", {})), ModelRefusedError("no", status=400), "ok"])
    runner = Runner(Agent(brain, tools=[look]), transcripts=None)
    await runner.run("Hello.", session_id="s")
    with pytest.raises(ModelRefusedError):
        await runner.run("Look.", session_id="s")
    await runner.rewind("s")
    assert (await runner.resume("s")).output == "hi"
    assert (await runner.run("And now?", session_id="s")).output == "ok"
    assert [message["content"] for message in brain.requests[-1].messages] == ["Hello.", "hi", "And now?"]


async def test_what_was_taken_back_is_in_no_summary_and_is_no_task() -> None:
    read: list[str] = []

    def summary(request: Any) -> str:
        read.append(str(request.messages))
        return f"They talked, {len(read)} times."

    answers = [lines(f"answer {number}") for number in range(6)]
    brain = ScriptedModel(["one", *answers, *answers], summary=summary)
    runner = Runner(Agent(brain, compaction=Compaction(micro=None)), transcripts=None)
    await runner.run("FLAGGED", session_id="s")
    await runner.rewind("s")
    for _ in range(2):
        for number in range(6):
            await runner.run(f"ask {number}", session_id="s")
        result = await runner.compact("s")
        assert result
        assert result.status == "done", result
    assert len(read) == 2
    assert not any("FLAGGED" in text for text in read)
    session = await Session.open("s", runner.store)
    assert session.context.task
    assert session.context.task.message.text == "ask 0"


async def test_it_takes_several_and_says_where_there_is_none() -> None:
    runner = Runner(Agent(ScriptedModel(["a", "b", "c", "d"])), transcripts=None)
    for text in ("1", "2", "3"):
        await runner.run(text, session_id="s")
    assert await runner.rewind("s", turns=2) == 2
    context = (await Session.open("s", runner.store)).context
    assert [message.text for message in context.messages] == ["1", "a"]
    await runner.run("4", session_id="s")
    assert await runner.rewind("s", turns=9) == 2, "what went before is not taken again"
    assert await runner.rewind("s") == 0
    with pytest.raises(UsageError):
        await runner.rewind("s", turns=0)
    with pytest.raises(SessionNotFoundError):
        await runner.rewind("nobody")


async def test_a_session_at_work_is_left_alone() -> None:
    begun, done = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        begun.set()
        await until(done)
        return "done"

    runner = Runner(Agent(ScriptedModel([calls(("wait", {})), "ok"]), tools=[wait]), transcripts=None)
    work = asyncio.create_task(runner.run("Go.", session_id="s"))
    await until(begun)
    with pytest.raises(SessionBusyError):
        await runner.rewind("s")
    done.set()
    assert (await work).output == "ok"


@pytest.mark.many(100)
@given(st.one_of(histories, orderly()), st.integers(1, 4))
async def test_l8_undo_gives_back_what_was_taken_back(said: list[Message], turns: int) -> None:
    store = InMemoryStore()
    if not said:
        return
    events = list(map(added, said))
    await store.append("s", events, expect=0)
    session = await Session.open("s", store)
    users = sum(entry.is_user for entry in session.context.visible)
    assert await rewind_turns(session, turns) == min(turns, users)
    records = await store.read("s")
    context = Context.of(records)
    assert sum(entry.is_user for entry in context.visible) == max(0, users - turns)
    kept = [encode(each.event) for each in records if isinstance(each.event, MessageRecord)]
    assert kept == list(map(encode, events)), "by their text: no NaN equals itself"
    runner = Runner(Agent(ScriptedModel([])), store=store, transcripts=None)
    if users:
        event = records[-1].event
        assert isinstance(event, Compacted)
        assert event.is_rewind
        assert await runner.undo("s") == len(records)
        restored = Context.of(await store.read("s"))
        assert list(restored.visible) == list(session.context.visible)
        assert restored.task == session.context.task


async def test_of_a_compacted_session_no_more_goes_than_was_asked_for() -> None:
    answers = [lines(f"answer {number}") for number in range(8)]
    brain = ScriptedModel([*answers, "ok"], summary="They talked.")
    runner = Runner(Agent(brain, compaction=Compaction(micro=None)), transcripts=None)
    for number in range(8):
        await runner.run(f"ask {number}", session_id="s")
    assert (await runner.compact("s", strategy=KeepRecentTurns(2))).status == "done"
    before = await seen(runner)
    assert before[0].text == "ask 0", "the task stands in front of the summary"
    with pytest.raises(
        UsageError, match=r"the newest 2 turns alone can be taken back, not 3: .* undo it first"
    ):
        await runner.rewind("s", turns=3)
    assert await seen(runner) == before
    assert await runner.rewind("s", turns=2) == 2
    assert await seen(runner) == before[:-4]
    with pytest.raises(UsageError, match="no turn can be taken back: a compaction"):
        await runner.rewind("s")
    await runner.undo("s")
    assert await seen(runner) == before
    await runner.undo("s")
    assert await runner.rewind("s", turns=3) == 3
    assert [message.text for message in await seen(runner) if message.role == "user"][-1] == "ask 4"
    assert (await runner.run("And now?", session_id="s")).output == "ok"
    assert_valid(brain.requests)


async def test_a_turn_that_a_summary_tells_of_is_not_taken_back() -> None:
    def look() -> str:
        """Look."""
        return lines("FLAGGED")

    brain = ScriptedModel([*["hi"] * 3, *[calls(("look", {}))] * 6, "seen"], summary="They saw FLAGGED.")
    runner = Runner(Agent(brain, tools=[look], compaction=Compaction(micro=None)), transcripts=None)
    for text in ("Hello.", "And?", "So?", "Look."):
        await runner.run(text, session_id="s")
    assert (await runner.compact("s")).status == "done"
    before = await seen(runner)
    assert any("They saw FLAGGED." in message.text for message in before)
    with pytest.raises(UsageError, match="no turn can be taken back: a compaction"):
        await runner.rewind("s")
    assert await seen(runner) == before
    await runner.undo("s")
    assert await runner.rewind("s") == 1
    assert "FLAGGED" not in str(await seen(runner))


async def test_nobody_answers_where_every_turn_was_taken_back() -> None:
    brain = ScriptedModel(["hi", "ok"])
    runner = Runner(Agent(brain), transcripts=None)
    await runner.run("Hello.", session_id="s")
    await runner.rewind("s")
    records = await runner.events("s")
    with pytest.raises(UsageError, match="nobody has said anything in session 's' yet: give a prompt"):
        await runner.resume("s")
    assert await runner.events("s") == records
    assert (await runner.run("Again.", session_id="s")).output == "ok"
    assert [message["content"] for message in brain.requests[-1].messages] == ["Again."]


@pytest.mark.many(40)
@given(orderly(), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
async def test_l8_so_it_does_in_a_compacted_session(
    said: list[Message], kept: list[int], data: st.DataObject
) -> None:
    store = InMemoryStore()
    await store.append("s", list(map(added, said)), expect=0)
    brain = ScriptedModel([], summary="They talked.")
    runner = Runner(Agent(brain, compaction=Compaction(micro=None)), store=store, transcripts=None)
    for turns in kept:
        if data.draw(st.booleans()):
            await runner.compact("s", strategy=KeepRecentTurns(turns))
        before = (await Session.open("s", store)).context
        try:
            went = await runner.rewind("s", turns=turns)
        except UsageError:
            assert (await Session.open("s", store)).context == before
            continue
        after = (await Session.open("s", store)).context
        assert after == Context.of(await store.read("s"))
        stay = list(before.visible)[: len(after.visible)]
        assert list(after.visible) == stay
        assert sum(entry.is_user for entry in list(before.visible)[len(stay) :]) == went <= turns
        if went and data.draw(st.booleans()):
            await runner.undo("s")
            restored = (await Session.open("s", store)).context
            assert (list(restored.visible), restored.task) == (list(before.visible), before.task)


def test_the_command_line_takes_a_turn_back(tmp_path: Path) -> None:
    agentloop("-m", "offline", "-p", "Hello.", "--session", "s", cwd=tmp_path)
    done = agentloop("rewind", "s", cwd=tmp_path)
    assert (done.status, done.out) == (0, "taken back: the newest turn; undo gives it back\n")
    shown = agentloop("sessions", "show", "s", cwd=tmp_path)
    assert "taken back" in shown.out
    again = agentloop("rewind", "s", cwd=tmp_path)
    assert again.out == "there is no turn to take back\n"


def test_a_turn_taken_back_is_no_compaction_and_fewer_than_asked_for_are_named(tmp_path: Path) -> None:
    for text in ("One.", "Two.", "Three."):
        agentloop("-m", "offline", "-p", text, "--session", "s", cwd=tmp_path)
    assert agentloop("rewind", "s", cwd=tmp_path).status == 0
    assert "0 compactions" in agentloop("-r", "s", "-p", "Four.", cwd=tmp_path).err
    done = agentloop("rewind", "s", "--turns", "9", cwd=tmp_path)
    assert done.out == "taken back: the newest 3 turns, and there are no 9; undo gives them back\n"
    refused = agentloop("rewind", cwd=tmp_path)
    assert (refused.status, refused.complaint()) == (
        2,
        "agentloop: missing argument 'ID': `agentloop rewind --help` shows how",
    )


def test_l21_the_command_line_names_the_way_on_after_a_refusal(tmp_path: Path) -> None:
    with Refusing(flagged, refusal("This content is not allowed here.", status=422)) as server:
        options = (
            "--base-url",
            server.url,
            "--window",
            "32k",
            "--store",
            "sqlite:///own.db",
            "--session",
            "s",
        )
        asked = agentloop("-p", "FLAGGED", "-m", "strict", *options, cwd=tmp_path)
        assert asked.status == 1
        way = asked.err.splitlines()[-1].partition("take it back: ")[2]
        program, *words = shlex.split(way)
        assert Path(program).name.startswith(("python", "agentloop"))
        done = agentloop(*words[words.index("rewind") :], cwd=tmp_path)
        assert (done.status, done.out) == (0, "taken back: the newest turn; undo gives it back\n")
        on = agentloop("-p", "And now?", "-m", "strict", *options, cwd=tmp_path)
        assert (on.status, on.out) == (0, "ok\n")
    with Refusing(lambda _: True, refusal("No such key.", status=401)) as server:
        other = agentloop(
            "-p", "Hello.", "-m", "strict", "--base-url", server.url, "--window", "32k", cwd=tmp_path
        )
    assert other.status == 1
    assert "rewind" not in other.err
    with Refusing(lambda _: True, refusal("m does not support tools")) as server:
        other = agentloop("-p", "Hello.", "-m", "m", "--base-url", server.url, cwd=tmp_path)
    assert other.status == 1
    assert "--tools none" in other.err
    assert "rewind" not in other.err
