"""How much room there is: what an overflow teaches, and that sizes are held against their like."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentloop.compaction import Compaction
from agentloop.context import Budget, learn_from_overflow
from agentloop.errors import ContextTooLongError
from agentloop.messages import Message, Usage
from agentloop.models import Answer, ModelRequest
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.testing import ScriptedModel
from tests.kit import context_of, every_fact, read, reading


@pytest.mark.parametrize("told", [None, 1, 200, 292, 293, 294, 320, 5_000, 20_000])
@pytest.mark.parametrize("window", [None, 4_000])
def test_after_an_overflow_the_same_request_is_known_not_to_fit(told: int | None, window: int | None) -> None:
    context = context_of([Message.user("word " * 3_600)])
    budget = Budget(window=10_000, fixed=100, model="m", max_output_tokens=10)
    assert budget.fits(context)
    taught = learn_from_overflow(budget, context, ContextTooLongError("too long", window=window, tokens=told))
    assert not taught.fits(context)
    assert taught.window <= budget.window
    assert taught.ratio(context) >= 1


async def test_a_compaction_that_is_done_says_that_it_saved_although_the_server_counts_less(
    tmp_path: Path,
) -> None:
    def counting_less(request: ModelRequest) -> Answer:
        size = len(str(request.messages)) // 8
        return Answer(message=next(answers), usage=Usage(input_tokens=size, output_tokens=1))

    script = reading(30, words=300)
    answers = (
        Message.assistant(reply) if isinstance(reply, str) else Message.assistant(None, reply)
        for reply in script
    )
    model = ScriptedModel([counting_less] * len(script), window=8_000, summary=every_fact)
    agent = Agent(model, tools=[read], compaction=Compaction(micro=None))
    result = await Runner(agent, transcripts=tmp_path).run("Read", session_id="s")
    done = [each for each in result.compactions if each.status == "done"]
    assert done
    assert all(each.tokens_saved > 0 for each in done)


def test_recall_is_offered_again_once_there_is_room_for_its_tools() -> None:
    budget = Budget(window=20_000, fixed=1_000, model="m", recall_tools=500)
    small = replace(budget, window=2_000)
    assert (budget.recall, small.recall) == (500, 0)
    assert replace(small, window=20_000).recall == 500
