"""Tools that need a person's yes: asked, answered in any process, and never run without one."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    Approve,
    Callbacks,
    Pending,
    Reject,
    Respond,
    Rules,
    RunContext,
    Runner,
    StoreError,
    Tool,
    ToolCall,
    UsageError,
    tool,
)
from agentloop.events import ApprovalAnswered, ApprovalAsked, MessageRecord
from agentloop.prompts import OTHER_SERVER, YES_ELSEWHERE
from agentloop.stores import InMemoryStore
from agentloop.stream import AnyStreamEvent, event_type
from agentloop.testing import ScriptedModel, calls
from tests.fuzz_faults import DyingStore


class Disc:
    """Tools of which one does harm, and what was done."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    @property
    def tools(self) -> list[Any]:
        @tool(needs_approval=True)
        def delete(path: str) -> str:
            """Delete a file."""
            self.gone.append(path)
            return f"{path} is gone"

        def look(path: str) -> str:
            """Look at a file."""
            return f"{path} is there"

        return [delete, look]


def runner_on(store: InMemoryStore, disc: Disc, *answers: Any, **options: Any) -> Runner:
    agent = Agent(ScriptedModel(answers), tools=disc.tools)
    return Runner(agent, store=store, transcripts=None, **options)


async def results_in(runner: Runner) -> list[str]:
    said = [record.event for record in await runner.events("s")]
    return [
        each.message.text for each in said if isinstance(each, MessageRecord) and each.message.role == "tool"
    ]


BOTH = calls(look={"path": "a"}, delete={"path": "a"})


async def test_a_run_ends_with_what_waits_and_goes_on_with_the_answer_in_another_runner() -> None:
    store, disc = InMemoryStore(), Disc()
    result = await runner_on(store, disc, BOTH).run("go", session_id="s")
    [waits] = result.pending
    assert (result.status, waits.tool, waits.arguments, disc.gone) == (
        "needs_approval",
        "delete",
        {"path": "a"},
        [],
    )
    runner = runner_on(store, disc, "done")
    assert await results_in(runner) == ["a is there"]
    assert await runner.pending("s") == (waits,)
    ended = await runner.resume("s", answers={waits.call_id: Approve(by="ann")})
    assert (ended.status, ended.output, ended.pending, disc.gone) == ("answered", "done", (), ["a"])
    assert await results_in(runner) == ["a is there", "a is gone"]
    said = [record.event for record in await runner.events("s")]
    assert [event.tool for event in said if isinstance(event, ApprovalAsked)] == ["delete"]
    assert [event.by for event in said if isinstance(event, ApprovalAnswered)] == ["ann"]


@pytest.mark.parametrize(
    ("answer", "gone", "told"),
    [
        (Reject("not today"), [], "not run: a person said no: not today"),
        (Respond("there is none"), [], "there is none"),
        (Approve({"path": "b"}), ["b"], '[A person changed the arguments to {"path": "b"}]\nb is gone'),
    ],
)
async def test_what_the_model_is_told_of_an_answer(answer: Any, gone: list[str], told: str) -> None:
    store, disc = InMemoryStore(), Disc()
    await runner_on(store, disc, calls(delete={"path": "a"})).run("go", session_id="s")
    runner = runner_on(store, disc, "done")
    [waits] = await runner.pending("s")
    await runner.resume("s", answers={waits.call_id: answer})
    assert (disc.gone, await results_in(runner)) == (gone, [told])


async def test_what_is_said_meanwhile_waits_too_and_is_said_behind_the_result() -> None:
    store, disc = InMemoryStore(), Disc()
    await runner_on(store, disc, calls(delete={"path": "a"})).run("go", session_id="s")
    again = await runner_on(store, disc).run("and then?", session_id="s")
    assert (again.status, len(again.pending)) == ("needs_approval", 1)
    runner = runner_on(store, disc, "done")
    result = await runner.resume("s", answers={again.pending[0].call_id: Reject("no")})
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert result.messages[3].text == "and then?"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"nope": Approve()}, "no call 'nope' waits for an answer in session 's': what waits is"),
        ({"CALL": Approve({"way": "b"})}, "delete cannot be called so"),
        ({"CALL": True}, "answers must be"),
        (["CALL"], "answers must be"),
    ],
)
async def test_an_answer_that_fits_nothing_is_refused_and_nothing_is_stored(answers: Any, words: str) -> None:
    store, disc = InMemoryStore(), Disc()
    await runner_on(store, disc, calls(delete={"path": "a"})).run("go", session_id="s")
    runner = runner_on(store, disc, "done")
    [waits] = await runner.pending("s")
    given = (
        {waits.call_id if key == "CALL" else key: value for key, value in answers.items()}
        if isinstance(answers, dict)
        else answers
    )
    before = await runner.events("s")
    with pytest.raises(UsageError, match=words):
        await runner.resume("s", answers=given)
    assert (await runner.events("s"), disc.gone) == (before, [])


