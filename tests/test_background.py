"""Background: what runs beside the model's work is told of once when it ends, and never outlives its run."""

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Background, Compaction, Limits, Runner, Secrets, SyncRunner, ToolCall
from agentloop.errors import ModelUnavailableError, UsageError
from agentloop.messages import Message, SeenMessage
from agentloop.models import ModelRequest
from agentloop.prompts import INTERRUPTED, KEPT_IN_SIGHT
from agentloop.stores import SQLiteStore
from agentloop.strategies import KeepRecentTurns
from agentloop.stream import AnyStreamEvent, ToolProgress
from agentloop.testing import ScriptedModel, calls
from tests.cli_kit import program
from tests.kit import assert_valid

TWO_TURNS = Compaction(strategy=KeepRecentTurns(1), tool=False)
LONG = "The snails came. " * 80
NOTICE = re.compile(r"\[Reminder: job ([0-9a-f]{8}) ended: ([^\]]*)")
Script = Callable[[ModelRequest], list[ToolCall]]


def run(command: str) -> list[ToolCall]:
    """A call that begins this command."""
    return calls(("run_in_background", {"command": command}))


def results(request: ModelRequest) -> list[str]:
    """The results in a request."""
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


def notices(request: ModelRequest) -> list[str]:
    """What the notices in a request tell, without the ids."""
    return [end for _, end in NOTICE.findall("\n".join(results(request)))]


def newest_job(request: ModelRequest) -> str:
    """The id of the job that was begun last."""
    return re.findall(r"\[Job ([0-9a-f]{8}) runs in the background\]", "\n".join(results(request)))[-1]


def check(seconds: float = 0) -> Script:
    """A check of the newest job, which may wait for its end."""
    return lambda asked: calls(("check", {"job": newest_job(asked), "wait_seconds": seconds}))


def stop(asked: ModelRequest) -> list[ToolCall]:
    """A stop of the newest job."""
    return calls(("stop", {"job": newest_job(asked)}))


def until_told(model: list[ScriptedModel]) -> Iterator[list[ToolCall]]:
    """Steps that list the jobs until a notice stands behind a result."""
    while not notices(model[0].requests[-1]):
        yield calls(("check", {}))


def scripted(*steps: Any) -> ScriptedModel:
    """A model that says these; in the place of None it looks at other things until an end was told."""
    made: list[ScriptedModel] = []

    def replies() -> Iterator[Any]:
        for step in steps:
            if step is None:
                yield from until_told(made)
            else:
                yield step

    made.append(ScriptedModel(replies()))
    return made[0]


def runner_of(model: ScriptedModel, place: Path, **more: Any) -> SyncRunner:
    """A runner of an agent with work in the background in that folder."""
    tools = [Background(workdir=place), *more.pop("tools", ())]
    agent = Agent(model, tools=tools, compaction=more.pop("compaction", Compaction()))
    return SyncRunner(agent, store=SQLiteStore(place / "s.db"), transcripts=None, **more)


