"""`submit`, `worker` and `runs`: prompts in a queue, worked off by processes of their own."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli_kit import LONGEST_SECONDS, ROOT, Finished, agentloop, started
from tests.postgres_kit import Server


@pytest.fixture(scope="module")
def url(postgres: Server) -> Iterator[str]:
    """One database for all calls here."""
    with postgres.database() as url:
        yield url


def done(*arguments: str, cwd: Path, url: str) -> Finished:
    """A call on the queue that must do."""
    finished = agentloop(*arguments, "--store", url, cwd=cwd)
    assert finished.status == 0, finished.err
    return finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What one worker of the offline model said, and what was said of the runs that it did."""

    status: int
    out: str
    err: str
    run_id: str
    queued: Mapping[str, Any]
    waited: str
    narrow: Mapping[str, Any]


@pytest.fixture(scope="module")
def worked(url: str, tmp_path_factory: pytest.TempPathFactory) -> Worked:
    """One worker for all tests here, told to stop when its runs are done: to start one takes seconds."""
    cwd = tmp_path_factory.mktemp("worked")
    run_id = done("submit", "Hello there", "--session", "first", cwd=cwd, url=url).out.strip()
    queued = json.loads(done("runs", run_id, "--json", cwd=cwd, url=url).out)
    options = ("--queue", "agentloop", "--queue", "narrow:3", "--concurrency", "2", "--rate", "50/10")
    arguments = ("worker", "-m", "offline", "--store", url, "--system", "Be brief.", *options)
    with started(*arguments, cwd=cwd) as worker:
        waited = done("submit", "And again", "--session", "first", "--wait", cwd=cwd, url=url)
        narrow = done("submit", "Hi", "--queue", "narrow", "--wait", "--json", cwd=cwd, url=url)
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=LONGEST_SECONDS)
    return Worked(
        status=worker.returncode,
        out=out,
        err=err,
        run_id=run_id,
        queued=queued,
        waited=waited.out,
        narrow=json.loads(narrow.out),
    )


def test_a_prompt_is_put_in_the_queue_worked_off_and_shown(worked: Worked, url: str, tmp_path: Path) -> None:
    queued, run_id = worked.queued, worked.run_id
    assert (queued["state"], queued["tries"], queued["output"]) == ("queued", 0, "")
    assert (worked.status, worked.out) == (0, "")
    assert "waits for runs" in worked.err
    assert "stopped: its runs are handed back" in worked.err
    assert f"run {run_id} answered" in worked.err
    assert "And again" in worked.waited
    shown = done("runs", run_id, cwd=tmp_path, url=url).out
    assert "state: answered" in shown
    assert "last step: end" in shown
    assert "Hello there" in shown
    rows = done("runs", "--session", "first", cwd=tmp_path, url=url).out.splitlines()
    assert [row.split("\t")[1:3] for row in rows] == [["answered", "first"]] * 2
    listed = json.loads(done("runs", "--json", "--limit", "1", cwd=tmp_path, url=url).out)
    assert len(listed) == 1
    kept = agentloop("sessions", "show", "first", "--store", url, cwd=tmp_path)
    assert "And again" in kept.out


def test_a_run_is_cancelled_and_put_back(url: str, tmp_path: Path) -> None:
    order = json.loads(done("submit", "Later", "--queue", "later", "--json", cwd=tmp_path, url=url).out)
    assert order["queue"] == "later"
    cancelled = json.loads(done("runs", "cancel", order["run_id"], "--json", cwd=tmp_path, url=url).out)
    assert cancelled["state"] == "cancelled"
    assert done("runs", "resume", order["run_id"], cwd=tmp_path, url=url).out.split("\t")[1] == "queued"
    kept = agentloop("runs", "delete", order["run_id"], "--store", url, cwd=tmp_path)
    assert (kept.status, "cancel it first" in kept.complaint()) == (2, True)
    assert done("runs", "cancel", order["run_id"], cwd=tmp_path, url=url).out.split("\t")[1] == "cancelled"
    done("runs", "delete", order["run_id"], cwd=tmp_path, url=url)
    assert agentloop("runs", order["run_id"], "--store", url, cwd=tmp_path).status == 2