async def test_a_second_answer_is_refused() -> None:
    store, disc = InMemoryStore(), Disc()
    await runner_on(store, disc, calls(delete={"path": "a"})).run("go", session_id="s")
    runner = runner_on(store, disc, "done")
    [waits] = await runner.pending("s")
    await runner.resume("s", answers={waits.call_id: Reject("no")})
    with pytest.raises(UsageError, match="waits for an answer in session 's': nothing waits there"):
        await runner.resume("s", answers={waits.call_id: Approve()})
    assert disc.gone == []


async def test_an_answer_counts_for_the_call_alone_that_was_shown() -> None:
    """L24: a session begun anew under the same id, the very same call in it, takes no old answer."""
    store, disc = InMemoryStore(), Disc()
    for paths in (("a", "b"), ("a", "a")):
        shown: list[Pending] = []
        for path in paths:
            await store.delete("s")
            model = ScriptedModel([[ToolCall(id="c", name="delete", arguments=json.dumps({"path": path}))]])
            runner = Runner(Agent(model, tools=disc.tools), store=store, transcripts=None)
            shown += (await runner.run("go", session_id="s")).pending
        old, new = shown
        assert old.call_id == new.call_id
        again = runner_on(store, disc, "done")
        for reply in (Approve(), Reject("no"), Respond("gone")):
            before = await again.events("s")
            with pytest.raises(UsageError, match="was given to another one"):
                await again.resume("s", answers={"c": replace(reply, fingerprint=old.fingerprint)})
            assert (await again.events("s"), disc.gone) == (before, [])
        await again.resume("s", answers={"c": Approve(fingerprint=new.fingerprint)})
        assert disc.gone.pop() == paths[-1]
        [answered] = [r.event for r in await again.events("s") if isinstance(r.event, ApprovalAnswered)]
        assert (answered.tool, answered.fingerprint) == ("delete", new.fingerprint)


@pytest.mark.parametrize("how", ["fork", "import"])
async def test_an_answer_to_a_call_is_none_to_its_copy(how: str) -> None:
    """L24: a copy asks anew, under a fingerprint of its own."""
    store, disc = InMemoryStore(), Disc()
    [shown] = (await runner_on(store, disc, calls(delete={"path": "a"})).run("go", session_id="s")).pending
    runner = runner_on(store, disc, "done")
    if how == "fork":
        await runner.sessions.fork("s", new_id="copy")
    else:
        await runner.sessions.import_(await runner.sessions.export("s", format="events"), session_id="copy")
    [copied] = await runner.pending("copy")
    with pytest.raises(UsageError, match="was given to another one"):
        await runner.resume("copy", answers={copied.call_id: Approve(fingerprint=shown.fingerprint)})
    assert disc.gone == []
    await runner.resume("copy", answers={copied.call_id: Approve(fingerprint=copied.fingerprint)})
    assert disc.gone == ["a"]


async def test_an_answer_in_the_log_to_another_asking_is_none() -> None:
    store, disc = InMemoryStore(), Disc()
    await runner_on(store, disc, calls(delete={"path": "a"})).run("go", session_id="s")
    runner = runner_on(store, disc, "done")
    [waits] = await runner.pending("s")
    stray = ApprovalAnswered(
        run_id="r",
        call_id=waits.call_id,
        verdict="approved",
        arguments='{"path": "b"}',
        tool="delete",
        fingerprint="another",
    )
    await store.append("s", [stray], expect=len(await runner.events("s")))
    assert (await runner.resume("s")).pending == (waits,)
    assert disc.gone == []


