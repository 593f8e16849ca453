"""Compactions of sessions by the whole engine: what stands there, what is undone, what is foreseen."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from agentloop.compaction import Compaction, Digest, MicroCompact, Summary
from agentloop.context import Context
from agentloop.errors import AgentLoopError, UsageError
from agentloop.events import Compacted, EventFilter, MessageRecord, NotCompacted, Record, RunEndRecord
from agentloop.messages import Message, ToolCall, Usage
from agentloop.models import ChatModel
from agentloop.results import CompactionPreview
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.stores import InMemoryStore
from agentloop.strategies import (
    Blocks,
    ClearResults,
    Cut,
    KeepRecentFraction,
    KeepRecentTurns,
    KeepUserMessages,
    Note,
    RecursiveSummary,
    SlidingWindow,
    Strategy,
    Tiered,
    TurnWindow,
    replaced_by,
    then,
)
from agentloop.stream import CompactionEnded, CompactionStarted
from agentloop.testing import ScriptedModel
from agentloop.triggers import Idle, NeedsFollowUp, TurnCount, all_of
from tests.kit import COUNTER, added, assert_valid, every_fact, read, reading, records_of, watched

WINDOW = 16_000


class Priced(ScriptedModel):
    """A scripted model that costs one dollar for 1,000 tokens, and a tenth of that from the cache."""

    def price(self, usage: Usage) -> float:
        return (usage.input_tokens - usage.cached_tokens * 0.9) / 1_000


def talk(turns: int, *, words: int = 100) -> list[Message]:
    said = []
    for turn in range(turns):
        call = ToolCall(id=f"call_{turn}", name="read", arguments=f'{{"name": "file_{turn}"}}')
        said += [
            Message.user(f"Request {turn} FACT-{turn:06x}"),
            Message.assistant(None, [call]),
            Message.tool(call.id, f"FACT-aa{turn:04x} " + "word " * words),
            Message.assistant(f"Answer {turn}."),
        ]
    return said


async def stored(said: list[Message]) -> InMemoryStore:
    store = InMemoryStore()
    await store.append("s", [added(message) for message in said], expect=0)
    return store


async def runner_on(
    said: list[Message], strategy: Strategy, *, model: ChatModel | None = None, **policy: Any
) -> Runner:
    model = model or ScriptedModel([], window=WINDOW, summary=every_fact)
    compaction = Compaction(micro=None, strategy=strategy, **policy)
    agent = Agent(model, tools=[read], instructions="Be brief.", compaction=compaction)
    return Runner(agent, store=await stored(said), transcripts=None)


async def context_in(runner: Runner) -> Context:
    return Context.of(await runner.store.read("s"))


async def newest_compaction(runner: Runner) -> Compacted:
    return (await context_in(runner)).compactions[-1][1]


STRATEGIES: dict[str, Strategy] = {
    "drops": SlidingWindow(8),
    "a pair": RecursiveSummary(keep=6),
    "a digest": replaced_by(TurnWindow(2), Digest()),
    "clears alone": ClearResults(keep_tokens=200, least_tokens=100),
    "clears and covers": Blocks(keep_first_turns=1, keep_recent_turns=4, tool_output_max_lines=1),
    "a chain": then(ClearResults(keep_tokens=200, least_tokens=100), KeepRecentTurns(1), target=0.01),
    "tiers": Tiered(target=0.01),
}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES.keys())
async def test_l8_undo_gives_back_what_was_before_whatever_the_compaction_did(strategy: Strategy) -> None:
    runner = await runner_on(talk(10), strategy)
    before = await context_in(runner)
    result = await runner.compact("s")
    assert result is not None
    after = await context_in(runner)
    assert after.tokens < before.tokens
    assert await runner.undo("s") is not None
    restored = await context_in(runner)
    assert restored.visible == before.visible
    assert (restored.tokens, restored.turns, restored.filler) == (before.tokens, before.turns, before.filler)
    assert await runner.undo("s") is None


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES.keys())
async def test_what_is_foreseen_holds_and_nothing_is_done(strategy: Strategy) -> None:
    model = Priced([], window=WINDOW, summary=every_fact)
    runner = await runner_on(talk(10), strategy, model=model)
    length = (await context_in(runner)).length
    foreseen = await runner.preview("s")
    assert isinstance(foreseen, CompactionPreview)
    assert (await context_in(runner)).length == length
    assert model.requests == []
    await runner.compact("s")
    (first, *_) = [event for _, event in (await context_in(runner)).compactions]
    assert first.strategy == foreseen.strategy
    assert first.before == foreseen.context.tokens
    assert foreseen.tokens_after < 0.9 * foreseen.context.tokens
    assert (first.made == "summary" and first.covers) or first.after == foreseen.tokens_after
    touched = [seq for pair in first.covers for seq in pair] + [item.seq for item in first.cleared]
    assert (min(touched), max(touched)) == (foreseen.first, foreseen.last)
    assert foreseen.cost_saved == pytest.approx((foreseen.context.tokens - foreseen.tokens_after) / 1_000)
    assert foreseen.cache_cost == pytest.approx(foreseen.cache_tokens_lost * 0.9 / 1_000)


async def test_nothing_to_do_writes_nothing() -> None:
    runner = await runner_on(talk(2), SlidingWindow(50))
    length = (await context_in(runner)).length
    result = await runner.compact("s")
    assert (result.status, result.archived, result.seq) == ("not_due", (), None)
    assert result.tokens_before == result.tokens_after == (await runner.status("s")).tokens
    why = "5 messages (277 tokens) may go, and SlidingWindow(max_events=50) leaves all of them as they are"
    assert result.error == why
    assert await runner.preview("s") is None
    assert (await context_in(runner)).length == length


def the_newest(context: Context, budget: Any) -> Cut | None:
    newest = context.visible[-1].seq
    return Cut(covers=((newest, newest),), at=newest + 1)


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        (TurnWindow(9), "and TurnWindow(max_turns=9) leaves all of them as they are"),
        (RecursiveSummary(), "and RecursiveSummary(keep=10, overlap=2) leaves all of them as they are"),
        (
            ClearResults(),
            "and ClearResults(keep_tokens=40000, least_tokens=20000) leaves all of them as they are",
        ),
        (Tiered(keep=20), "and Tiered leaves all of them as they are"),
        (
            replaced_by(TurnWindow(9), Digest()),
            "and replaced_by(TurnWindow, Digest) leaves all of them as they are",
        ),
        (the_newest, "and all that the_newest names must stay"),
    ],
)
async def test_where_a_strategy_keeps_all_it_is_named_with_its_numbers(strategy: Any, why: str) -> None:
    runner = await runner_on(talk(3), KeepRecentTurns(1))
    result = await runner.compact("s", strategy=strategy)
    assert (result.status, str(result.error).partition("may go, ")[2]) == ("not_due", why)


async def test_where_nothing_may_go_that_is_said() -> None:
    runner = await runner_on([Message.user("hi"), Message.assistant("ok")], TurnWindow(1))
    assert "the newest exchange stay" in str((await runner.compact("s")).error)


async def test_a_pair_stands_in_the_context_and_the_next_pass_builds_on_it() -> None:
    runner = await runner_on(talk(10), RecursiveSummary(keep=6, overlap=1, shadow="What happened so far?"))
    model: Any = runner.agent.model
    await runner.compact("s")
    question, answer = (await context_in(runner)).visible[1:3]
    assert question.message.role == "user"
    assert question.message.text.endswith("What happened so far?")
    assert question.message.text.startswith("[Conversation compressed. Transcript: none]")
    assert answer.message.role == "assistant"
    assert "FACT-aa0003" in answer.message.text
    store = runner.store
    length = (await context_in(runner)).length
    await store.append("s", [added(message) for message in talk(16)[40:]], expect=length)
    await runner.compact("s")
    pairs = [entry for entry in (await context_in(runner)).visible if entry.kind != "said"]
    assert [entry.message.role for entry in pairs] == ["user", "assistant"]
    assert "FACT-aa0003" in pairs[1].message.text
    assert "FACT-aa000b" in pairs[1].message.text
    assert_valid(model.requests)


async def test_what_no_summary_stands_for_is_listed() -> None:
    runner = await runner_on(talk(10), SlidingWindow(8))
    result = await runner.compact("s")
    assert result is not None
    assert (result.status, result.tier) == ("done", 4)
    hidden = {entry.seq for entry in (await context_in(runner)).said} - {
        entry.seq for entry in (await context_in(runner)).visible
    }
    assert set(result.unread) == hidden
    assert set(result.archived) == hidden
    said = {
        record.seq: record for record in await runner.events("s", only=EventFilter(kinds=[MessageRecord]))
    }
    assert [said[seq] for seq in result.archived] == list(result.archived_events)
    assert [seq for seq in said if seq not in hidden] == [record.seq for record in result.kept_events]
    assert list(result.compacted_events) == list((await context_in(runner)).messages)
    assert result.events_removed == len(hidden)


async def test_a_digest_of_a_digest_is_made_from_the_log() -> None:
    runner = await runner_on(talk(6), replaced_by(TurnWindow(1), Digest()))
    await runner.compact("s")
    length = (await context_in(runner)).length
    await runner.store.append("s", [added(message) for message in talk(12)[24:]], expect=length)
    await runner.compact("s")
    twice = await newest_compaction(runner)
    once = await runner_on(talk(12), replaced_by(TurnWindow(1), Digest()))
    await once.compact("s")
    texts = [each.replacement for each in (twice, await newest_compaction(once))]
    assert [re.findall(r"positions (\S+)\n", text) for text in texts] == [["2–45"], ["2–44"]]
    lines = [set(re.sub(r"positions \S+|(?<=digest )\d{9}", "", text).splitlines()) for text in texts]
    assert {line for line in lines[0] if not line.startswith("Names: ")} <= lines[1]


async def test_a_fallback_says_why_the_model_did_not_write() -> None:
    model = ScriptedModel([], window=WINDOW, summary="")
    strategy = replaced_by(TurnWindow(2), Summary(on_failure=Digest()))
    runner = await runner_on(talk(8), strategy, model=model)
    result = await runner.compact("s")
    assert result is not None
    assert (result.status, result.tier) == ("done", 4)
    assert "blank" in str(result.error)
    assert (await newest_compaction(runner)).made == "digest"


async def test_an_idle_session_is_compacted_while_nobody_waits() -> None:
    now = [0.0]
    trigger = Idle(3_600, clock=lambda: now[0])
    runner = await runner_on(talk(10), KeepRecentTurns(1))
    context = await context_in(runner)
    now[0] = context.visible[-1].time + 3_599
    still = await runner.compact("s", trigger=trigger)
    assert (still.status, still.error) == ("not_due", "the trigger Idle does not fire")
    assert (await context_in(runner)).length == context.length
    now[0] += 2
    result = await runner.compact("s", trigger=trigger)
    assert (result.status, result.reason) == ("done", "idle")
    assert (await newest_compaction(runner)).reason == "idle"
    assert "seconds without a message" in result.why
    assert (await runner.compact("s", trigger=trigger)).status == "not_due"


async def test_l10_a_host_that_polls_in_vain_is_held_back_and_a_person_is_not() -> None:
    model = ScriptedModel([], window=WINDOW, summary="")
    strategy = replaced_by(TurnWindow(2), Summary(on_failure=None))
    runner = await runner_on(talk(8), SlidingWindow(2), model=model)
    polls = [await runner.compact("s", trigger=TurnCount(2), strategy=strategy) for _ in range(5)]
    assert [poll.status for poll in polls] == ["failed", *["skipped"] * 4]
    assert "did not help" in str(polls[-1].error)
    noted = [each.event for each in await runner.events("s") if isinstance(each.event, NotCompacted)]
    assert [(each.status, each.reason) for each in noted] == [
        ("failed", "threshold"),
        ("skipped", "threshold"),
    ]
    assert (await context_in(runner)).guard.strikes == 1
    assert (await runner.compact("s", strategy=strategy)).status == "failed"


async def test_another_strategy_than_the_policys_is_taken_for_one_compaction() -> None:
    runner = await runner_on(talk(10), KeepRecentTurns(1))
    foreseen = await runner.preview("s", strategy=TurnWindow(8))
    result = await runner.compact("s", strategy=TurnWindow(8))
    assert foreseen is not None
    assert (result.status, result.strategy, foreseen.strategy) == ("done", "TurnWindow", "TurnWindow")
    assert (await context_in(runner)).turns == 8
    assert (await runner.compact("s")).strategy == "KeepRecentTurns"


async def test_what_is_no_trigger_and_no_strategy_is_refused_before_anything_is_done() -> None:
    runner = await runner_on(talk(4), KeepRecentTurns(1))
    wrong: Any = "TurnWindow"
    for given in ({"trigger": wrong}, {"strategy": wrong}):
        with pytest.raises(UsageError, match=f"{next(iter(given))} must be"):
            await runner.compact("s", **given)


async def test_no_compaction_as_a_turn_was_ending() -> None:
    results = []
    for trigger in (TurnCount(2), all_of(TurnCount(2), NeedsFollowUp())):
        runner = await runner_on(talk(10), KeepRecentTurns(1))
        results.append((await runner.compact("s", trigger=trigger)).status)
    assert results == ["done", "not_due"]


async def test_turn_count_compacts_again_and_again_in_a_long_chat(tmp_path: Path) -> None:
    model = ScriptedModel(["answer"] * 40, window=128_000, summary="The user greets and is answered.")
    policy = Compaction(micro=None, trigger=TurnCount(10), strategy=TurnWindow(5))
    runner = Runner(Agent(model, compaction=policy), transcripts=tmp_path)
    turns = []
    for number in range(40):
        await runner.run(f"hello number {number}", session_id="s")
        turns.append((await context_in(runner)).turns)
    assert max(turns) <= 11
    assert len((await context_in(runner)).compactions) == 5


async def test_tiers_of_clearing_are_compactions_too(tmp_path: Path) -> None:
    policy = Compaction(micro=MicroCompact(keep_messages=2, min_gain_tokens=100_000))
    model = ScriptedModel(reading(12, words=900), window=WINDOW, summary=every_fact)
    runner = Runner(Agent(model, tools=[read], compaction=policy), transcripts=tmp_path)
    events = await watched(runner, "Read")
    ended = [event for event in events if isinstance(event, CompactionEnded)]
    assert [event.tier for event in ended][:1] == [1]
    assert ended[0].shortened
    assert ended[0].archived == ()
    assert ended[0].tokens_saved > 0
    assert sum(isinstance(event, CompactionStarted) for event in events) == len(ended)
    assert_valid(model.requests)


async def test_a_later_read_of_the_same_file_frees_the_earlier_one_first(tmp_path: Path) -> None:
    answers = reading(12, words=900)
    again = [answers[0]] * 12
    model = ScriptedModel([*again, "done"], window=WINDOW, summary=every_fact)
    policy = Compaction(micro=MicroCompact(min_gain_tokens=100_000))
    runner = Runner(Agent(model, tools=[read], compaction=policy), transcripts=tmp_path)
    result = await runner.run("Read", session_id="s")
    assert {each.strategy for each in result.compactions} == {"superseded results"}
    assert not [request for request in model.requests if request.purpose == "summary"]
    assert_valid(model.requests)


async def test_a_race_is_rebased_or_dropped(tmp_path: Path) -> None:
    store = await stored(talk(10))
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(request: Any) -> str:
        reached.set()
        await go_on.wait()
        return every_fact(request)

    model = ScriptedModel([], window=WINDOW, summary=slowly)
    agent = Agent(model, compaction=Compaction(strategy=KeepRecentTurns(1)))
    runner = Runner(agent, store=store, transcripts=tmp_path)
    task = asyncio.create_task(runner.compact("s"))
    await reached.wait()
    length = len(await store.read("s"))
    await store.append("s", [added(Message.user("meanwhile"))], expect=length)
    go_on.set()
    result = await task
    assert result is not None
    assert result.status == "done"
    visible = (await context_in(runner)).visible
    assert visible[-1].message.text == "meanwhile"
    assert sum(request.purpose == "summary" for request in model.requests) == 1


async def test_the_log_is_read_through_a_filter() -> None:
    runner = await runner_on(talk(6), TurnWindow(1))
    await runner.compact("s")
    done = await runner.events("s", only=EventFilter(kinds=["compacted"]))
    assert [type(record.event) for record in done] == [Compacted]
    assert len(await runner.events("s", only=EventFilter(first=2, last=5))) == 4


def test_an_older_record_of_a_compaction_is_read_as_before() -> None:
    said = records_of([added(message) for message in talk(4)])
    old = Compacted(covers=((2, 8),), replacement="[Conversation compressed] summary", at=9, tokens=9)
    context = Context.of([*said, Record(seq=len(said) + 1, event=old)])
    kinds = [entry.kind for entry in context.visible]
    assert kinds == ["said", "summary", *["said"] * 8]
    assert context.turns == 2
    assert COUNTER("x") == 1
    assert isinstance(said[0].event, MessageRecord)


@pytest.mark.parametrize("answer", [True, "now", 5])
async def test_a_trigger_or_strategy_that_answers_nonsense_is_named(answer: Any) -> None:
    def nonsense(context: Context, budget: Any) -> Any:
        return answer

    runner = await runner_on(talk(2), nonsense)
    with pytest.raises(UsageError, match=r"the strategy nonsense answered .* a Cut, or None"):
        await runner.compact("s")
    runner = await runner_on(talk(2), SlidingWindow(2))
    with pytest.raises(UsageError, match=r"the trigger nonsense answered .* Fired\(…\), or None"):
        await runner.compact("s", trigger=nonsense)


async def test_a_trigger_or_strategy_that_fails_is_named() -> None:
    def failing(context: Context, budget: Any) -> Any:
        raise KeyError("x")

    runner = await runner_on(talk(2), failing)
    with pytest.raises(AgentLoopError, match=r"^the strategy failing failed: KeyError: 'x'$"):
        await runner.compact("s")
    runner = await runner_on(talk(2), SlidingWindow(2), trigger=failing)
    with pytest.raises(AgentLoopError, match=r"^the trigger failing failed: KeyError: 'x'$"):
        await runner.run("Go on", session_id="s")
    assert isinstance((await runner.events("s"))[-1].event, RunEndRecord)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Agent("gpt-5-mini"), "model must be a model"),  # type: ignore[arg-type]
        (lambda: Agent(ScriptedModel), "model must be a model"),  # type: ignore[arg-type]
        (lambda: Agent(ScriptedModel([]), tools=read), "tools must be a list"),  # type: ignore[arg-type]
        (lambda: Agent(ScriptedModel([]), compaction=True), "compaction must be"),  # type: ignore[arg-type]
        (lambda: Agent(ScriptedModel([]), instructions=["x"]), "instructions must be"),  # type: ignore[arg-type]
        (lambda: Runner(ScriptedModel([])), "agent must be an Agent"),  # type: ignore[arg-type]
        (lambda: Runner(Agent(ScriptedModel([])), store=None), "store must be"),  # type: ignore[arg-type]
        (lambda: Runner(Agent(ScriptedModel([])), callbacks=5), "callbacks must be"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_part_of_an_agent_is_named_at_once(wrong: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wrong()


async def test_a_run_without_a_prompt_says_what_to_do() -> None:
    runner = await runner_on(talk(1), SlidingWindow(2))
    with pytest.raises(UsageError, match="the prompt must be text"):
        await runner.run(None)  # type: ignore[arg-type]


async def test_a_chain_says_what_its_steps_came_to_together() -> None:
    replies = iter([every_fact, ""])

    def summary(request: Any) -> Any:
        reply = next(replies, "")
        return reply(request) if callable(reply) else reply

    model = ScriptedModel([], window=WINDOW, summary=summary)
    chain = then(KeepRecentFraction(0.5), KeepRecentFraction(0.1), target=0.01)
    runner = await runner_on(talk(10), chain, model=model)
    before = await context_in(runner)
    result = await runner.compact("s")
    assert result is not None
    assert result.status == "done"
    assert "refused" in str(result.error)
    assert result.messages_before == len(before.visible)
    assert result.tokens_saved > 0
    await runner.undo("s")
    assert (await context_in(runner)).visible == before.visible


@pytest.mark.deep
async def test_failing_summaries_inside_a_chain_are_strikes(tmp_path: Path) -> None:
    model = ScriptedModel(reading(60, words=700), window=8_000, summary="")
    policy = Compaction(micro=None, strategy=then(KeepUserMessages(100), Tiered()))
    runner = Runner(Agent(model, tools=[read], compaction=policy), transcripts=tmp_path)
    result = await runner.run("Read", session_id="s")
    assert result.output == "all read"
    assert sum(request.purpose == "summary" for request in model.requests) <= 30
    assert_valid(model.requests)


@pytest.mark.parametrize("strategy", [SlidingWindow(1), replaced_by(TurnWindow(1), Digest())])
async def test_what_would_stand_instead_must_be_smaller(strategy: Strategy) -> None:
    said = [Message.user("go"), Message.assistant("a"), Message.user("b"), Message.assistant("c")]
    runner = await runner_on([*said, Message.user("d"), Message.assistant("e")], strategy)
    length = (await context_in(runner)).length
    result = await runner.compact("s")
    assert result is not None
    assert (result.status, result.tokens_saved) == ("ineffective", 0)
    noted = [record.event for record in await runner.events("s", only=EventFilter(first=length + 1))]
    assert [getattr(event, "status", "called") for event in noted][-1] == "ineffective"


async def test_a_plain_function_gives_a_text_of_its_own() -> None:
    def to_a_file(context: Context, budget: Any) -> Cut | None:
        return Cut(covers=((2, 8),), at=9, instead=Note("What was said is in </summary> notes.md."))

    runner = await runner_on(talk(6), to_a_file)
    result = await runner.compact("s")
    assert (result.status, result.tier, result.unread) == ("done", 4, tuple(range(2, 9)))
    stands = (await context_in(runner)).visible[1].message.text
    assert stands.endswith("\n\nWhat was said is in </summary> notes.md.")


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ({"instead": "a text"}, r'instead must be a Summary.*a text of your own is Note\("…"\)'),
        ({"covers": [(2, 3)]}, "covers must be pairs of positions"),
        ({"covers": ((2, "3"),)}, "covers must be pairs of positions"),
        ({"reads": (2, 3)}, "reads must be pairs of positions"),
        ({"at": "2"}, "at must be a whole number"),
        ({"cleared": (3,)}, "cleared must be a tuple of ClearedItem"),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused_where_the_cut_is_made(part: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Cut(**part)
    with pytest.raises(UsageError, match="text must be a text that is not blank"):
        Note(" ")
