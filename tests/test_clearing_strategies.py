"""Cuts that cover nothing: old results shown shortened."""

from dataclasses import replace

import pytest

from agentloop import Agent, Compaction, Runner, tool
from agentloop.context import Context
from agentloop.events import Record, Restored
from agentloop.messages import Message, ToolCall
from agentloop.strategies import (
    ClearResults,
    MicroCompact,
    Tiered,
)
from agentloop.testing import ScriptedModel, calls
from tests.kit import added, context_of, records_of
from tests.turns_kit import ROOM, carried_out, shown


def results(*lengths: int, last: int = 1) -> list[Message]:
    """Exchanges with results of so many words, and an answer."""
    messages: list[Message] = []
    for number, words in enumerate(lengths):
        call = ToolCall(id=f"call_{number}", name="read")
        messages += [Message.assistant(None, [call]), Message.tool(call.id, "word " * words)]
    return [*messages, *[Message.assistant("done")] * last]


def test_clear_results_leaves_the_newest_tokens_alone() -> None:
    context = context_of(results(500, 500, 500, 500))
    tokens = context.visible[1].tokens
    cut = ClearResults(keep_tokens=2 * tokens, least_tokens=0)(context, ROOM)
    assert shown(cut) == dict.fromkeys((2, 4), "[Old tool result content cleared]")
    assert cut is not None
    assert cut.covers == ()
    closer = ClearResults(keep_tokens=2 * tokens - 1, least_tokens=0)(context, ROOM)
    assert list(shown(closer)) == [2, 4, 6]
    assert ClearResults(keep_tokens=2 * tokens, least_tokens=0)(carried_out(context, cut), ROOM) is None


def test_clear_results_waits_until_it_gains_enough() -> None:
    context = context_of(results(500, 500, 500))
    everything = ClearResults(keep_tokens=0, least_tokens=0)(context, ROOM)
    assert everything is not None
    gain = sum(context.visible[item.seq - 1].tokens - item.tokens for item in everything.cleared)
    assert ClearResults(keep_tokens=0, least_tokens=gain)(context, ROOM) == everything
    assert ClearResults(keep_tokens=0, least_tokens=gain + 1)(context, ROOM) is None


def test_clear_results_touches_neither_kept_nor_unread_nor_short_ones() -> None:
    events = [added(message) for message in results(500, 500, 1, 500, last=0)]
    events[1] = replace(events[1], keep=True)
    cut = ClearResults(keep_tokens=0, least_tokens=0)(Context.of(records_of(events)), ROOM)
    assert list(shown(cut)) == [4]


def test_what_is_shown_shortened_stays_so() -> None:
    context = context_of(results(500, 500))
    strip = Tiered(keep=1).steps[0]
    stubs = carried_out(context, strip(context, ROOM))
    assert ClearResults(keep_tokens=0, least_tokens=0)(stubs, ROOM) is None
    assert strip(stubs, ROOM) is None


def test_what_clearing_hid_comes_back_when_it_is_taken_back() -> None:
    context = context_of(results(500, 500))
    cut = ClearResults(keep_tokens=0, least_tokens=0)(context, ROOM)
    after = carried_out(context, cut)
    assert after.tokens < context.tokens
    assert [entry.original for entry in after.said] == [entry.original for entry in context.said]
    back = after.add(Record(seq=after.length + 1, event=Restored(seq=after.length)))
    assert list(back.messages) == list(context.messages)


FILLER = "the next part reads like the one before it and says nothing new"


def long_result(code: str, where: str) -> str:
    """Forty lines with a code in one of them."""
    lines = [FILLER] * 40
    lines[{"head": 0, "middle": 20, "end": 39}[where]] += f" but for {code}"
    return "\n".join(lines)


async def sent_after_micro(*results: str) -> list[str]:
    """What each tool message says in the last request of a run that got these results."""
    left = iter(results)

    @tool
    def look() -> str:
        """The next result."""
        return next(left)

    model = ScriptedModel([*[calls(("look", {}))] * len(results), "Done."], window=8_000)
    micro = MicroCompact(keep_messages=1, min_gain_tokens=0)
    agent = Agent(model, tools=[look], compaction=Compaction(micro=micro))
    async with Runner(agent, transcripts=None) as runner:
        await runner.run("Look until there is nothing more.")
    return [str(message["content"]) for message in model.requests[-1].messages if message["role"] == "tool"]


@pytest.mark.parametrize("where", ["head", "middle", "end"])
@pytest.mark.parametrize("code", ["QX7-2210-LM", "src/app/rates_v2.py:117", "retry_after_ms", "ENOSPC"])
async def test_a_code_of_a_long_result_is_still_seen_once_it_is_shortened(code: str, where: str) -> None:
    result = long_result(code, where)
    shown_result, *_ = await sent_after_micro(result, "nothing", "nothing")
    assert len(shown_result) < 320 < len(result)
    assert "[truncated: " in shown_result
    assert code in shown_result


async def test_the_same_result_is_always_shortened_to_the_same() -> None:
    result = "\n".join(long_result(f"part-{at}-of-9", "end") for at in range(9))
    first, second, *_ = await sent_after_micro(result, result, "nothing", "nothing")
    [again, *_] = await sent_after_micro(result, "nothing", "nothing")
    assert first == second == again
    assert "among them part-0-of-9, part-1-of-9, " in first
    assert "part-8-of-9; call the tool again" in first
    assert len(first) < 320


async def test_a_result_that_names_nothing_keeps_as_much_of_its_beginning() -> None:
    result = "\n".join([FILLER] * 40)
    shown_result, *_ = await sent_after_micro(result, "nothing", "nothing")
    assert shown_result.startswith(f"{result[:200]}... [truncated: ")


async def test_a_name_that_the_cut_falls_into_is_shown_whole() -> None:
    result = f"{'a ' * 57}deploy-token-77-of-the-blue-cell {FILLER * 9} and {'b1-' * 20}"
    shown_result, *_ = await sent_after_micro(result, "nothing", "nothing")
    assert "deploy-token-77-of-the-blue-cell" in shown_result