def is_alive(place: Path) -> bool:
    """Whether the process lives whose id the file `pid` there holds."""
    try:
        os.kill(int((place / "pid").read_text()), 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{(place / 'pid').read_text().strip()}/status").read_text()


LASTING = "echo begun; echo $$ > pid.new; mv pid.new pid; exec sleep 300"


def begun_lasting() -> str:
    """Wait until the lasting command is there."""
    while not Path("pid").exists():
        time.sleep(0.01)
    return "begun"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_end_is_told_once_behind_the_next_result(tmp_path: Path) -> None:
    again = [calls(("check", {})), check(), "Done."]
    model = scripted(run("echo all is well; exit 3"), None, *again)
    with runner_of(model, tmp_path) as runner:
        assert runner.run("Do it.", session_id="s").output == "Done."
    command, way = "echo all is well; exit 3", "check shows what it printed"
    assert notices(model.requests[-1]) == [f"exit status 3 ({command}). {way}"]
    *_, listed, shown = results(model.requests[-1])
    assert "ended: exit status 3" in listed
    assert shown.splitlines()[1:] == ["all is well"]
    assert_valid(model.requests)


def test_an_end_that_was_waited_for_is_told_by_that_result_alone(tmp_path: Path) -> None:
    model = ScriptedModel([run("echo a"), check(60), calls(("check", {})), "Done."])
    with runner_of(model, tmp_path) as runner:
        runner.run("Do it.", session_id="s")
    _, shown, _ = results(model.requests[-1])
    assert re.fullmatch(r"\[Job [0-9a-f]{8} ended: exit status 0\] echo a\na", shown)
    assert notices(model.requests[-1]) == []


def test_of_a_job_that_runs_no_half_a_secret_is_shown(tmp_path: Path) -> None:
    Path("first").write_text("begun\nsk-proj-A1b2")
    Path("rest").write_text("C3d4" * 6 + "\n")
    command = "cat first; touch pid; while [ ! -e go ]; do sleep 0.02; done; cat rest"

    def let_go() -> str:
        """Let it print the rest."""
        Path("go").touch()
        return "gone on"

    waits = [calls(begun_lasting={}), check(0.2), calls(let_go={}), check(60)]
    model = ScriptedModel([run(command), *waits, "Done."])
    tools = [begun_lasting, let_go]
    with runner_of(model, tmp_path, tools=tools, redact=Secrets()) as runner:
        runner.run("Do it.", session_id="s")
    _, _, half, _, whole = (text.splitlines()[1:] for text in results(model.requests[-1]))
    assert half == ["begun"]
    assert whole == ["begun", "[redacted: OpenAI key]"]


def test_what_is_stopped_is_gone_and_told_by_that_result_alone(tmp_path: Path) -> None:
    model = ScriptedModel([run(LASTING), calls(begun_lasting={}), check(), stop, check(), "Done."])
    with runner_of(model, tmp_path, tools=[begun_lasting]) as runner:
        runner.run("Do it.", session_id="s")
    *_, shown, stopped, again = results(model.requests[-1])
    assert "is still running]" in shown
    assert shown.endswith("\nbegun")
    assert "ended: stopped]" in stopped
    assert "ended: stopped]" in again
    assert notices(model.requests[-1]) == []
    assert not is_alive(tmp_path)


def test_what_runs_at_the_end_is_stopped_and_said_and_the_next_run_hears_of_it(tmp_path: Path) -> None:
    model = ScriptedModel(
        [run(LASTING), calls(begun_lasting={}), "Done.", calls(begun_lasting={}), check(), "Yes."]
    )
    told: list[AnyStreamEvent] = []
    with runner_of(model, tmp_path, tools=[begun_lasting]) as runner:
        told += runner.stream("Do it.", session_id="s")
        assert not is_alive(tmp_path)
        assert [each.text for each in told if isinstance(each, ToolProgress)] == [
            f"[Job {newest_job(model.requests[-1])} ended: stopped, since its run ended] {LASTING}"
        ]
        runner.run("Does it run?", session_id="s")
    assert [each.partition(" (")[0] for each in notices(model.requests[-1])] == [
        "stopped, since its run ended"
    ]
    assert results(model.requests[-1])[-1].endswith("\nbegun")


async def test_a_cancelled_run_stops_its_jobs_and_the_run_that_goes_on_hears_of_it(tmp_path: Path) -> None:
    async def stay() -> None:
        """Never end."""
        await asyncio.to_thread(begun_lasting)
        cancelled.set()
        await asyncio.Event().wait()

    cancelled = asyncio.Event()
    model = ScriptedModel([run(LASTING), calls(stay={}), "Done."])
    agent = Agent(model, tools=[Background(workdir=tmp_path), stay])
    async with Runner(agent, transcripts=None) as runner:
        task = asyncio.create_task(runner.run("Do it.", session_id="s"))
        await cancelled.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not is_alive(tmp_path)
        await runner.resume("s")
    assert results(model.requests[-1])[-1].startswith(f"{INTERRUPTED}\n[Reminder: job ")
    assert len(notices(model.requests[-1])) == 1


KILLED = """
import os, sys, time
from pathlib import Path
from agentloop import Agent, Background, SyncRunner
from agentloop.testing import ScriptedModel, calls

def wait(asked):
    while not Path("pid").exists():
        time.sleep(0.01)
    print("begun", flush=True)
    time.sleep(300)

model = ScriptedModel([calls(("run_in_background", {"command": sys.argv[1]})), wait])
agent = Agent(model, tools=[Background(workdir=".")])
with SyncRunner(agent, store="sqlite:///s.db", transcripts=None) as runner:
    runner.run("Do it.", session_id="s")
"""


@pytest.mark.parametrize("is_killed", [True, False])
def test_another_process_goes_on_and_stops_what_nobody_waits_for(tmp_path: Path, is_killed: bool) -> None:
    with program(KILLED, LASTING, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == "begun\n"
        if is_killed:
            process.kill()
            process.wait()
        assert is_alive(tmp_path)
        model = ScriptedModel([calls(("check", {})), check(), "Done."])
        with runner_of(model, tmp_path, when_busy="take_over") as runner:
            runner.resume("s")
        process.kill()
    assert not is_alive(tmp_path)
    _, listed, shown = results(model.requests[-1])
    assert listed.startswith("[Jobs in the background]\n(none)\n[Reminder: ")
    assert [each.partition(",")[0] for each in notices(model.requests[-1])] == [
        "nobody waited for it any more"
    ]
    assert "the run that began it is over" in shown


def test_an_end_that_could_not_be_told_is_told_by_the_run_that_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel([run("echo a"), ModelUnavailableError("gone")])
    with runner_of(model, tmp_path) as runner, pytest.raises(ModelUnavailableError):
        runner.run("Do it.", session_id="s")
    other = ScriptedModel([calls(("check", {})), calls(("check", {})), "Done."])
    with runner_of(other, tmp_path) as runner:
        runner.resume("s")
        assert len(notices(other.requests[-1])) == 1
    third = ScriptedModel([calls(("check", {})), "Done."])
    with runner_of(third, tmp_path) as runner:
        runner.run("And?", session_id="s")
    assert len(notices(third.requests[-1])) == 1


def test_jobs_that_the_model_knows_no_end_of_stay_in_sight_over_compactions(tmp_path: Path) -> None:
    model = scripted(run("echo a"), LONG, LONG, "Here.", None, LONG, LONG, "There.")
    with runner_of(model, tmp_path, compaction=TWO_TURNS) as runner:
        for text in ("one", "two"):
            runner.run(text, session_id="s")
        assert runner.compact("s").status == "done"
        runner.run("three", session_id="s")
        texts = [str(each["content"]) for each in model.requests[-1].messages]
        [kept] = [text for text in texts if text.startswith(KEPT_IN_SIGHT)]
        assert re.search(r"\[Jobs in the background\]\n- [0-9a-f]{8}: echo a\n", kept)
        for text in ("four", "five"):
            runner.run(text, session_id="s")
        assert runner.compact("s").status == "done"
        runner.run("six", session_id="s")
    assert KEPT_IN_SIGHT not in str(model.requests[-1].messages)  # its end was told
    assert_valid(model.requests)


def test_what_has_no_room_in_sight_is_left_out_whole() -> None:
    said: list[SeenMessage] = []
    for name in ("first", "second", "third"):
        [call] = run(f"sleep {name}")
        job = Background(workdir=".")
        said += [SeenMessage(Message.assistant(None, [call]), False)]
        said += [SeenMessage(Message.tool(call.id, INTERRUPTED), False)]
    lines = job.pinned(said, lambda text: text.count("\n") < 3).splitlines()
    assert [line.rpartition(" ")[2] for line in lines[1:]] == ["third", "second"]
    assert job.pinned(said, lambda text: False) == ""


async def test_tools_of_the_agent_run_in_the_background_sub_agents_too() -> None:
    scout = Agent(ScriptedModel(["The door is green."])).as_tool("scout", "Finds.")

    async def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    def both(asked: ModelRequest) -> list[ToolCall]:
        jobs = re.findall(r"\[Job ([0-9a-f]{8}) runs", "\n".join(results(asked)))
        return calls(*(("check", {"job": job, "wait_seconds": 60}) for job in jobs))

    first = calls(
        ("run_in_background", {"tool": "scout", "arguments": {"task": "Look at the door."}}),
        ("run_in_background", {"tool": "fail", "arguments": {"why": "no light"}}),
        ("run_in_background", {"tool": "check"}),
    )
    model = ScriptedModel([first, both, "Done."])
    with pytest.raises(
        UsageError, match=r"^Background needs the agent's tool 'fail': it has scout, run_in_ba"
    ):
        Agent(model, tools=[scout, Background(agent_tools=["scout", "fail"])])
    agent = Agent(model, tools=[scout, fail, Background(agent_tools=["scout", "fail"])])
    async with Runner(agent, transcripts=None) as runner:
        result = await runner.run("Look.", session_id="s", limits=Limits(tokens=100_000))
        assert len(await runner.branches("s")) == 1
    assert result.usage.input_tokens > sum(10 for _ in model.requests)
    *_, refused, door, failed = results(model.requests[-1])
    assert "tool" in refused
    assert "ended: ok] scout(" in door
    assert door.endswith("\nThe door is green.")
    assert "ended: error] fail(" in failed
    assert "no light" in failed


def test_no_more_run_at_once_than_may_and_long_output_is_cut(tmp_path: Path) -> None:
    lasting = calls(*(("run_in_background", {"command": "sleep 300"}) for _ in range(3)))
    long = "yes abcdefg | head -c 3000000; echo the end"
    model = ScriptedModel([lasting, "Done.", run(long), check(60), "Done."])
    agent = Agent(model, tools=[Background(workdir=tmp_path, most_running=2)])
    with SyncRunner(agent, transcripts=None) as runner:
        runner.run("Do it.", session_id="s")
        refused = [each for each in results(model.requests[-1]) if "2 jobs are running" in each]
        assert len(refused) == 1
        runner.run("Do it.", session_id="s")
    shown = results(model.requests[-1])[-1]
    assert len(shown) < 100_000
    assert shown.rstrip().partition("\n[Reminder")[0].endswith("the end")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"command": " "}, "say what is to run"),
        ({"command": "ls", "tool": "look"}, "say what is to run"),
        ({"command": 7}, "command"),
        ({"tool": "look"}, "tool"),
        ({}, "say what is to run"),
    ],
)
def test_a_model_that_asks_for_nothing_is_told_so(given: dict[str, Any], why: str, tmp_path: Path) -> None:
    unknown = calls(("check", {"job": "0000"}), ("stop", {"job": ""}), ("check", {"wait_seconds": 9_999}))
    model = ScriptedModel([calls(("run_in_background", given)), unknown, "Done."])
    with runner_of(model, tmp_path) as runner:
        assert runner.run("Do it.", session_id="s").output == "Done."
    refused, *others = results(model.requests[-1])
    assert why in refused
    assert ["there is no job" in each for each in others] == [True, True, False]
    assert "600" in others[-1]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "nothing to run"),
        ({"workdir": "nowhere"}, "no working folder"),
        ({"workdir": ""}, "workdir must be the path of a folder"),
        ({"workdir": 7}, "workdir must be the path of a folder"),
        ({"agent_tools": "scout"}, "agent_tools must be a list of names"),
        ({"agent_tools": [7]}, "agent_tools must be a list of names"),
        ({"workdir": ".", "pass_env": "HOME"}, "pass_env must be a list of names"),
        ({"workdir": ".", "most_running": 0}, "most_running must be a whole number of at least 1"),
    ],
)
def test_bad_values_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Background(**given)
