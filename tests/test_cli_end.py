"""How a run ends that is not left to end by itself: signals, readers that go away, full discs."""

import email
import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentloop.codec import decode
from agentloop.events import MessageRecord
from tests.cli_kit import agentloop, started
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Hang, Reply, asks_for_summary, calling

STUCK = (
    "import time\nfrom agentloop import tool\n"
    "@tool\ndef stuck() -> str:\n    '''Never ends.'''\n    time.sleep(600)\n    return ''\n"
    "@tool\ndef quick() -> str:\n    '''Ends.'''\n    return 'quick result'\n"
)


def messages_of(session: str, cwd: Path) -> list[Any]:
    """What the log of that session holds."""
    done = agentloop("sessions", "export", session, "--format", "events", cwd=cwd)
    assert done.status == 0, done.err
    events = [decode(line) for line in done.out.splitlines()]
    return [event.message for event in events if isinstance(event, MessageRecord)]


def until(process: Any, event_type: str) -> list[str]:
    """Read standard output up to the first event of that type, and return the lines."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if json.loads(line)["type"] == event_type:
            return lines
    raise AssertionError(f"no {event_type}: {process.stderr.read()}")


def ends_in(out: str) -> list[tuple[str, str]]:
    """What the stream says has ended, each with how; each start has its end, and the run's is the last."""
    events = [json.loads(line) for line in out.splitlines()]
    open_ids, ends = list[str](), list[tuple[str, str]]()
    for event in events:
        of_one = event.get("call_id") or event.get("compaction_id") or event.get("run_id")
        match event["type"].rpartition("_"):
            case "tool" | "compaction" | "run", _, "started":
                open_ids.append(of_one)
            case ("tool" | "compaction" | "run") as what, _, "ended":
                open_ids.remove(of_one)
                ends.append((what, event["status"]))
    assert open_ids == []
    assert events[-1]["type"] == "run_ended"
    return ends


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_model_thinks(number: signal.Signals, tmp_path: Path) -> None:
    thinking = threading.Event()

    def think(body: Body) -> Answered:
        thinking.set()
        return Hang()

    with StrictProvider(think) as provider:
        options = ("--base-url", provider.url, "--window", "32k", "--session", "s", "--json")
        with started("-p", "hello", *options, cwd=tmp_path) as process:
            assert thinking.wait(120)
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["status"] == "interrupted"
    assert "interrupted" in err
    assert "-r s" in err
    assert "Traceback" not in err
    assert [message.text for message in messages_of("s", tmp_path)] == ["hello"]


@pytest.mark.deep
def test_ctrl_c_while_a_tool_is_stuck_in_its_thread(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(STUCK)
    batch = Reply(calls=(calling("quick"), calling("stuck")))
    with StrictProvider([batch, "all done"]) as provider:
        options = ("--base-url", provider.url, "--window", "32k", "--tools", "slow", "--session", "s")
        with started("-p", "go", *options, "--json", cwd=tmp_path) as process:
            begun = "".join(until(process, "tool_ended"))
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=120)
        assert process.returncode == 130
        assert ends_in(begun + out) == [("tool", "ok"), ("tool", "interrupted"), ("run", "interrupted")]
        resumed = agentloop(*options, cwd=tmp_path)
    assert (resumed.status, resumed.out) == (0, "all done\n")
    results = {message["content"] for message in provider.bodies[-1]["messages"] if message["role"] == "tool"}
    assert "quick result" in results
    assert len(results) == 2
    assert provider.refusals == []


def test_ctrl_c_while_a_summary_is_written_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    summarising = threading.Event()

    def brain(body: Body) -> Answered | str:
        if asks_for_summary(body):
            summarising.set()
            return Hang()
        return Reply(text="words " * 700, calls=(calling("list_files"),))

    with StrictProvider(brain) as provider:
        options = ("--base-url", provider.url, "--window", "8k", "--session", "s")
        with started("-p", "go", *options, "--json", cwd=tmp_path) as process:
            begun = "".join(until(process, "compaction_started"))
            assert summarising.wait(120)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=120)
        assert process.returncode == 130
        assert ends_in(begun + out)[-2:] == [("compaction", "failed"), ("run", "interrupted")]
        summarising.clear()
        with started("compact", "s", *options[:4], cwd=tmp_path) as process:
            assert summarising.wait(120)
            process.send_signal(signal.SIGINT)
            told = process.communicate(timeout=120)
    assert process.returncode == 130
    assert told == ("", "agentloop: interrupted: session s is as it was\n")
    done = agentloop("sessions", "export", "s", "--format", "events", cwd=tmp_path)
    assert "compacted" not in {json.loads(line)["kind"] for line in done.out.splitlines()}


