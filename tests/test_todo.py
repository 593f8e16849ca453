"""Todo: the list that a model wrote is never out of its sight, and it is reminded of it once."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Compaction, Message, Runner, Secrets, SyncRunner, Todo, ToolCall
from agentloop.errors import ModelUnavailableError, UsageError
from agentloop.messages import SeenMessage
from agentloop.models import ModelRequest
from agentloop.prompts import TODO_LIST
from agentloop.stores import SQLiteStore
from agentloop.strategies import KeepRecentTurns
from agentloop.testing import ScriptedModel, calls
from agentloop.toolsets import TODO_WRITE, todo_write
from tests.kit import assert_valid

TWO_TURNS = Compaction(strategy=KeepRecentTurns(1), tool=False)
LONG = "The snails came. " * 80
NAMES = {"[ ]": "pending", "[>]": "in_progress", "[x]": "completed"}


def items(*lines: str) -> dict[str, Any]:
    """The arguments of `todo_write` that come to these lines."""
    return {"items": [{"content": line[4:], "status": NAMES[line[:3]]} for line in lines]}


def writes(*lines: str) -> list[ToolCall]:
    """A call that writes this list."""
    return calls((TODO_WRITE, items(*lines)))


def look(text: str) -> str:
    """Look at something."""
    return f"seen {text}"


def looks(*texts: str) -> list[list[ToolCall]]:
    """Steps that each look at something."""
    return [calls(("look", {"text": text})) for text in texts]


def results(request: ModelRequest) -> list[str]:
    """The results in a request."""
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


def in_sight(request: ModelRequest) -> list[str]:
    """The lists in a request, line by line, in results and in what is pinned."""
    texts = [str(message["content"]) for message in request.messages]
    begins = f"{TODO_LIST}\n"
    return [text[text.index(begins) :].partition("\n</")[0] for text in texts if begins in text]


def shown(*lines: str) -> str:
    """The list as the model sees it."""
    return "\n".join((TODO_LIST, *lines))


def test_the_list_is_written_and_read() -> None:
    read = calls(("todo_read", {}))
    model = ScriptedModel([read, writes("[>] a", "[ ] b"), calls(("todo_read", {})), "Done."])
    with SyncRunner(Agent(model, tools=[Todo()]), transcripts=None) as runner:
        runner.run("Do a and b.")
    assert results(model.requests[-1]) == [
        shown("(nothing)"),
        shown("[>] a", "[ ] b"),
        shown("[>] a", "[ ] b"),
    ]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (items("[>] a", "[>] b"), "2 items are in_progress"),
        (items("[ ]     "), "no content"),
        (items("[ ] " + "x" * 301), "more than 300 characters"),
        (items(*["[ ] a"] * 51), "at most 50 items, not 51"),
        ({"items": [{"content": "a", "status": "soon"}]}, "items"),
        ({"items": "a"}, "items"),
        ({}, "items"),
    ],
)
def test_what_is_refused_leaves_the_list_as_it_was(given: dict[str, Any], why: str) -> None:
    model = ScriptedModel([writes("[>] a"), calls((TODO_WRITE, given)), calls(("todo_read", {})), "Done."])
    with SyncRunner(Agent(model, tools=[Todo()]), transcripts=None) as runner:
        runner.run("Do a.")
    first, refused, read = results(model.requests[-1])
    assert why in refused
    assert first == read == shown("[>] a")


def test_the_newest_list_is_in_sight_after_any_compaction(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            *(writes("[>] a", "[ ] b"), LONG, LONG, LONG, writes("[x] a", "[>] b"), LONG, LONG, LONG, LONG),
            *(writes("[x] a", "[x] b"), LONG, LONG, LONG),
        ]
    )
    agent = Agent(model, tools=[Todo()], compaction=TWO_TURNS)
    with SyncRunner(agent, store=SQLiteStore(tmp_path / "s.db"), transcripts=None) as runner:

        def say(*texts: str) -> None:
            for text in texts:
                runner.run(text, session_id="s")

        say("one", "two")
        assert runner.compact("s").status == "done"
        say("three")
        assert in_sight(model.requests[-1]) == [shown("[>] a", "[ ] b")]
        say("four")
        assert in_sight(model.requests[-1]) == [shown("[>] a", "[ ] b"), shown("[x] a", "[>] b")]
        assert runner.compact("s").status == "done"  # the newest list is in what stays
        say("five", "six")
        assert in_sight(model.requests[-1]) == [shown("[x] a", "[>] b")]
        assert runner.compact("s").status == "done"
        say("seven")
        assert in_sight(model.requests[-1]) == [shown("[x] a", "[>] b")]
        say("eight", "nine")
        assert runner.compact("s").status == "done"
        say("ten")
        assert in_sight(model.requests[-1]) == []  # all of it is done
    assert_valid(model.requests)


def test_the_list_is_there_after_a_crash_and_in_another_process(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    model = ScriptedModel([writes("[>] a", "[ ] b"), LONG, LONG, ModelUnavailableError("gone")])
    with SyncRunner(
        Agent(model, tools=[Todo()], compaction=TWO_TURNS), store=SQLiteStore(store), transcripts=None
    ) as runner:
        for text in ("one", "two"):
            runner.run(text, session_id="s")
        assert runner.compact("s").status == "done"
        with pytest.raises(ModelUnavailableError):
            runner.run("three", session_id="s")
    other = ScriptedModel([calls(("todo_read", {})), "Done."])
    with SyncRunner(Agent(other, tools=[Todo()]), store=SQLiteStore(store), transcripts=None) as runner:
        runner.resume("s")
    assert other.requests[0].messages == model.requests[-1].messages
    assert results(other.requests[-1])[-1] == shown("[>] a", "[ ] b")


def test_a_write_in_flight_when_its_run_is_cancelled_is_made_when_it_goes_on(tmp_path: Path) -> None:
    async def run() -> list[str]:
        asked = asyncio.Event()

        async def hangs() -> str:
            """Wait for ever."""
            asked.set()
            await asyncio.Event().wait()
            return ""

        both = [*writes("[>] a"), *calls(("hangs", {}))]
        model = ScriptedModel([both, "Done.", calls(("todo_read", {})), "Yes."])
        async with Runner(Agent(model, tools=[Todo(), hangs]), transcripts=None) as runner:
            task = asyncio.create_task(runner.run("Do a.", session_id="s"))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await runner.resume("s")
            await runner.run("What is to be done?", session_id="s")
        assert_valid(model.requests)
        return results(model.requests[-1])

    *_, read = asyncio.run(run())
    assert read == shown("[>] a")


def reminded(script: Sequence[Any], todo: Todo) -> list[int]:
    """At which results of a run by this script the model is reminded."""
    model = ScriptedModel([*script, "Done."])
    with SyncRunner(Agent(model, tools=[todo, look]), transcripts=None) as runner:
        runner.run("Do it.")
    found = results(model.requests[-1])
    return [at for at, text in enumerate(found) if "[Reminder: the todo list was not updated" in text]


def test_the_model_is_reminded_once_after_so_many_steps_without_an_update() -> None:
    steps = looks(*"abcdefgh")
    assert reminded([writes("[>] a"), *steps], Todo(remind_after=3)) == [3]
    assert reminded([writes("[>] a"), *steps[:2], writes("[>] a"), *steps[2:]], Todo(remind_after=3)) == [6]
    assert reminded([writes("[x] a"), *steps], Todo(remind_after=3)) == []
    assert reminded(steps, Todo(remind_after=3)) == []
    assert reminded([writes("[>] a"), *steps], Todo(remind_after=None)) == []
    refused = calls((TODO_WRITE, items("[>] a", "[>] b")))
    assert reminded([writes("[>] a"), refused, *steps], Todo(remind_after=3)) == [3]
    both = [*calls(("look", {"text": "a"})), *writes("[>] a")]
    assert reminded([writes("[>] a"), *steps[:2], both, *steps[:2]], Todo(remind_after=3)) == []


def test_a_user_who_names_the_list_does_not_silence_the_reminder() -> None:
    model = ScriptedModel([writes("[>] a"), "Begun.", *looks(*"abcd"), "Done."])
    with SyncRunner(Agent(model, tools=[Todo(remind_after=3), look]), transcripts=None) as runner:
        runner.run("Do it.", session_id="s")
        runner.run("Go on with the [Todo list].", session_id="s")
    found = results(model.requests[-1])
    assert ["[Reminder: " in text for text in found] == [False, False, False, True, False]


def test_a_reminder_is_stored_with_its_result_so_that_a_crash_says_it_no_second_time(tmp_path: Path) -> None:
    model = ScriptedModel([writes("[>] a"), *looks("a", "b"), ModelUnavailableError("gone")])
    agent = Agent(model, tools=[Todo(remind_after=2), look])
    store = SQLiteStore(tmp_path / "s.db")
    with SyncRunner(agent, store=store, transcripts=None) as runner, pytest.raises(ModelUnavailableError):
        runner.run("Do it.", session_id="s")
    other = ScriptedModel([*looks("c"), "Done."])
    agent = Agent(other, tools=[Todo(remind_after=2), look])
    with SyncRunner(agent, store=SQLiteStore(tmp_path / "s.db"), transcripts=None) as runner:
        runner.resume("s")
    assert other.requests[0].messages == model.requests[-1].messages
    assert ["[Reminder" in text for text in results(other.requests[-1])] == [False, False, True, False]


def test_the_steps_count_anew_from_a_list_that_is_pinned(tmp_path: Path) -> None:
    model = ScriptedModel([writes("[>] a"), *looks(*"ab"), LONG, LONG, *looks(*"cdef"), "C."])
    agent = Agent(model, tools=[Todo(remind_after=3), look], compaction=TWO_TURNS)
    with SyncRunner(agent, store=SQLiteStore(tmp_path / "s.db"), transcripts=None) as runner:
        for text in ("one", "two"):
            runner.run(text, session_id="s")
        assert runner.compact("s").status == "done"
        runner.run("three", session_id="s")
    assert ["[Reminder" in text for text in results(model.requests[-1])] == [False, False, True, False]


def test_a_secret_in_the_list_is_in_no_request(tmp_path: Path) -> None:
    key = "sk-proj-" + "Ab3" * 14
    model = ScriptedModel([writes(f"[>] use {key}"), LONG, LONG, "C."])
    agent = Agent(model, tools=[Todo()], compaction=TWO_TURNS)
    with SyncRunner(
        agent, store=SQLiteStore(tmp_path / "s.db"), transcripts=None, redact=Secrets()
    ) as runner:
        for text in ("one", "two"):
            runner.run(text, session_id="s")
        assert runner.compact("s").status == "done"
        runner.run("three", session_id="s")
    assert "[>] use " in in_sight(model.requests[-1])[0]
    assert all(key not in json.dumps(request.messages) for request in model.requests)


def test_turns_taken_back_take_their_list_back() -> None:
    model = ScriptedModel([writes("[>] a"), "A.", writes("[>] b"), "B.", calls(("todo_read", {})), "C."])
    with SyncRunner(Agent(model, tools=[Todo()]), transcripts=None) as runner:
        runner.run("one", session_id="s")
        runner.run("two", session_id="s")
        runner.rewind("s")
        runner.run("three", session_id="s")
    assert results(model.requests[-1])[-1] == shown("[>] a")


@pytest.mark.parametrize("steps", [0, -1, True, 2.5, "5"])
def test_bad_steps_are_refused(steps: Any) -> None:
    with pytest.raises(UsageError, match="remind_after must be a whole number of at least 1"):
        Todo(remind_after=steps)


lines = st.lists(
    st.tuples(
        st.text(min_size=1, max_size=30).filter(lambda text: text.split()),
        st.sampled_from(["pending", "completed"]),
    ),
    max_size=8,
)


@pytest.mark.many(100)
@given(lines, st.integers(0, 400))
def test_what_is_pinned_is_the_whole_list_or_what_is_open_of_it(
    drawn: list[tuple[str, str]], room: int
) -> None:
    given_items = [{"content": content, "status": status} for content, status in drawn]
    text = todo_write(given_items)
    assert len(text.split("\n")) == max(2, len(drawn) + 1)
    call = ToolCall(id="c", name=TODO_WRITE, arguments=json.dumps({"items": given_items}))
    said = [SeenMessage(Message.assistant(None, [call]), False), SeenMessage(Message.tool("c", text), False)]
    pinned = Todo().pinned(said, lambda text: len(text) <= room)
    is_open = [f"[ ] {' '.join(content.split())}" for content, status in drawn if status == "pending"]
    if not is_open:
        assert pinned == ""
    elif len(text) <= room:
        assert pinned == text
    else:
        assert pinned.split("\n") == [TODO_LIST, *is_open]
    assert Todo().pinned([said[0], SeenMessage(said[1].message, True)], lambda _: True) == ""


def test_the_model_is_told_what_an_item_says() -> None:
    write, _ = Todo().tools
    assert "in one line" in write.parameters["properties"]["items"]["description"]
