"""Work that is cancelled, however often, leaves nothing behind and loses no ending."""

import asyncio
import threading
from pathlib import Path

import pytest

from agentloop._plumbing.aio import DeadlineError, SelfCancelledError, in_thread, to_its_end, within
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.testing import ScriptedModel, calls
from tests.kit import until, watched


class Stubborn:
    """Answers to being cancelled by taking its time."""

    def __init__(self) -> None:
        self.started, self.cancelled, self.release = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.times = 0

    async def __call__(self) -> str:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.times += 1
        return "ended all the same"


async def turns(count: int = 20) -> None:
    """Let everything else on the loop go as far as it can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_l16_cancelling_a_run_twice_leaves_no_task_and_a_valid_log(tmp_path: Path) -> None:
    stubborn = Stubborn()

    async def work() -> str:
        """Work."""
        return await stubborn()

    runner = Runner(Agent(ScriptedModel([calls(work={}), "ok"]), tools=[work]), transcripts=tmp_path)
    task = asyncio.create_task(runner.run("Go", session_id="s"))
    await until(stubborn.started)
    task.cancel()
    await until(stubborn.cancelled)
    for _ in range(3):
        task.cancel()
        await turns()
    assert not task.done()
    stubborn.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert stubborn.times == 0
    assert (await runner.resume("s")).messages[2].text == "ended all the same"


async def test_work_that_will_not_end_is_left_after_one_grace_however_often_cancelled() -> None:
    stubborn = Stubborn()
    task = asyncio.create_task(within(stubborn(), seconds=float("inf"), grace_seconds=0.05))
    await until(stubborn.started)
    task.cancel()
    await until(stubborn.cancelled)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 120)
    stubborn.release.set()
    await turns()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancellation_while_a_deadline_is_kept_is_not_lost() -> None:
    stubborn = Stubborn()
    task = asyncio.create_task(within(stubborn(), seconds=0.001))
    await until(stubborn.cancelled)
    task.cancel()
    await turns()
    stubborn.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_deadline_that_nobody_cancels_is_a_deadline() -> None:
    with pytest.raises(DeadlineError):
        await within(asyncio.Event().wait(), seconds=0.001)


async def test_what_ends_a_coroutine_from_outside_is_not_taken_for_it() -> None:
    async def closed() -> None:
        raise GeneratorExit

    with pytest.raises(SelfCancelledError, match="ended by GeneratorExit"):
        await within(closed(), seconds=5)


async def test_l16_a_tool_that_raises_generator_exit_gives_an_answer(tmp_path: Path) -> None:
    async def odd() -> None:
        """Raise what closes a coroutine."""
        raise GeneratorExit

    runner = Runner(Agent(ScriptedModel([calls(odd={}), "ok"]), tools=[odd]), transcripts=tmp_path)
    assert (await watched(runner, "Go"))[-1].output == "ok"  # type: ignore[union-attr]


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_work_to_its_end_is_done_however_often_it_is_cancelled(times: int) -> None:
    release, done = asyncio.Event(), threading.Event()

    async def write() -> None:
        await release.wait()
        await in_thread(done.set)

    task = asyncio.create_task(to_its_end(write()))
    for _ in range(times):
        await turns()
        task.cancel()
    await turns()
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_work_to_its_end_gives_what_it_gives() -> None:
    async def three() -> int:
        return 3

    assert await to_its_end(three()) == 3
