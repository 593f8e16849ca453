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

from agentloop.durable import RunQueue
from agentloop.extras import installing
from tests.cli_kit import LONGEST_SECONDS, ROOT, Finished, agentloop, line_of, started, terminal
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
    refused: str


@pytest.fixture(scope="module")
def worked(url: str, tmp_path_factory: pytest.TempPathFactory) -> Worked:
    """One worker for all tests here, told to stop when its runs are done: to start one takes seconds."""
    cwd = tmp_path_factory.mktemp("worked")
    run_id = done("submit", "Hello there", "--session", "first", "--ttl", "30d", cwd=cwd, url=url).out.strip()
    queued = json.loads(done("runs", run_id, "--json", cwd=cwd, url=url).out)
    bobs = ("submit", "Hi", "--session", "taken", "--owner", "bob")
    refused = done(*bobs, cwd=cwd, url=url).out.strip()
    anns = ("-p", "Hi", "--session", "taken", "--owner", "ann", "-m", "offline")
    done(*anns, cwd=cwd, url=url)
    options = ("--queue", "agentloop", "--queue", "narrow:3", "--concurrency", "2", "--rate", "50/10")
    arguments = ("worker", "-m", "offline", "--store", url, "--system", "Be brief.", *options)
    with started(*arguments, cwd=cwd) as worker:
        waited = done("submit", "And again", "--session", "first", "--wait", cwd=cwd, url=url)
        call = ("submit", "Hi", "--queue", "narrow", "--wait", "--json", "--store", url)
        done("submit", "Hi", "--session", "taken", "--owner", "ann", "--wait", cwd=cwd, url=url)
        narrow = agentloop(*call, cwd=cwd, env={"AGENTLOOP_TTL": "7d"})
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
        refused=refused,
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
    heading, *rows = done("runs", "--session", "first", cwd=tmp_path, url=url).out.splitlines()
    shown = [dict(zip(heading.split("\t"), row.split("\t"), strict=True)) for row in rows]
    assert [(row["state"], row["session"], row["queue"]) for row in shown] == [
        ("answered", "first", "agentloop")
    ] * 2
    assert [row["prompt"] for row in shown] == ["And again", "Hello there"]
    listed = json.loads(done("runs", "--json", "--limit", "1", cwd=tmp_path, url=url).out)
    assert len(listed) == 1
    kept = agentloop("sessions", "show", "first", "--store", url, cwd=tmp_path)
    assert "And again" in kept.out


def test_a_worker_says_of_a_run_that_cannot_begin_how_it_ended(worked: Worked) -> None:
    assert f"run {worked.refused} usage: session id 'taken' is taken" in worked.err


@pytest.mark.deep
def test_a_run_is_cancelled_and_put_back(url: str, tmp_path: Path) -> None:
    order = json.loads(done("submit", "Later", "--queue", "later", "--json", cwd=tmp_path, url=url).out)
    assert (order["queue"], order["run_id"]) == ("later", order["id"])
    cancelled = json.loads(done("runs", "cancel", order["id"], "--json", cwd=tmp_path, url=url).out)
    assert cancelled["state"] == "cancelled"
    assert done("runs", "resume", order["id"], cwd=tmp_path, url=url).out.split("\t")[1] == "queued"
    kept = agentloop("runs", "delete", order["id"], "--store", url, cwd=tmp_path)
    assert (kept.status, "cancel it first" in kept.complaint()) == (2, True)
    assert done("runs", "cancel", order["id"], cwd=tmp_path, url=url).out.split("\t")[1] == "cancelled"
    done("runs", "delete", order["id"], cwd=tmp_path, url=url)
    assert agentloop("runs", order["id"], "--store", url, cwd=tmp_path).status == 2


