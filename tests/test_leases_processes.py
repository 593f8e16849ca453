"""One run at a time works on a session, in processes of their own: a crash lets go, the command line too."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentloop._plumbing.processes import this_process
from agentloop.errors import SessionBusyError
from agentloop.events import RunStartRecord
from agentloop.stores import SQLiteStore
from tests.cli_kit import LONGEST_SECONDS, agentloop, line_of, started
from tests.kit import assert_valid
from tests.leases_kit import log, runner_for

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parent.parent


CHILD = """
    import asyncio, sys
    from pathlib import Path
    from agentloop import Agent, Leases, Runner
    from agentloop.testing.models import ScriptedModel, calls

    async def hang() -> str:
        '''Hang.'''
        print("inside", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        return "came loose"

    model = ScriptedModel([calls(hang={}), "never"])
    runner = Runner(
        Agent(model, tools=[hang]), store=sys.argv[1], transcripts=None,
        when_busy=Leases(seconds=float(sys.argv[2])),
    )
    try:
        asyncio.run(runner.run("Go", session_id="s"))
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


@contextmanager
def child(folder: Path, seconds: float = 600.0) -> Iterator["subprocess.Popen[str]"]:
    """A process whose run on session `s` is in its tool."""
    script = folder / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    arguments = [sys.executable, str(script), f"sqlite:///{folder}/s.db", str(seconds)]
    with subprocess.Popen(arguments, cwd=ROOT, **pipes) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "inside\n"
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def stop_between_writes(process: "subprocess.Popen[str]", database: Path) -> None:
    """Stop the process while it writes nothing, or it would keep the database locked for as long."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=20)) as other:
        other.execute("BEGIN IMMEDIATE")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        other.execute("ROLLBACK")


@pytest.mark.parametrize("collected", [True, False])
async def test_l7_a_killed_process_holds_nothing_and_a_live_one_is_not_put_out(
    tmp_path: Path, collected: bool
) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    with child(tmp_path) as process:
        with pytest.raises(SessionBusyError, match=f"process {process.pid} on"):
            await runner_for(["never"], store=store).run("Me too", session_id="s")
        process.kill()
        if collected:
            await asyncio.to_thread(process.wait)
        else:
            await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        runner = runner_for(["went on"], store=store)
        assert (await runner.resume("s")).output == "went on"
    assert_valid(runner.agent.model.requests)  # type: ignore[attr-defined]
    assert [type(event) for event in await log(store)].count(RunStartRecord) == 2
    await store.close()


async def test_a_process_stopped_for_longer_than_its_lease_overwrites_nothing(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    with child(tmp_path, seconds=0.5) as process:
        stop_between_writes(process, tmp_path / "s.db")
        second = runner_for(["second"], store=store, when_busy="wait")
        assert (await second.run("Me too", session_id="s")).output == "second"
        after = await log(store)
        process.send_signal(signal.SIGCONT)
        assert process.stdin
        assert process.stdout
        process.stdin.write("\n")
        process.stdin.flush()
        assert await asyncio.to_thread(process.stdout.readline) == "TakenOverError\n"
    assert await log(store) == after
    await store.close()


def test_a_process_is_gone_only_where_that_is_known() -> None:
    here = this_process()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        alive = replace(here, pid=process.pid, started="")
        later = replace(alive, started=here.started)
        assert not here.is_gone()
        assert not alive.is_gone()
        assert not replace(here, pid=1, started="").is_gone()
        assert later.is_gone(), "another process has its id now"
        assert not replace(later, place="elsewhere").is_gone()
        process.kill()
    assert alive.is_gone()
    assert not replace(alive, place=f"{here.host} other").is_gone()
    assert not replace(here, pid=0).is_gone()


def call(folder: Path) -> tuple[str, ...]:
    """A call of the program that runs on session `s`."""
    return ("--store", f"sqlite:///{folder}/s.db", "-m", "offline", "--session", "s", "-p", "Hello")


def test_the_command_line_is_refused(tmp_path: Path) -> None:
    with child(tmp_path) as process:
        done = agentloop(*call(tmp_path), cwd=tmp_path)
    assert (done.status, done.out) == (75, "")
    assert f"session 's' is busy: process {process.pid} on" in done.complaint()


def test_the_command_line_takes_over(tmp_path: Path) -> None:
    with child(tmp_path):
        done = agentloop(*call(tmp_path), "--when-busy", "take-over", cwd=tmp_path)
    assert done.status == 0, done.err
    assert "waiting for the session" not in done.err


def test_the_command_line_waits_says_so_once_and_goes_on_when_the_other_has_ended(tmp_path: Path) -> None:
    rule = {"AGENTLOOP_WHEN_BUSY": "wait"}
    with child(tmp_path) as process, started(*call(tmp_path), cwd=tmp_path, env=rule) as waiting:
        assert f"waiting for the session: process {process.pid} on" in line_of(waiting.stderr)
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        out, err = waiting.communicate(timeout=LONGEST_SECONDS)
    assert (waiting.returncode, "waiting for the session" in err) == (0, False), err
    assert "Hello" in out


def test_a_rule_that_the_command_line_does_not_know_is_wrong_usage(tmp_path: Path) -> None:
    done = agentloop("-p", "Hello", "-m", "offline", "--when-busy", "fight", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "--when-busy: 'fight' is no rule: use refuse, wait or take-over" in done.complaint()