async def test_a_yes_to_the_tool_of_one_server_reaches_that_of_no_other() -> None:
    """L24: by what name a server's tool goes is dealt anew in each process."""
    ran: list[str] = []

    def runner_with(server: str, *said: Any, **options: Any) -> Runner:
        def delete(path: str) -> str:
            """Delete a file."""
            ran.append(server)
            return "gone"

        made = replace(Tool.of(delete), server=server, needs_approval=True)
        return Runner(Agent(ScriptedModel(said), tools=[made]), store=store, transcripts=None, **options)

    store = InMemoryStore()
    [waits] = (await runner_with("one", calls(delete={"path": "a"})).run("go", session_id="s")).pending
    assert waits.server == "one"
    [asked] = [each.event for each in await store.read("s") if isinstance(each.event, ApprovalAsked)]
    assert asked.server == "one"
    two = runner_with("two", "done", approver=lambda pending: Approve())
    with pytest.raises(
        UsageError, match=r"the yes was to a tool of MCP server 'one', .* MCP server 'two' now"
    ):
        await two.resume("s", answers={waits.call_id: Approve()})
    assert ((await two.resume("s")).pending, ran) == ((waits,), [])
    one = runner_with("one", "done")
    assert (await one.resume("s", answers={waits.call_id: Approve()})).output == "done"
    assert ran == ["one"]


async def test_a_yes_taken_by_one_server_s_tool_before_a_crash_reaches_no_other_after_it() -> None:
    store, began = InMemoryStore(), asyncio.Event()
    ran: list[str] = []

    def runner_with(server: str, *said: Any) -> Runner:
        async def delete(path: str) -> str:
            """Delete a file."""
            ran.append(server)
            began.set()
            if server == "one":
                await asyncio.Event().wait()
            return "gone"

        made = replace(Tool.of(delete), server=server, needs_approval=True, idempotent=True)
        return Runner(Agent(ScriptedModel(said), tools=[made]), store=store, transcripts=None)

    [waits] = (await runner_with("one", calls(delete={"path": "a"})).run("go", session_id="s")).pending
    run = asyncio.create_task(runner_with("one").resume("s", answers={waits.call_id: Approve()}))
    await began.wait()
    run.cancel()
    await asyncio.wait({run})
    two = runner_with("two", "done")
    await two.resume("s")
    [told] = await results_in(two)
    assert (ran, told) == (["one"], OTHER_SERVER.format(asked="MCP server 'one'", now="MCP server 'two'"))


async def test_an_agent_without_the_tool_is_given_no_yes() -> None:
    store, disc = InMemoryStore(), Disc()
    await runner_on(store, disc, calls(delete={"path": "a"})).run("go", session_id="s")
    runner = Runner(Agent(ScriptedModel(["done"])), store=store, transcripts=None)
    [waits] = await runner.pending("s")
    assert (await runner.resume("s")).pending == (waits,)
    with pytest.raises(UsageError, match="the agent has no tool 'delete'"):
        await runner.resume("s", answers={waits.call_id: Approve()})


async def test_an_approver_is_asked_at_once() -> None:
    disc, asked, seen = Disc(), list[Pending](), list[AnyStreamEvent]()

    def approver(pending: Pending) -> Approve | Reject:
        asked.append(pending)
        return Approve(by="me") if pending.arguments["path"] == "a" else Reject("only a")

    both = calls(("delete", {"path": "a"}), ("delete", {"path": "b"}))
    runner = runner_on(InMemoryStore(), disc, both, "done", approver=approver)
    result = await runner.run("go", session_id="s", on_event=seen.append)
    assert (result.output, disc.gone, len(asked)) == ("done", ["a"], 2)
    kinds = [event_type(event) for event in seen]
    assert [kinds.count(kind) for kind in ("approval_needed", "approval_given", "tool_ended")] == [2, 2, 2]


@pytest.mark.parametrize("reply", [None, "yes", ValueError("away")])
async def test_an_approver_that_cannot_say_leaves_the_call_waiting(reply: Any) -> None:
    async def approver(pending: Pending) -> Any:
        if isinstance(reply, Exception):
            raise reply
        return reply

    disc = Disc()
    runner = runner_on(InMemoryStore(), disc, calls(delete={"path": "a"}), approver=approver)
    result = await runner.run("go", session_id="s")
    assert (result.status, disc.gone) == ("needs_approval", [])
    assert bool(result.callback_failures) is (reply is not None)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_says_which_calls_need_a_yes(is_async: bool) -> None:
    gone: list[str] = []

    def check(context: RunContext[None], arguments: Mapping[str, Any]) -> bool:
        return arguments["path"] not in ("a", "b")  # fails where there is no path

    async def later(context: RunContext[None], arguments: Mapping[str, Any]) -> bool:
        return check(context, arguments)

    @tool(needs_approval=later if is_async else check)
    def delete(path: str, other: str = "") -> str:
        """Delete a file."""
        gone.append(path)
        return "gone"

    model = ScriptedModel([calls(("delete", {"path": "a"}), ("delete", {"path": "c"})), "done"])
    runner = Runner(Agent(model, tools=[delete]), transcripts=None)
    result = await runner.run("go", session_id="s")
    assert (gone, [each.arguments for each in result.pending]) == (["a"], [{"path": "c"}])


