"""Faults that whole conversations drawn from seeds have found, each as small as it could be made."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from agentloop.callbacks import Callbacks
from agentloop.compaction import Compaction
from agentloop.errors import ContextOverflowError
from agentloop.events import MessageRecord
from agentloop.messages import Message
from agentloop.models import RetryPolicy
from agentloop.providers.openai import OpenAIChat
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.strategies import (
    KeepRecentTurns,
    MicroCompact,
    RecursiveSummary,
    Strategy,
    Tiered,
    TurnWindow,
    then,
)
from agentloop.stream import StreamEvent, ToolEnded
from agentloop.testing import ScriptedModel, calls
from agentloop.triggers import TokenCount
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, ExtractiveSummariser, Fault, asks_for_summary


async def compacted(
    provider: StrictProvider, folder: Path, *, window: int, strategy: Strategy | None = None
) -> str | None:
    """What three turns come to when a person asks to compact them: the status."""
    model = OpenAIChat("m", base_url=provider.url, window=window, retry=RetryPolicy(attempts=1))
    policy = Compaction(strategy=strategy or KeepRecentTurns(1))
    runner = Runner(Agent(model, compaction=policy), transcripts=folder)
    try:
        for turn in range(3):
            await runner.run(f"question {turn} " + "and so on " * 80, session_id="s")
        result = await runner.compact("s")
    finally:
        await model.close()
    return result.status if result else None


@pytest.mark.parametrize("overflow", ["glm", "openai", "llamacpp-bare"])
async def test_l17_no_overflow_of_a_summary_leads_to_the_same_request(overflow: str, tmp_path: Path) -> None:
    brain = ExtractiveSummariser(lambda _: "so it is " * 80)
    with StrictProvider(brain, window=4_000, overflow=overflow) as provider:
        assert await compacted(provider, tmp_path, window=40_000) == "done"
        asked = [received for received in provider.requests if asks_for_summary(received.body or {})]
    refused = [received for received in asked if received.violations]
    assert 1 <= len(refused) <= 2
    assert len({received.raw for received in asked}) == len(asked)


async def test_l17_what_refused_summaries_taught_of_the_window_holds_for_the_run(tmp_path: Path) -> None:
    def brain(body: Body) -> str:
        return "so it is " * 80

    with StrictProvider(brain, window=600, overflow="llamacpp-bare") as provider:
        model = OpenAIChat("m", base_url=provider.url, window=6_000, retry=RetryPolicy(attempts=1))
        policy = Compaction(trigger=TokenCount(1_500), strategy=RecursiveSummary(keep=5))
        runner = Runner(Agent(model, compaction=policy), transcripts=tmp_path)
        history = [Message.user("note this " * 99), Message.assistant("so it is " * 99)] * 4
        with suppress(ContextOverflowError):
            await runner.run("go on", session_id="s", history=history)
        await model.close()
        asked = [received for received in provider.requests if asks_for_summary(received.body or {})]
    assert 1 <= len([received for received in asked if received.violations]) <= 3
    assert len({received.raw for received in asked}) == len(asked)


@pytest.mark.parametrize(
    "strategy",
    [then(KeepRecentTurns(1), KeepRecentTurns(1)), Tiered(keep=1)],
    ids=["twice", "tiered"],
)
async def test_l17_a_chain_does_not_ask_again_what_was_refused_for_good(
    strategy: Strategy, tmp_path: Path
) -> None:
    def brain(body: Body) -> Answered | str:
        return Fault(status=400, body="no") if asks_for_summary(body) else "so it is " * 80

    with StrictProvider(brain) as provider:
        await compacted(provider, tmp_path, window=40_000, strategy=strategy)
        assert sum(asks_for_summary(body) for body in provider.bodies) == 1


@pytest.mark.parametrize("overflow", ["anthropic-sum", "openai", "glm"])
async def test_l17_what_was_refused_as_too_long_is_not_sent_again_as_it_was(
    overflow: str, tmp_path: Path
) -> None:
    """By a server that counts less than we do of the first turn, and more of the second."""

    def brain(body: Body) -> Answered | str:
        return Fault(status=400, body="no") if asks_for_summary(body) else "yes"

    with StrictProvider(brain, window=5_000, overflow=overflow) as provider:
        model = OpenAIChat("m", base_url=provider.url, window=20_000, retry=RetryPolicy(attempts=1))
        runner = Runner(Agent(model), transcripts=tmp_path)
        await runner.run("it is so " * 800, session_id="s")
        with suppress(ContextOverflowError):
            await runner.run("information " * 1_100, session_id="s")
        await model.close()
        assert any(request.violations for request in provider.requests)
        sent = [each.raw for each in provider.requests if not asks_for_summary(each.body or {})]
    assert len(set(sent)) == len(sent)


async def test_l17_a_request_stays_what_it_was_where_a_result_of_no_call_is_shortened(tmp_path: Path) -> None:
    """The result stands in no request, but it is counted in the context."""
    with StrictProvider(lambda _: "yes", window=500, overflow="http-413") as provider:
        model = OpenAIChat("m", base_url=provider.url, window=5_000, retry=RetryPolicy(attempts=1))
        policy = Compaction(micro=MicroCompact(keep_messages=0, max_chars=40))
        agent = Agent(model, instructions="Mind the rules. " * 280, compaction=policy)
        runner = Runner(agent, transcripts=tmp_path)
        said = [Message.user("go on"), Message.tool("nobody", "a line " * 250), Message.assistant("Good.")]
        sizes = zip(said, (10, 500, 10), strict=True)
        records = [MessageRecord(message=message, tokens=tokens) for message, tokens in sizes]
        await runner.store.append("s", records, expect=0)
        with suppress(ContextOverflowError):
            await runner.run("And now?", session_id="s")
        await model.close()
        sent = [each.raw for each in provider.requests if not asks_for_summary(each.body or {})]
    assert len(set(sent)) == len(sent) > 0


@pytest.mark.parametrize("times", [8, 10])
async def test_l9_what_is_left_after_an_overflow_may_count_more_than_the_whole(
    times: int, tmp_path: Path
) -> None:
    """What goes first is much by our own count and little by the server's, which reports no usage."""
    with StrictProvider(lambda _: "yes", window=5_000, overflow="openrouter", usage="absent") as provider:
        model = OpenAIChat("m", base_url=provider.url, window=5_000, max_output_tokens=300)
        policy = Compaction(micro=None, strategy=TurnWindow(2))
        runner = Runner(Agent(model, compaction=policy), transcripts=tmp_path)
        prompts = ["what is it?", "7. 3; 9, " * times, "information " * 700, "information " * 828]
        for prompt in prompts:
            await runner.run(prompt, session_id="s")
        await model.close()
        assert sum(bool(request.violations) for request in provider.requests) == 1


class CancelAtTheFirstEnd(Callbacks):
    """Cancels the run when it is told of a call's end for the first time."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.run: asyncio.Task[object] | None = None

    async def on_event(self, event: StreamEvent) -> None:
        if isinstance(event, ToolEnded):
            self.ended.append(event.call_id)
            if len(self.ended) == 1 and self.run is not None:
                self.run.cancel()
                await asyncio.sleep(0)


async def test_l16_each_compact_call_of_a_batch_is_told_to_have_ended_when_cancelled_at_the_first() -> None:
    watcher = CancelAtTheFirstEnd()
    model = ScriptedModel([calls(("compact", {}), ("compact", {})), "done"])
    runner = Runner(Agent(model), callbacks=[watcher], transcripts=None)
    watcher.run = asyncio.create_task(runner.run("go", session_id="s"))
    with pytest.raises(asyncio.CancelledError):
        await watcher.run
    asked = [message.tool_calls for message in (await runner.resume("s")).messages if message.tool_calls]
    assert watcher.ended == [call.id for call in asked[0]]