@pytest.mark.deep
def test_a_second_ctrl_c_ends_at_once_even_where_output_is_stuck(tmp_path: Path) -> None:
    with started("-p", "-", "--json", cwd=tmp_path, stdin=subprocess.PIPE) as process:
        process.stdin.write("x" * 400_000)
        process.stdin.close()
        assert "session" in process.stderr.readline() + process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130


@pytest.mark.deep
def test_a_reader_that_goes_away_ends_the_run_quietly_and_keeps_the_session(
    tmp_path: Path, chance: random.Random
) -> None:
    lines = chance.randrange(2, 200)
    with StrictProvider([Reply(text="words " * 20_000)]) as provider:
        options = ("--base-url", provider.url, "--window", "200k", "--json", "--session", "s")
        with started("-p", "hello", *options, cwd=tmp_path) as process:
            for _ in range(lines):
                process.stdout.readline()
            process.stdout.close()
            err = process.stderr.read()
            assert process.wait(120) == 130, f"after {lines} lines"
    assert "nobody reads" in err
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert "-r s" in err
    assert messages_of("s", tmp_path)[0].text == "hello"


@pytest.mark.deep
def test_a_reader_of_the_answer_that_goes_away(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with started("-p", "hello", "--session", "s", cwd=tmp_path, stdout=writing) as process:
        os.close(writing)
        assert process.wait(120) == 130
        assert "nobody reads" in process.stderr.read()
    again = agentloop("--session", "s", cwd=tmp_path)
    assert again.status == 0
    assert "hello" in again.out


def test_a_reader_of_standard_error_that_goes_away_changes_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with started("-p", "hello", cwd=tmp_path, stderr=writing) as process:
        os.close(writing)
        out, _ = process.communicate(timeout=120)
    assert (process.returncode, "hello" in out) == (0, True)


@pytest.mark.deep
def test_a_list_whose_reader_goes_away_is_quiet(tmp_path: Path) -> None:
    agentloop("-p", "hello", cwd=tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    with started("sessions", "list", cwd=tmp_path, stdout=writing) as process:
        os.close(writing)
        assert process.stderr.read() == ""
        assert process.wait(120) == 130


def _nonblocking() -> None:
    os.set_blocking(1, False)


@pytest.mark.parametrize("prepare", [None, _nonblocking], ids=["blocking", "non-blocking"])
@pytest.mark.deep
def test_a_slow_reader_gets_everything(prepare: Callable[[], None] | None, tmp_path: Path) -> None:
    long = "".join(f"{number:07d}\n" for number in range(60_000))
    with StrictProvider([Reply(text=long, piece_chars=100_000)]) as provider:
        options = ("--base-url", provider.url, "--window", "1m")
        with started("-p", "go", *options, cwd=tmp_path, preexec_fn=prepare) as process:
            pieces = []
            while piece := process.stdout.read(1_000):
                pieces.append(piece)
            assert process.wait(120) == 0
    assert "".join(pieces) == long


def test_a_full_disc_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full, started("-p", "hi", cwd=tmp_path, stdout=full) as process:
        err = process.stderr.read()
        assert process.wait(120) == 1
    assert "cannot be written" in err
    assert "-r" in err


def test_a_closed_standard_output_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with started("-p", "hi", cwd=tmp_path, stdout=None, preexec_fn=lambda: os.close(1)) as process:
        err = process.stderr.read()
        assert process.wait(120) == 2
    assert "standard output is closed" in err
    assert not (tmp_path / "agentloop").exists()


@pytest.mark.deep
def test_a_closed_standard_error_hides_the_progress_and_nothing_else(tmp_path: Path) -> None:
    with started("-p", "hi", cwd=tmp_path, stderr=None, preexec_fn=lambda: os.close(2)) as process:
        out, _ = process.communicate(timeout=120)
    assert (process.returncode, "hi" in out) == (0, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.deep
def test_stopped_anywhere_and_resumed_the_job_gets_done(
    number: signal.Signals, tmp_path: Path, chance: random.Random
) -> None:
    folder = Path(email.__file__).parent
    options = ("--workdir", str(folder), "--window", "8k", "--session", "s", "--json")
    job = "Read every Python file in this folder and say what each one does."
    lines = chance.randrange(1, 150)
    with started("-p", job, *options, cwd=tmp_path) as process:
        for _ in range(lines):
            process.stdout.readline()
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode in (-number, 130), f"after {lines} lines"
    resumed = agentloop(*options, cwd=tmp_path)
    assert resumed.status == 0, f"after {lines} lines: {resumed.err}"
    answer = resumed.events[-1]["output"]
    missing = [
        path.name for path in folder.rglob("*.py") if f"{path.relative_to(folder).as_posix()}: " not in answer
    ]
    assert missing == [], f"after {lines} lines"


BLOCKING = (
    "import time\nfrom agentloop import tool\n"
    "@tool\nasync def blocks() -> str:\n    '''Holds up everything.'''\n"
    "    print('blocking', flush=True)\n    time.sleep(600)\n    return ''\n"
)


def shown(process: Any, text: str) -> None:
    """Read standard error up to the line that holds that text."""
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"{text!r} was never shown")


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.deep
def test_a_second_signal_ends_what_a_tool_holds_up(second: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(BLOCKING)
    with StrictProvider([Reply(calls=(calling("blocks"),))]) as provider:
        options = ("--base-url", provider.url, "--window", "32k", "--tools", "slow")
        with started("-p", "go", *options, cwd=tmp_path) as process:
            shown(process, "blocking")
            process.send_signal(signal.SIGTERM)
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
                process.send_signal(second)
    assert process.returncode == 130


def test_a_pair_of_signals_from_a_closing_terminal_is_one_end(tmp_path: Path) -> None:
    thinking = threading.Event()

    def think(body: Body) -> Answered:
        thinking.set()
        return Hang()

    with StrictProvider(think) as provider:
        options = ("--base-url", provider.url, "--window", "32k", "--json")
        with started("-p", "hello", *options, cwd=tmp_path) as process:
            assert thinking.wait(120)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["status"] == "interrupted"


def full_pipe() -> tuple[int, int]:
    """A pipe that takes nothing more, and that nobody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    return reading, writing


@pytest.mark.deep
def test_a_standard_error_that_nobody_reads_holds_up_neither_a_run_nor_its_end(tmp_path: Path) -> None:
    reading, writing = full_pipe()
    with started("-p", "hello", cwd=tmp_path, stderr=writing) as process:
        out, _ = process.communicate(timeout=120)
        assert (process.returncode, "hello" in out) == (0, True)
    with started("-p", "-", cwd=tmp_path, stderr=writing, stdin=subprocess.PIPE) as process:
        process.stdin.write("x" * 400_000)  # more than a pipe holds: it is read from by now
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130
    os.close(reading)
    os.close(writing)


def test_a_second_signal_leaves_no_folder_behind(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(BLOCKING)
    (tmp_path / "temporary").mkdir()
    with StrictProvider([Reply(calls=(calling("blocks"),))]) as provider:
        options = ("--base-url", provider.url, "--window", "32k", "--tools", "slow", "--no-session")
        env = {"TMPDIR": str(tmp_path / "temporary")}
        with started("-p", "go", *options, cwd=tmp_path, env=env) as process:
            shown(process, "blocking")
            assert len(list((tmp_path / "temporary").iterdir())) == 1
            process.send_signal(signal.SIGINT)
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert list((tmp_path / "temporary").iterdir()) == []


UNSOUND: list[tuple[tuple[str, ...], dict[str, str]]] = [
    (("--json", "--max-steps", "0"), {}),
    (("--json", "--output-format", "xml"), {}),
    (("--json", "--no-such-option"), {}),
    (("--json",), {"AGENTLOOP_LOG": "foo"}),
    (("--json", "--workdir", "x" * 5000), {}),
    (("--output-format=stream-json", "--workdir", "~nosuch"), {}),
    (("--json", "--tools", "evil:thing"), {}),
    (("--json", "--callbacks", "evil:thing"), {}),
]


@pytest.mark.parametrize(("options", "env"), UNSOUND, ids=lambda value: str(value)[:40])
def test_json_lines_end_with_run_ended_whatever_is_wrong(
    options: tuple[str, ...], env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "evil.py").write_text("def __getattr__(name):\n    raise RuntimeError('no')\n")
    done = agentloop("-p", "hi", *options, cwd=tmp_path, env=env)
    (ended,) = done.events
    assert (ended["type"], ended["status"]) == ("run_ended", {1: "failed", 2: "usage"}[done.status])
    assert ended["error"]
    assert ended["error"] in done.complaint()


def test_one_json_object_tells_a_wrong_option_too(tmp_path: Path) -> None:
    done = agentloop("-p", "hi", "--output-format", "json", "--max-steps", "0", cwd=tmp_path)
    assert (done.status, json.loads(done.out)["status"]) == (2, "usage")


def test_an_option_that_only_looks_like_json_asks_for_none(tmp_path: Path) -> None:
    assert agentloop("--system", "--json", "-p", "hi", "--max-steps", "0", cwd=tmp_path).out == ""
    assert agentloop("sessions", "list", "--json", "--frobnicate", cwd=tmp_path).out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_standard_input_is_read(number: signal.Signals, tmp_path: Path) -> None:
    with started("-p", "-", "--json", cwd=tmp_path, stdin=subprocess.PIPE) as process:
        process.stdin.write("x" * 400_000)  # more than a pipe holds: it is read from by now
        process.stdin.flush()
        process.send_signal(number)
        out = process.stdout.read()
        assert process.wait(120) == 130
    (ended,) = map(json.loads, out.splitlines())
    assert (ended["type"], ended["status"]) == ("run_ended", "interrupted")


STRUCK = {
    "while it runs a text": "exec('os.kill(os.getpid(), signal.SIGINT)')",
    "while it makes a class": (
        "class Named:\n    def __set_name__(self, *_):\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "class Owner:\n    named = Named()\n"
    ),
}


@pytest.mark.deep
@pytest.mark.parametrize("text", STRUCK.values(), ids=STRUCK.keys())
@pytest.mark.parametrize("options", [("--json",), ()], ids=["JSON", "text"])
def test_a_signal_that_strikes_an_import_ends_with_its_status(
    text: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "struck.py").write_text(f"import os, signal\n{text}\n")
    with started("-p", "Go", "--tools", "struck", *options, cwd=tmp_path) as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["interrupted"] * len(options)


def test_what_tools_have_registered_for_the_end_is_done(tmp_path: Path) -> None:
    (tmp_path / "tidy.py").write_text(
        "import atexit\nfrom agentloop import tool\natexit.register(print, 'tidied')\n"
        "@tool\ndef quick() -> str:\n    '''Ends.'''\n    return ''\n"
    )
    with started("-p", "Go", "--tools", "tidy", cwd=tmp_path) as process:
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err.count("tidied")) == (0, 1), err


@pytest.mark.parametrize("arguments", [("demo",), ("lessons",)])
def test_a_command_whose_reader_goes_away(arguments: tuple[str, ...], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with started(*arguments, cwd=tmp_path, stdout=writing) as process:
        os.close(writing)
        assert process.stderr.read() == ""
        assert process.wait(120) == 130


@pytest.mark.deep
@pytest.mark.parametrize("columns", ["0", "²", "-3", "many", "9" * 5000])
def test_a_width_that_is_none_is_not_believed(columns: str, tmp_path: Path) -> None:
    done = agentloop("demo", cwd=tmp_path, env={"COLUMNS": columns})
    assert (done.status, done.err) == (0, "")
    assert "OVERFLOW" in done.out


def test_a_certificate_file_that_is_not_there_is_no_fault_of_standard_output(tmp_path: Path) -> None:
    env = {"SSL_CERT_FILE": "/no/such/file"}
    done = agentloop("-p", "hi", "--base-url", "https://localhost:1", "--json", cwd=tmp_path, env=env)
    assert (done.status, done.events[-1]["status"]) == (2, "usage")
    assert "SSL_CERT_FILE" in done.events[-1]["error"]