async def test_where_the_function_fails_the_yes_is_needed() -> None:
    def check(context: RunContext[None], arguments: Mapping[str, Any]) -> bool:
        raise SystemExit

    @tool(needs_approval=check)
    def delete() -> str:
        """Delete all."""
        raise AssertionError

    runner = Runner(Agent(ScriptedModel([calls(delete={})]), tools=[delete]), transcripts=None)
    assert (await runner.run("go")).status == "needs_approval"


async def test_nobody_is_asked_about_arguments_that_do_not_fit() -> None:
    store, disc = InMemoryStore(), Disc()
    runner = runner_on(store, disc, calls(delete={"way": "a"}), "done")
    assert (await runner.run("go", session_id="s")).status == "answered"
    assert "do not fit" in (await results_in(runner))[0]


async def test_a_callback_cannot_change_what_was_said_yes_to() -> None:
    store, disc = InMemoryStore(), Disc()

    def change(call: ToolCall) -> ToolCall:
        return ToolCall(id=call.id, name=call.name, arguments=json.dumps({"path": "everything"}))

    runner = runner_on(
        store,
        disc,
        calls(delete={"path": "a"}),
        "done",
        approver=lambda pending: Approve(),
        callbacks=[Callbacks(before_tool=change)],
    )
    await runner.run("go", session_id="s")
    assert disc.gone == []
    assert "needs a person's yes for these arguments" in (await results_in(runner))[0]


async def test_a_rule_that_denies_beats_a_yes() -> None:
    store, disc = InMemoryStore(), Disc()
    await runner_on(store, disc, calls(delete={"path": "a"})).run("go", session_id="s")
    runner = runner_on(store, disc, "done", rules=Rules(deny=["delete"]))
    [waits] = await runner.pending("s")
    await runner.resume("s", answers={waits.call_id: Approve()})
    assert (disc.gone, await results_in(runner)) == ([], ["not run: it was denied: a rule denies it"])


async def test_another_tool_cannot_call_what_needs_a_yes() -> None:
    disc = Disc()

    async def clean(context: RunContext[None]) -> str:
        """Clean the disc."""
        return (await context.call_tool("delete", {"path": "a"})).text

    agent = Agent(ScriptedModel([calls(clean={}), "done"]), tools=[*disc.tools, clean])
    runner = Runner(agent, transcripts=None, approver=lambda pending: Approve())
    await runner.run("go", session_id="s")
    assert disc.gone == []


async def test_a_call_of_a_sub_agent_waits_and_its_answer_finds_it() -> None:
    store, disc = InMemoryStore(), Disc()

    def lead(*answers: Any, of_sub: tuple[Any, ...] = ()) -> Runner:
        sub = Agent(ScriptedModel(of_sub), tools=disc.tools)
        tools = [sub.as_tool("cleaner", "Cleans.")]
        return Runner(Agent(ScriptedModel(answers), tools=tools), store=store, transcripts=None)

    asking = calls(cleaner={"task": "clean a"})
    result = await lead(asking, of_sub=(calls(delete={"path": "a"}),)).run("go", session_id="s")
    [waits] = result.pending
    assert (result.status, waits.tool, disc.gone) == ("needs_approval", "delete", [])
    assert waits.call_id.startswith("cleaner.")
    runner = lead("all done", of_sub=("cleaned",))
    assert await runner.pending("s") == (waits,)
    assert (await runner.resume("s")).pending == (waits,)
    ended = await runner.resume("s", answers={waits.call_id: Approve()})
    assert (ended.output, disc.gone) == ("all done", ["a"])
    assert await results_in(runner) == ["cleaned"]