@pytest.mark.deep
def test_a_list_in_a_terminal_has_its_columns_one_under_the_other(url: str, tmp_path: Path) -> None:
    queue = ("--queue", "shown", "--session", "shown")
    done("submit", "日本語 and a\nsecond line", *queue, cwd=tmp_path, url=url)
    done("submit", "x" * 200, *queue, cwd=tmp_path, url=url)
    with terminal("runs", "--session", "shown", "--store", url, cwd=tmp_path) as screen:
        assert screen.end() == 0
    heading, long, wide = [line for line in screen.screen.splitlines() if "shown" in line or "run " in line]
    assert long.index("shown") == wide.index("shown") == heading.index("session")
    assert long.index("xxx") == wide.index("日本語 and a second line") == heading.index("prompt")
    assert "x" * 59 + "…" in long


@pytest.mark.parametrize("prompt", ["half \ud83d", "nothing \0 here"])
async def test_the_queue_shows_the_beginning_of_whatever_was_said(prompt: str, url: str) -> None:
    async with RunQueue(url) as queue:
        run_id = await queue.submit(prompt, queue="odd")
        shown = (await queue.run(run_id)).prompt
        await queue.cancel(run_id)
    assert shown.startswith(prompt.partition(" ")[0])


def test_a_submitted_session_has_its_time_to_live(worked: Worked, url: str, tmp_path: Path) -> None:
    listed = done("sessions", "list", "--all", "--json", cwd=tmp_path, url=url).out
    lives = {session["id"]: session["ttl_seconds"] for session in json.loads(listed)}
    assert (lives["first"], lives[worked.narrow["session_id"]]) == (30 * 86_400, 7 * 86_400)


@pytest.mark.deep
def test_a_wait_that_is_broken_off_says_that_the_run_stays(url: str, tmp_path: Path) -> None:
    call = ("submit", "Hi", "--queue", "nobodys", "--wait", "--json", "--store", url)
    with started(*call, cwd=tmp_path) as waiting:
        run_id = line_of(waiting.stderr).split()[2]
        waiting.send_signal(signal.SIGTERM)
        out, err = waiting.communicate(timeout=LONGEST_SECONDS)
    assert waiting.returncode == 130
    assert f"run {run_id} stays in the queue: `agentloop runs {run_id}` shows it" in err
    assert json.loads(out) == json.loads(done("runs", run_id, "--json", cwd=tmp_path, url=url).out)


@pytest.mark.deep
def test_a_wait_whose_database_goes_away_says_that_the_run_stays(postgres: Server, tmp_path: Path) -> None:
    with postgres.database() as url:
        with started("submit", "Hi", "--wait", "--store", url, cwd=tmp_path) as waiting:
            run_id = line_of(waiting.stderr).split()[2]
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("ALTER TABLE dbos.workflow_status RENAME TO gone")
            _, err = waiting.communicate(timeout=LONGEST_SECONDS)
        assert waiting.returncode == 1
        assert err.count(f"run {run_id} stays in the queue: `agentloop runs {run_id}` shows it") == 1


@pytest.mark.deep
def test_a_wait_for_a_run_that_is_cancelled_says_so(url: str, tmp_path: Path) -> None:
    with started("submit", "Hi", "--queue", "nobodys", "--wait", "--store", url, cwd=tmp_path) as waiting:
        run_id = line_of(waiting.stderr).split()[2]
        done("runs", "cancel", run_id, cwd=tmp_path, url=url)
        _, err = waiting.communicate(timeout=LONGEST_SECONDS)
    assert waiting.returncode == 130
    assert f"run {run_id} was cancelled: `agentloop runs resume {run_id}`" in err


def test_the_numbers_of_a_worker_reach_its_queue_and_its_runs_the_agent(worked: Worked, url: str) -> None:
    assert (worked.narrow["state"], worked.narrow["queue"]) == ("answered", "narrow")
    assert worked.narrow["output"]
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT concurrency, worker_concurrency, rate_limit_max, rate_limit_period_sec"
            " FROM dbos.queues WHERE name = 'narrow'"
        ).fetchone()
    assert row == (3, 2, 50, 10.0)


