"""An answer that the output limit or a filter cut short is an answer, and says so where its run ends."""

from typing import Any

import pytest

from agentloop import Agent, Answer, Limits, Message, OpenAIChat, OpenAIResponses, Runner
from agentloop.durable import RunQueue
from agentloop.events import RunEndRecord
from agentloop.stores import SessionStore
from agentloop.stream import MessageAdded, RunEnded
from agentloop.testing import ScriptedModel, calls
from tests import durable_work_kit
from tests.durable_work_kit import Heard, at_work, over
from tests.kit import watched
from tests.server_kit import at_once
from tests.strict_provider import StrictProvider
from tests.strict_replies import Reply

url, queue, store = durable_work_kit.url, durable_work_kit.queue, durable_work_kit.store
no_run_is_left = durable_work_kit.no_run_is_left
in_a_folder_of_its_own = durable_work_kit.in_a_folder_of_its_own
CUTS = ["length", "content_filter"]


async def end_in(runner: Runner, session_id: str) -> RunEndRecord:
    """The record of how the newest run ended."""
    ends = [r.event for r in await runner.events(session_id) if isinstance(r.event, RunEndRecord)]
    return ends[-1]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
@pytest.mark.parametrize("finish", CUTS)
async def test_an_answer_that_was_cut_short_says_so(kind: Any, finish: str, stream: bool) -> None:
    with StrictProvider([Reply(text="half of it", finish=finish), "whole", "whole"]) as provider:
        model = kind("m", base_url=provider.url, api_key="k", window="32k", retry=at_once(1), stream=stream)
        async with Runner(Agent(model), transcripts=None) as runner:
            cut = await runner.run("go", session_id="s")
            assert (cut.status, cut.output, cut.reason) == ("answered", "half of it", finish)
            assert await end_in(runner, "s") == RunEndRecord(
                run_id=cut.run_id, status="answered", usage=cut.usage, reason=finish
            )
            assert (await runner.resume("s")).reason == finish
            whole = await runner.run("go on", session_id="s")
            assert (whole.status, whole.reason) == ("answered", None)
            assert (await end_in(runner, "s")).reason is None


@pytest.mark.parametrize("finish", CUTS)
async def test_the_stream_says_so(finish: str) -> None:
    with StrictProvider([Reply(text="half of it", finish=finish)]) as provider:
        model = OpenAIChat("m", base_url=provider.url, api_key="k", window="32k", retry=at_once(1))
        seen = await watched(Runner(Agent(model), transcripts=None), "go")
    [added] = [each for each in seen if isinstance(each, MessageAdded) and each.message.role == "assistant"]
    ended = seen[-1]
    assert isinstance(ended, RunEnded)
    assert (added.finish, ended.reason, ended.error, ended.status) == (finish, finish, None, "answered")


async def test_the_end_of_a_run_at_a_limit_has_the_limit_for_its_reason() -> None:
    def look() -> str:
        """Look."""
        return "seen"

    runner = Runner(Agent(ScriptedModel([calls(look={}), "done"]), tools=[look]), transcripts=None)
    seen = [each async for each in runner.stream("go", limits=Limits(steps=1))]
    ended = seen[-1]
    assert isinstance(ended, RunEnded)
    assert (ended.status, ended.reason) == ("limit", ended.error)
    assert ended.reason


@pytest.mark.deep
async def test_a_durable_run_says_so(url: str, queue: RunQueue, store: SessionStore) -> None:
    heard = Heard(RunEnded)
    model = ScriptedModel([Answer(message=Message.assistant("half of it"), finish="length")])
    run_id = await queue.submit("Go.", session_id="cut")
    async with at_work(Agent(model), url, on_event=heard):
        run = await over(queue, run_id)
    assert (run.state, run.error, await queue.answer(run_id)) == ("answered", None, "half of it")
    ends = [r.event for r in await store.read("cut") if isinstance(r.event, RunEndRecord)]
    assert [end.reason for end in ends] == ["length"]