async def test_no_compaction_covers_a_call_that_waits() -> None:
    store, disc = InMemoryStore(), Disc()
    chat: list[Any] = [f"answer {number} " * 40 for number in range(6)]
    runner = runner_on(store, disc, *chat, calls(delete={"path": "a"}), "a summary", "done")
    for number in range(6):
        await runner.run(f"question {number} " * 40, session_id="s")
    result = await runner.run("go", session_id="s")
    assert (await runner.compact("s")).status == "done"
    [waits] = await runner.pending("s")
    assert result.pending == (waits,)
    await runner.resume("s", answers={waits.call_id: Approve()})
    assert disc.gone == ["a"]


REPLIES: list[Any] = [Approve(), Reject("no"), Respond("said"), Approve({"path": "other"}), None]


@pytest.mark.many(40)
@given(
    batches=st.lists(st.lists(st.sampled_from(["delete", "look"]), min_size=1, max_size=3), max_size=3),
    replies=st.lists(st.sampled_from(REPLIES), max_size=12),
    deaths=st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=4),
    asks_at_once=st.booleans(),
)
async def test_l24_no_call_runs_that_was_denied_or_has_no_yes(
    batches: list[list[str]], replies: list[Any], deaths: list[tuple[int, bool]], asks_at_once: bool
) -> None:
    """Whatever is drawn of calls, answers and deaths of the machine: what ran had its yes, and ran once."""
    store, said, given_to = InMemoryStore(), iter(replies), dict[str, Any]()
    disc, dying = Disc(), DyingStore(store, on_death=lambda: None)
    number = itertools.count()
    batch = [calls(*((name, {"path": f"{next(number)}"}) for name in names)) for names in batches]
    model = ScriptedModel([*batch, *["done"] * 20])

    def reply_to(pending: Pending) -> Any:
        reply = next(said, Reject("the end"))
        if reply is not None:
            given_to[pending.arguments["path"]] = reply
        return reply

    lives = iter([*deaths, *[(0, False)] * 30])
    status = ""
    for at, writes_last in lives:
        if at:
            dying.dies(at, writes_last=writes_last)
        else:
            dying.lives()
        approver = reply_to if asks_at_once else None
        agent = Agent(model, tools=disc.tools, compaction=None)
        runner = Runner(agent, store=dying, transcripts=None, approver=approver)
        with contextlib.suppress(StoreError):
            if await store.info("s") is None:
                status = (await runner.run("go", session_id="s")).status
            else:
                answers = (
                    {}
                    if asks_at_once
                    else {
                        each.call_id: reply for each in await runner.pending("s") if (reply := reply_to(each))
                    }
                )
                status = (await runner.resume("s", answers=answers)).status
            if status == "answered":
                break
    assert status == "answered"
    yes = {path: reply for path, reply in given_to.items() if isinstance(reply, Approve)}
    allowed = {"other" if reply.arguments else path for path, reply in yes.items()}
    assert set(disc.gone) <= allowed
    assert len(disc.gone) <= len(yes)


@pytest.mark.parametrize("how", ["fork", "import", "history"])
async def test_a_yes_is_of_no_copy_of_its_session(how: str) -> None:
    places: list[str] = []
    begun = asyncio.Event()

    @tool(needs_approval=True, idempotent=True)
    async def launch(place: str) -> str:
        """Launch."""
        places.append(place)
        begun.set()
        if len(places) == 1:
            await asyncio.Event().wait()
        return "there"

    agent = Agent(ScriptedModel([calls(launch={"place": "mars"}), "done"]), tools=[launch])
    runner = Runner(agent, transcripts=None)
    [call] = (await runner.run("go", session_id="s")).pending
    run = asyncio.create_task(runner.resume("s", answers={call.call_id: Approve()}))
    await begun.wait()
    run.cancel()
    await asyncio.wait({run})
    log = await runner.sessions.export("s", format="events")
    if how == "fork":
        await runner.sessions.fork("s", new_id="copy")
    elif how == "import":
        await runner.sessions.import_(log, session_id="copy")
    again = Runner(replace(agent, model=ScriptedModel(["done"])), store=runner.store, transcripts=None)
    if how == "history":
        await again.run("and?", session_id="copy", history=log)
    else:
        await again.resume("copy")
    told = [each.text for each in await again.sessions.messages("copy") if each.role == "tool"]
    assert (places, told) == (["mars"], [f"not run: a person said no: {YES_ELSEWHERE}"])
