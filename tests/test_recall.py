"""Recall: what is hidden is found by its words, with its position, by nobody else and within its room."""

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Compaction, Message, Runner, Secrets, ToolCall, ToolRegistry, recall_tools
from agentloop.context import estimate_tokens
from agentloop.durable.held_run import WorkPlace
from agentloop.durable.orders import Order
from agentloop.durable.workflow import Workflow
from agentloop.errors import ToolDefinitionError, UsageError
from agentloop.events import Compacted, Described, Event, ModelCalled
from agentloop.prompts import RECALLED
from agentloop.run import Limits
from agentloop.runner import config_of
from agentloop.stores import InMemoryStore, SessionStore, SQLiteStore
from agentloop.testing import ScriptedModel, calls
from agentloop.tools import RunContext
from agentloop.toolsets import RECALL_TOOLS
from tests.kit import added, assert_valid
from tests.store_kit import CountingStore, LogAlone

FACT = "The gate code of the warehouse is KX-4711-B."


def said(*texts: str) -> list[Event]:
    """Turns of a user who says these, and of an assistant who takes note."""
    turns = ((Message.user(text), Message.assistant(f"Noted, number {at}.")) for at, text in enumerate(texts))
    return [added(message) for turn in turns for message in turn]


def covering(first: int, last: int, text: str = "They talked of this and that.") -> Compacted:
    """A compaction of these positions; without a text, what a user took back."""
    return Compacted(covers=((first, last),), replacement=text, at=first, tokens=9)


async def kept(store: SessionStore, *events: Event, session_id: str = "s", owner: str | None = None) -> None:
    await store.append(session_id, [Described(owner=owner), *events], expect=0)


async def hidden(store: SessionStore, *texts: str) -> None:
    """A session in which all of this was said, and is covered by a compaction."""
    events = said(*texts)
    await kept(store, *events, covering(2, len(events) + 1), *said("What else?"))


async def ask(
    store: SessionStore, query: str, *, name: str = "recall", session_id: str = "s", **options: Any
) -> str:
    """What the tool of that name answers to a run that works on the session."""
    registry = ToolRegistry(recall_tools(store, **options))
    call = ToolCall(id="c", name=name, arguments=json.dumps({"query": query}))
    context = RunContext(session_id=session_id, run_id="r", call_id="c", deps=None)
    return (await registry.answer(call, context)).text


def offered(model: ScriptedModel) -> list[list[str]]:
    """The tools that each request to the agent offered."""
    asked = [request for request in model.requests if request.purpose == "agent"]
    return [[tool["function"]["name"] for tool in request.tools] for request in asked]


@pytest.mark.parametrize("window", ["8k", None])
async def test_it_is_offered_once_something_was_hidden_and_finds_it(window: str | None) -> None:
    fill = ["filler " * 1500] * 4
    model = ScriptedModel(
        ["Yes.", "Noted.", *["Yes."] * 4, calls(recall={"query": "gate code"}), "KX-4711-B"], window=window
    )
    async with Runner(Agent(model, recall=True), transcripts=None) as runner:
        for prompt in ("Let us talk.", FACT, *fill):
            await runner.run(prompt, session_id="s")
        if window is None:
            await runner.compact("s")
        result = await runner.run("What was the code?", session_id="s")
        events = [record.event for record in await runner.events("s")]
    names = offered(model)
    assert names[0] == ["compact"]
    assert names[-1] == ["compact", *RECALL_TOOLS]
    changes = sum(before != after for before, after in pairwise(names))
    assert changes == 1
    called = [event for event in events if isinstance(event, ModelCalled) and event.purpose == "agent"]
    assert [event.counted for event in called] == [
        event.usage and event.usage.input_tokens for event in called
    ]
    answers = [message for message in result.messages if message.role == "tool"]
    assert re.search(rf"^\[position \d+, user\] {FACT}$", answers[0].text, re.MULTILINE)
    assert_valid(model.requests)


