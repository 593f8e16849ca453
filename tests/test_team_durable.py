"""A team whose turns are durable runs: whichever worker dies, another goes on, and nothing is done twice."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentloop import Agent, Team
from agentloop.durable import RunQueue, Worker
from agentloop.errors import AgentLoopError, UsageError
from agentloop.stores import open_store
from agentloop.testing import ScriptedModel
from tests.cli_kit import LONGEST_SECONDS
from tests.test_team import given_to, prompts_of, team_of

ROOT = Path(__file__).parent.parent
WORKS = """
import asyncio, os, sys
from itertools import repeat
from pathlib import Path
from agentloop import Agent, Team
from agentloop.durable import RunQueue, Worker
from agentloop.testing import ScriptedModel, calls

url, marks, gate = sys.argv[1:]

async def dig(where: str) -> str:
    '''Dig.'''
    with open(marks, "a") as file:
        file.write(f"{os.getpid()}\\n")
    while not Path(gate).exists():
        await asyncio.sleep(0.02)
    return "deep"

def reply(request):
    since = [message["role"] for message in request.messages]
    return "Done." if since[-1] == "tool" else calls(dig={"where": "wall"})

async def main():
    agents = {name: Agent(ScriptedModel(repeat(reply)), tools=[dig]) for name in ("ada", "eve")}
    team = Team(agents, store=url, transcripts=None)
    worker = Worker(team, url, transcripts=None, look_seconds=0.3, poll_seconds=0.1, concurrency=1)
    working = asyncio.create_task(worker.run())
    async with RunQueue(url) as queue:
        for result in await team.run(queue):
            print(result.session_id, result.output, flush=True)
    worker.stop()
    await working
    await team.store.close()

asyncio.run(main())
"""


@pytest.mark.deep
async def test_a_killed_workers_member_goes_on_elsewhere_and_nothing_is_done_twice(
    database: str, tmp_path: Path
) -> None:
    store = open_store(database)
    team = team_of(store, ada=Agent(ScriptedModel([])), eve=Agent(ScriptedModel([])))
    for number in range(4):
        await team.board.add(f"Step {number}")
    await team.broadcast("Begin.")
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    command = [sys.executable, "-c", WORKS, database, str(marks), str(gate)]
    both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            while len(dug(marks)) < 2:  # noqa: ASYNC110 — the processes tell by the file
                await asyncio.sleep(0.05)
        killed, left = sorted(both, key=lambda each: each.pid != dug(marks)[0])
        killed.kill()
        gate.touch()
        told = (await asyncio.to_thread(left.communicate, timeout=LONGEST_SECONDS))[0].splitlines()
        assert left.returncode == 0
    finally:
        for each in both:
            with each:
                each.kill()
    assert {line.partition(" ")[2] for line in told} == {"Done."}
    assert [task.result for task in await team.board.tasks()] == ["Done."] * 4
    assert len(dug(marks)) == 4, "what was in flight at the kill does not run again"
    prompts = [text for name in ("ada", "eve") for text in await prompts_of(store, f"team.{name}")]
    assert sorted(number for text in prompts for number in re.findall(r"task (\d)\]", text)) == list("1234")
    assert [await given_to(store, f"team.{name}") for name in ("ada", "eve")] == [[1], [1]]
    assert len(await runs_of(database)) == 4
    await store.close()


@pytest.mark.deep
async def test_a_turn_is_one_run_whoever_asks_and_one_that_failed_is_gone_on_with(database: str) -> None:
    team = Team(
        {"ada": Agent(ScriptedModel([BaseException("odd"), "Dug."]))}, store=database, transcripts=None
    )
    await team.board.add("Dig")
    worker = Worker(team, database, transcripts=None, poll_seconds=0.1)
    async with RunQueue(database) as queue:
        asked = [queue.turn("Hello", session_id="team.eve", length=0, queue="team") for _ in range(2)]
        working = asyncio.create_task(worker.run())
        for error in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(error, AgentLoopError)
            assert "no member of the team 'team' has the session 'team.eve'" in str(error)
        assert len(await queue.runs(session_id="team.eve")) == 1
        with pytest.raises(AgentLoopError, match=r"run [0-9a-f]{32} of the session 'team\.ada' is failed"):
            await team.run(queue)
        assert [result.output for result in await team.run(queue)] == ["Dug."]
        assert [task.result for task in await team.board.tasks()] == ["Dug."]
        with pytest.raises(UsageError, match="queue must be a RunQueue"):
            await team.run(database)  # type: ignore[arg-type]
        worker.stop()
        await working
    await team.store.close()


def dug(marks: Path) -> list[int]:
    """The processes that dug, one after the other."""
    return [int(line) for line in marks.read_text().splitlines()] if marks.exists() else []


async def runs_of(database: str) -> list[str]:
    """The sessions of all runs of the queue."""
    async with RunQueue(database) as queue:
        return [run.session_id for run in await queue.runs(most=None)]