def test_the_numbers_of_a_worker_reach_its_queue_and_its_runs_the_agent(worked: Worked, url: str) -> None:
    assert (worked.narrow["state"], worked.narrow["queue"]) == ("answered", "narrow")
    assert worked.narrow["output"]
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT concurrency, worker_concurrency, rate_limit_max, rate_limit_period_sec"
            " FROM dbos.queues WHERE name = 'narrow'"
        ).fetchone()
    assert row == (3, 2, 50, 10.0)


def test_a_secret_in_a_prompt_never_reaches_the_queue(url: str, tmp_path: Path) -> None:
    key = "sk-proj-" + "a1B2" * 12
    run_id = done("submit", f"My key is {key}", "--queue", "secret", cwd=tmp_path, url=url).out.strip()
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'dbos'").fetchall()
        stored = [str(connection.execute(f"SELECT * FROM dbos.{name}").fetchall()) for (name,) in names]
    assert any("My key is" in table for table in stored)
    assert not any(key in table for table in stored)
    done("runs", "cancel", run_id, cwd=tmp_path, url=url)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "x", "--store", "memory:"), "durable runs need a PostgreSQL store, not 'memory'"),
        (("submit", "x"), "durable runs need a PostgreSQL store, not 'sqlite'"),
        (("runs",), "durable runs need a PostgreSQL store"),
        (("worker", "-m", "offline"), "durable runs need a PostgreSQL store"),
        (("submit", "", "--store", "postgresql://h/d"), "the prompt is empty"),
        (("submit", "x", "y", "--store", "postgresql://h/d"), "too many"),
        (("submit", "x", "--session", "../x", "--store", "postgresql://h/d"), "bad session id"),
        (("submit", "x", "--queue", "a b", "--store", "postgresql://h/d"), "bad queue"),
        (("worker", "-m", "offline", "--queue", "a:0", "--store", "postgresql://h/d"), "--queue: 'a:0'"),
        (("worker", "-m", "offline", "--queue", "a:b", "--store", "postgresql://h/d"), "--queue: 'a:b'"),
        (("worker", "-m", "offline", "--rate", "fast", "--store", "postgresql://h/d"), "--rate: 'fast'"),
        (("worker", "-m", "offline", "--owner", "ann", "--store", "postgresql://h/d"), "--owner is nothing"),
        (("worker", "--concurrency", "0", "--store", "postgresql://h/d"), "--concurrency"),
        (("worker", "--concurrency", "9" * 20, "--store", "postgresql://h/d"), "--concurrency"),
        (
            ("worker", "-m", "offline", "--queue", "a:" + "9" * 20, "--store", "postgresql://h/d"),
            "--queue: 'a:9",
        ),
        (
            ("worker", "-m", "offline", "--queue", "a", "--queue", "a:3", "--store", "postgresql://h/d"),
            "queue 'a' is named twice, with other limits",
        ),
        (("runs", "--all", "--limit", "3", "--store", "postgresql://h/d"), "--all and --limit"),
        (("runs", "stop", "x", "--store", "postgresql://h/d"), "runs cancel ID"),
        (("runs", "cancel", "--store", "postgresql://h/d"), "runs cancel ID"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    finished = agentloop(*arguments, cwd=tmp_path)
    assert (finished.status, finished.out) == (2, "")
    assert words in finished.complaint()


def test_an_unknown_run_is_a_fault_of_the_call(url: str, tmp_path: Path) -> None:
    for verb in ((), ("cancel",), ("resume",)):
        finished = agentloop("runs", *verb, "nope", "--store", url, cwd=tmp_path)
        assert finished.status == 2
        assert "there is no run 'nope'" in finished.complaint()


def test_a_database_that_is_away_is_said_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://me:very-secret@127.0.0.1:1/x"
    for call in (("runs",), ("submit", "x"), ("worker", "-m", "offline")):
        finished = agentloop(*call, "--store", url, cwd=tmp_path)
        assert finished.status == 1
        assert "very-secret" not in finished.err
        assert "refused" in finished.err
        assert "waits for runs" not in finished.err


def test_without_the_extra_each_command_says_which_it_needs(tmp_path: Path) -> None:
    (tmp_path / "dbos.py").write_text("raise ImportError('no such library')\n")
    env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    for call in (("runs",), ("submit", "x"), ("worker",)):
        finished = agentloop(*call, "--store", "postgresql://h/d", cwd=tmp_path, env=env, stdin="")
        assert (finished.status, finished.out) == (2, "")
        assert finished.complaint() == (
            "agentloop: durable runs need the extra 'durable': install agentloop-kit[durable]"
        )