@pytest.mark.parametrize(("window", "offers"), [(1_600, False), (8_000, True)])
async def test_it_is_offered_only_where_the_window_has_room_for_it(window: int, offers: bool) -> None:
    model = ScriptedModel(["Yes."] * 20, window=window)
    told = "You keep the keys of a house and say what is asked. " * 40
    async with Runner(Agent(model, recall=True, instructions=told), transcripts=None) as runner:
        for number in range(20):
            await runner.run(f"Door {number} is green. " + "filler " * (window // 16), session_id="s")
        used = (await runner.status("s")).tokens
    asked = [request for request in model.requests if request.purpose == "agent"]
    assert {RECALL_TOOLS[0] in names for names in offered(model)} == ({False, True} if offers else {False})
    assert any("compressed" in str(request.messages) for request in asked)
    assert used < window
    assert_valid(model.requests)


async def test_what_is_in_sight_is_not_quoted_again() -> None:
    store = InMemoryStore()
    await kept(store, *said(FACT))
    assert "Nothing found" in await ask(store, "gate code")


async def test_results_shown_shortened_are_found_whole() -> None:
    log = "line\n" * 800 + FACT + "\n" + "line\n" * 800
    model = ScriptedModel(
        [
            calls(read={}),
            *[calls(read_next={"n": n}) for n in range(12)],
            calls(recall={"query": "gate code"}),
            "done",
        ],
        window="40k",
    )

    def read() -> str:
        """Read it."""
        return log

    def read_next(n: int) -> str:
        """Read on."""
        return f"part {n}\n" + f"word{n} " * 2500

    agent = Agent(model, tools=[read, read_next], compaction=Compaction(trigger=None), recall=True)
    async with Runner(agent, transcripts=None) as runner:
        result = await runner.run("Read all.", session_id="s")
    assert FACT in [message.text for message in result.messages if message.role == "tool"][-1]


@pytest.mark.many(60)
@given(
    query=st.text(max_size=80)
    | st.sampled_from(['"', '" OR NEAR(', "a AND NOT (b*", "^x : {", "x" * 200_000])
)
def test_any_query_is_answered_in_one_line_or_with_quotes(query: str) -> None:
    async def answered() -> list[str]:
        store = InMemoryStore()
        await hidden(store, FACT)
        return [await ask(store, query, name=name) for name in RECALL_TOOLS]

    for answer in asyncio.run(answered()):
        assert len(answer.splitlines()) == 1 or "[position" in answer
        assert len(answer) < 2_000


@pytest.mark.parametrize(
    "query", ["", "?!", '"', '" OR NEAR(', "a AND NOT (b*", "^x : {", "gate*", "x " * 9_999]
)
async def test_a_database_is_asked_by_no_syntax_of_its_own(query: str, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "sessions.db")
    await hidden(store, FACT)
    answer = await ask(store, query)
    assert len(answer.splitlines()) == 1 or FACT in answer
    assert FACT in await ask(store, f"gate code {query}")
    await store.close()


async def test_where_nothing_holds_all_words_the_rarest_decide() -> None:
    store = InMemoryStore()
    await hidden(store, "The sky is blue.", FACT, "The sea is deep.", "The code of conduct is long.")
    answer = await ask(store, "What is the secret warehouse gate code?")
    assert answer.startswith("[Nothing holds all of these words")
    assert FACT in answer.splitlines()[1]


@pytest.mark.parametrize("name", RECALL_TOOLS)
async def test_what_a_user_took_back_is_found_by_nobody(name: str) -> None:
    store = CountingStore()
    filler = said(*("filler" for _ in range(600)))
    gone = [*said(FACT, "Forget it."), covering(2, 5, ""), *filler, covering(7, 900), *filler]
    for session_id in ("s", "t"):
        await kept(store, *gone, session_id=session_id)
        async with Runner(Agent(ScriptedModel(["ok"])), store=store, transcripts=None) as runner:
            await runner.run("go on", session_id=session_id)  # which keeps a checkpoint
    assert await store.checkpoint("s")
    assert "KX-4711" not in await ask(store, "gate code", name=name)


@pytest.mark.parametrize("owner", [None, "ann"])
async def test_sessions_of_other_owners_are_never_found(owner: str | None) -> None:
    store = InMemoryStore()
    await kept(store, *said("hello"), owner=owner)
    for other in (None, "ann", "bob"):
        await kept(store, *said(f"{FACT} says {other}"), session_id=f"of-{other}", owner=other)
    answer = await ask(store, "gate code", name="search_sessions")
    assert [line for line in answer.splitlines() if "[session" in line] == [
        f"[session of-{owner}, position 2, user] {FACT} says {owner}"
    ]


async def test_what_a_long_session_says_often_hides_no_other_session() -> None:
    store = InMemoryStore()
    for session_id, owner in (("s", None), ("of-bob", "bob")):
        filler = said(*(f"gate code {at}" for at in range(150)))
        await kept(store, *filler, session_id=session_id, owner=owner)
    await kept(store, *said(FACT), session_id="old")
    await kept(store, *said("hello"), session_id="new")
    newest = len(await store.read("s"))
    await store.append("s", said("and on"), expect=newest)
    answer = await ask(store, "gate code", name="search_sessions")
    assert [line for line in answer.splitlines() if "[session" in line] == [
        f"[session old, position 2, user] {FACT}"
    ]


async def test_its_own_answers_are_not_quoted() -> None:
    store = InMemoryStore()
    await hidden(store, FACT)
    answer = await ask(store, "gate code")
    call = Message.assistant("", calls(recall={"query": "gate code"}))
    asked = [added(call), added(Message.tool(call.tool_calls[0].id, answer))]
    length = len(await store.read("s"))
    await store.append("s", [*asked, covering(length, length + 2), *said("And now?")], expect=length)
    assert await ask(store, "gate code") == answer


@pytest.mark.parametrize("name", RECALL_TOOLS)
async def test_a_result_that_begins_as_its_answers_do_is_found(name: str) -> None:
    store = InMemoryStore()
    call = Message.assistant(None, [ToolCall(id="c1", name="read", arguments="{}")])
    result = Message.tool("c1", f"{RECALLED}\n[position 1, user] {FACT}")
    await kept(store, *said("Read it."), added(call), added(result), covering(2, 5), *said("What else?"))
    session_id = "s" if name == "recall" else "other"
    assert "result] [From earlier" in await ask(store, "warehouse", name=name, session_id=session_id)


async def test_one_damaged_session_keeps_nobody_from_finding_another(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    await kept(store, *said("What else?"), session_id="here")
    call = Message.assistant(None, [ToolCall(id="c1", name="recall", arguments="{}")])
    asked = [added(call), added(Message.tool("c1", f"{RECALLED}\n[position 1, user] {FACT}"))]
    for name in ("whole", "damaged"):
        await kept(store, *said(f"{FACT} This is {name}."), *asked, session_id=name)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "s.db")) as file, file:
        file.execute("UPDATE events SET body = 'x' || body WHERE session_id = 'damaged' AND seq = 3")
    answer = await ask(store, "warehouse", name="search_sessions", session_id="here")
    assert "This is whole." in answer
    assert "This is damaged." not in answer
    await store.close()


@pytest.mark.deep
async def test_quotes_keep_to_their_room_and_hold_what_was_looked_for() -> None:
    store = InMemoryStore()
    await hidden(store, *(f"{'before ' * 3000}{FACT} {at} {'after ' * 3000}" for at in range(30)))
    for room in (100, 500, 2_000, 20_000):
        answer = await ask(store, "gate code", max_tokens=room)
        assert estimate_tokens(answer) <= room
        assert "KX-4711-B" in answer
    assert len((await ask(store, "gate code")).splitlines()) == 21


async def test_a_secret_is_not_cut_in_two() -> None:
    store = InMemoryStore()
    secret = "sk-" + "a1B2c3D4" * 5
    await hidden(store, f"{'x ' * 60}gate {'y ' * 50}{secret} z")
    model = ScriptedModel([calls(recall={"query": "gate"}), "done"])
    agent = Agent(model, tools=recall_tools(store, max_tokens=100))
    async with Runner(agent, store=store, transcripts=None, redact=Secrets()) as runner:
        result = await runner.run("Look it up.", session_id="s")
    answer = result.messages[-2].text
    assert "gate" in answer
    assert "sk-a1" not in answer


@pytest.mark.deep
async def test_an_archive_of_any_length_is_asked_and_not_read(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "sessions.db")
    events = said(*(f"filler {at}" for at in range(2_500)), FACT, *(f"filler {at}" for at in range(2_500)))
    await kept(store, *events, covering(2, 9_990))
    async with Runner(Agent(ScriptedModel(["ok"])), store=store, transcripts=None) as runner:
        await runner.run("go on", session_id="s")  # which keeps a checkpoint
        length = len(await store.read("s"))
        read: list[int] = []

        class Reading(SQLiteStore):
            async def read(self, session_id: str, *, after: int = 0, most: int | None = None) -> Any:
                records = await super().read(session_id, after=after, most=most)
                read.append(len(records))
                return records

        reading = Reading(tmp_path / "sessions.db")
        assert FACT in await ask(reading, "gate code")
        assert "filler 2000" in await ask(reading, '"filler 2000"')
        await reading.close()
    assert length > 10_000
    assert sum(read) < 100


def test_a_store_that_cannot_search_is_refused() -> None:
    with pytest.raises(UsageError, match="recall takes a Runner or a store that can search, not"):
        recall_tools(LogAlone())
    with pytest.raises(UsageError, match="a store that can search"):
        Runner(Agent(ScriptedModel([]), recall=True), store=LogAlone(), transcripts=None)


async def test_a_worker_s_run_recalls() -> None:
    store = InMemoryStore()
    await hidden(store, FACT)
    model = ScriptedModel([calls(recall={"query": "gate code"}), "KX-4711-B"])
    config = config_of(Runner(Agent(model, recall=True), store=store, transcripts=None))
    place = WorkPlace(config=config, limits=Limits(steps=9), sink=lambda _: None)
    order = Order(session_id="s", prompt=Message.user("What was the code?"), submitted=0.0)
    text = order.to_text()
    await Workflow(place_of=lambda _: place, record=lambda _, work: work()).run("r", text)  # type: ignore[arg-type, return-value]
    assert offered(model)[0] == ["compact", *RECALL_TOOLS]
    assert FACT in str(model.requests[-1].messages[-1]["content"])


def test_a_name_that_is_taken_is_refused() -> None:
    def recall(query: str) -> str:
        """Recall it."""
        return query

    Agent(ScriptedModel([]), tools=[recall])
    with pytest.raises(
        ToolDefinitionError, match="'recall' is taken by recall: rename the tool, or use Agent"
    ):
        Agent(ScriptedModel([]), tools=[recall], recall=True)


@pytest.mark.parametrize("given", ["memory:", None, 5, ScriptedModel([])])
def test_what_keeps_no_sessions_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="recall takes a Runner or a store that can search, not"):
        recall_tools(given)