@pytest.mark.deep
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
        (("submit", "x", "--queue", "a b", "--store", "postgresql://h/d"), "queue must be a name"),
        (
            ("worker", "-m", "offline", "--queue", "a:0", "--store", "postgresql://h/d"),
            "--queue NAME:N: '0' is no",
        ),
        (
            (
                "worker",
                "-m",
                "offline",
                "--queue",
                "a:" + "1".zfill(20) + "9" * 5_000,
                "--store",
                "postgresql://h/d",
            ),
            "--queue NAME:N: '00000000000000000001999",
        ),
        (
            ("worker", "-m", "offline", "--queue", "a:b", "--store", "postgresql://h/d"),
            "--queue NAME:N: 'b' is no",
        ),
        (("worker", "-m", "offline", "--rate", "fast", "--store", "postgresql://h/d"), "--rate: 'fast'"),
        (
            ("worker", "-m", "offline", "--owner", "ann", "--store", "postgresql://h/d"),
            "no such option '--owner': ",
        ),
        (("worker", "--concurrency", "0", "--store", "postgresql://h/d"), "--concurrency"),
        (("worker", "--concurrency", "9" * 20, "--store", "postgresql://h/d"), "is more than"),
        (
            ("worker", "-m", "offline", "--queue", "a:" + "9" * 20, "--store", "postgresql://h/d"),
            "--queue NAME:N: '99999999999999999999' is more than 2,147,483,647",
        ),
        (
            ("worker", "-m", "offline", "--queue", "a", "--queue", "a:3", "--store", "postgresql://h/d"),
            "queue 'a' is named twice, with other limits",
        ),
        (("runs", "--all", "--limit", "3", "--store", "postgresql://h/d"), "--all and --limit"),
        (("runs", "x", "--session", "s", "--store", "postgresql://h/d"), "--session, --limit and --all"),
        (("runs", "cancel", "x", "--limit", "3", "--store", "postgresql://h/d"), "--session, --limit and"),
        (("runs", "delete", "x", "--all", "--store", "postgresql://h/d"), "--session, --limit and --all"),
        (("runs", "stop", "x", "--store", "postgresql://h/d"), "runs cancel ID"),
        (("runs", "cancel", "--store", "postgresql://h/d"), "runs cancel ID"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    finished = agentloop(*arguments, cwd=tmp_path)
    assert (finished.status, finished.out) == (2, "")
    assert words in finished.complaint()


@pytest.mark.deep
def test_an_unknown_run_is_a_fault_of_the_call(url: str, tmp_path: Path) -> None:
    for verb in ((), ("cancel",), ("resume",)):
        finished = agentloop("runs", *verb, "nope", "--store", url, cwd=tmp_path)
        assert finished.status == 2
        assert "there is no run 'nope'" in finished.complaint()


@pytest.mark.deep
def test_a_database_that_is_away_is_said_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://me:very-secret@127.0.0.1:1/x"
    for call in (("runs",), ("submit", "x"), ("worker", "-m", "offline")):
        finished = agentloop(*call, "--store", url, cwd=tmp_path)
        assert finished.status == 1
        assert "very-secret" not in finished.err
        assert "refused" in finished.err
        assert "check the address, and that the server runs" in finished.err
        assert "waits for runs" not in finished.err


@pytest.mark.deep
def test_without_the_extra_each_command_says_which_it_needs(tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "dbos.py").write_text("raise ImportError('no such library')\n")
    env = {"PYTHONPATH": f"{tmp_path / 'beside'}{os.pathsep}{ROOT}"}
    for call in (("runs",), ("submit", "x"), ("worker",)):
        finished = agentloop(*call, "--store", "postgresql://h/d", cwd=tmp_path, env=env, stdin="")
        assert (finished.status, finished.out) == (2, "")
        assert finished.complaint() == (
            f"agentloop: durable runs need the extra 'durable': {installing('durable')}"
        )
