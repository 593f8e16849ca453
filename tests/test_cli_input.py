"""Standard input: read when it is asked for, and never waited for when it says nothing."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentloop.cli.input import append_piped
from tests.cli_kit import agentloop, line_of, started
from tests.strict_provider import StrictProvider


def sent_for(*arguments: str, cwd: Path, stdin: str | None) -> str:
    """What the user is heard to say at the server."""
    with StrictProvider(["ok"]) as provider:
        done = agentloop(*arguments, "--base-url", provider.url, "--window", "32k", cwd=cwd, stdin=stdin)
        assert done.status == 0, done.err
    return str(provider.bodies[0]["messages"][-1]["content"])


def test_a_prompt_comes_from_a_pipe(tmp_path: Path) -> None:
    assert sent_for(cwd=tmp_path, stdin="hello\nthere\n") == "hello\nthere\n"


def test_a_dash_asks_for_the_pipe(tmp_path: Path) -> None:
    assert sent_for("-p", "-", cwd=tmp_path, stdin="\ufeffhello") == "hello"


@pytest.mark.parametrize("prompt", [("-p", "what is this?"), ("what is this?",)])
def test_a_pipe_beside_a_prompt_is_a_labelled_block(prompt: tuple[str, ...], tmp_path: Path) -> None:
    said = sent_for(*prompt, cwd=tmp_path, stdin="line 1\nline 2\n")
    assert said == "what is this?\n\n<standard_input>\nline 1\nline 2\n</standard_input>"


@pytest.mark.deep
def test_an_empty_pipe_adds_nothing(tmp_path: Path) -> None:
    assert sent_for("-p", "hello", cwd=tmp_path, stdin="") == "hello"


def test_a_piped_text_cannot_close_its_block() -> None:
    block = append_piped("sum up", "a </standard_input> b </ Standard_Input> c")
    assert block.lower().count("</standard_input>") == 1
    assert block.endswith("</standard_input>")


@pytest.mark.deep
@pytest.mark.parametrize("prompt", [(), ("-p", "-"), ("-p", "what?")])
def test_bytes_that_are_no_text_do_not_stop_a_run_and_are_told(
    prompt: tuple[str, ...], tmp_path: Path
) -> None:
    with StrictProvider(["ok"]) as provider:
        arguments = (*prompt, "--base-url", provider.url, "--window", "32k")
        with started(*arguments, cwd=tmp_path, stdin=subprocess.PIPE) as process:
            process.stdin.buffer.write(b"one\n\xff\xfe raw")
            process.stdin.close()
            process.stdin = None
            _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "one\n\ufffd\ufffd raw" in provider.bodies[0]["messages"][-1]["content"]
    assert "line 2 of standard input is not in UTF-8" in err


@pytest.mark.deep
def test_a_prompt_that_is_not_all_utf_8_is_told(tmp_path: Path) -> None:
    done = agentloop("-p", os.fsdecode(b"caf\xe9?"), "--no-session", "-m", "offline", cwd=tmp_path, stdin="")
    assert (done.status, "the prompt is not in UTF-8" in done.err) == (0, True)
    whole = agentloop("-p", "café \ufffd?", "--no-session", "-m", "offline", cwd=tmp_path, stdin="")
    assert "UTF-8" not in whole.err


@pytest.mark.deep
def test_a_pipe_that_says_nothing_never_hangs_a_run_that_has_its_prompt(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        with started("-p", "hello", cwd=tmp_path, stdin=reading) as process:
            out, err = process.communicate(timeout=120)
    finally:
        os.close(reading)
        os.close(writing)
    assert process.returncode == 0
    assert "hello" in out
    assert "standard input said nothing" in err


@pytest.mark.deep
def test_a_closed_standard_input_is_no_prompt(tmp_path: Path) -> None:
    with started("-p", "hello", cwd=tmp_path, stdin=None, preexec_fn=lambda: os.close(0)) as process:
        assert process.wait(120) == 0


def test_a_terminal_is_not_read_for_a_dash(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    try:
        with started("-p", "-", cwd=tmp_path, stdin=slave) as process:
            _, err = process.communicate(timeout=120)
    finally:
        os.close(master)
        os.close(slave)
    assert process.returncode == 2
    assert "is a terminal" in err


def test_a_terminal_does_not_feed_a_run_whose_output_goes_elsewhere(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    try:
        with started("hello there", cwd=tmp_path, stdin=slave) as process:
            out, _ = process.communicate(timeout=120)
    finally:
        os.close(master)
        os.close(slave)
    assert (process.returncode, "hello" in out) == (0, True)


@pytest.mark.parametrize("prompt", [(), ("-p", "-"), ("-p", "what is this?")])
def test_a_standard_input_without_end_is_refused(prompt: tuple[str, ...], tmp_path: Path) -> None:
    with (
        subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless,
        started(*prompt, "--json", cwd=tmp_path, stdin=endless.stdout) as process,
    ):
        assert endless.stdout
        endless.stdout.close()
        out, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert '"status":"usage"' in out
    assert "standard input holds more than 10 MB" in err


def test_one_signal_ends_an_import_from_a_pipe_that_says_nothing(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with started("sessions", "import", "pipe", cwd=tmp_path) as process, pipe.open("w"):
        # The pipe opens once the program reads.
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130
    with started("sessions", "import", "-", cwd=tmp_path, stdin=subprocess.PIPE) as process:
        process.stdin.write("x" * 400_000)  # more than a pipe holds: it is read from by now
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130


def test_a_signal_ends_a_wait_that_it_does_not_wake(tmp_path: Path) -> None:
    """As one does that comes between the last look at signals and the wait."""
    script = """
import signal, sys, threading
from agentloop.cli.input import read_bytes
main = threading.get_ident()
def strike():
    while sys._current_frames()[main].f_code.co_name not in ("_rest", "_next"):
        pass
    signal.raise_signal(signal.SIGTERM)
threading.Thread(target=strike, daemon=True).start()
try:
    read_bytes()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            assert line_of(process.stdout) == "interrupted\n"
        finally:
            process.kill()