async def test_a_runner_stands_for_its_store() -> None:
    async with Runner(Agent(ScriptedModel([])), transcripts=None) as runner:
        await hidden(runner.store, FACT)
        assert FACT in await ask(runner, "gate code")  # type: ignore[arg-type]


async def test_a_turn_taken_back_offers_nothing_to_find() -> None:
    model = ScriptedModel(["one", "two", "three"])
    async with Runner(Agent(model, recall=True), transcripts=None) as runner:
        for prompt in ("One.", "Two."):
            await runner.run(prompt, session_id="s")
        await runner.rewind("s")
        await runner.run("Three.", session_id="s")
    assert {name for names in offered(model) for name in names}.isdisjoint(RECALL_TOOLS)


async def test_logs_of_sub_agents_are_no_other_conversations() -> None:
    scout = Agent(ScriptedModel(["The word is ZEBRAPASS."])).as_tool("scout", "Finds out.")
    model = ScriptedModel([calls(scout={"task": "word"}), "done"])
    async with Runner(Agent(model, tools=[scout]), transcripts=None) as runner:
        await runner.run("Find it.", session_id="s")
        await runner.rewind("s")
        (branch,) = await runner.branches("s")
        for asking in ("s", "other", branch.id):
            assert "ZEBRAPASS" not in await ask(
                runner.store, "ZEBRAPASS", name="search_sessions", session_id=asking
            )
