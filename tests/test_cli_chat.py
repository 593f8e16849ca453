"""The chat and the live progress, in a real terminal."""

import email
import json
import re
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

from agentloop.cli.chat import HELP
from tests.cli_kit import Terminal, agentloop, terminal
from tests.media_kit import png
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, Drop, Fault, Hang, Reply, calling

READY = "\x1b[?2004h"
"""What a terminal is told when the prompt line is open."""

ENDING = ("/quit", "/exit")


def say(screen: Terminal, text: str, answer: str) -> None:
    """Wait for the prompt line, say it, and wait for the answer."""
    screen.wait_for(READY)
    screen.type(f"{text}\n")
    screen.wait_for(answer)


def test_a_talk_from_the_first_message_to_its_end(tmp_path: Path) -> None:
    with StrictProvider([Reply(text="answer one"), Reply(text="answer two")]) as provider:
        options = ("--base-url", provider.url, "--window", "32k", "--session", "talk")
        with terminal("first question", *options, cwd=tmp_path) as screen:
            screen.wait_for("answer one")
            screen.wait_for("/32k")
            say(screen, "second question", "answer two")
            say(screen, "/status", "0 compactions")
            screen.wait_for(READY)
            screen.type("\x04")
            assert screen.end() == 0
        assert "-r talk" in screen.screen
    said = [message["content"] for message in provider.bodies[-1]["messages"] if message["role"] == "user"]
    assert said == ["first question", "second question"]
    assert agentloop("-p", "x", "-r", "talk", "-m", "offline", cwd=tmp_path).status == 0


def test_commands_of_the_chat(tmp_path: Path) -> None:
    with terminal("-m", "offline", "--no-session", cwd=tmp_path) as screen:
        say(screen, "/help", "/undo")
        say(screen, "/undo", "there is no session")
        say(screen, "/frobnicate", "no command /frobnicate: /help lists them")
        say(screen, "/hlep", "did you mean /help?")
        for alone in ("undo 2", "status now", "quit smoking"):
            say(screen, f"/{alone}", f"/{alone.split()[0]} takes nothing behind it: write it alone")
        say(screen, "/rewnd", "did you mean /rewind?")
        say(screen, "?", "/undo")
        say(screen, "hello", "hello")
        say(screen, "/undo", "no compaction")
        say(screen, "/rewind", "/undo gives it back")
        say(screen, "/undo", "taken back: rewind")
        screen.wait_for(READY)
        screen.type("/quit\n")
        assert screen.end() == 0


def test_no_session_is_named_where_nothing_was_stored(tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    shot.write_bytes(png(16, 16))
    with terminal("-m", "offline", cwd=tmp_path) as screen:
        say(screen, f"What is {shot}?", "offline takes no images")
        screen.wait_for(READY)
        screen.type("/quit\n")
        assert screen.end() == 0
    assert "go on with" not in screen.screen
    assert agentloop("sessions", "list", cwd=tmp_path).out == ""


@pytest.mark.deep
@pytest.mark.parametrize("word", re.findall(r"^/[a-z]+", HELP, re.MULTILINE))
def test_each_command_may_be_the_first_word_of_a_new_chat(word: str, tmp_path: Path) -> None:
    with terminal("-m", "offline", "--no-session", cwd=tmp_path) as screen:
        screen.wait_for(READY)
        screen.type(f"{word}\n")
        if word not in ENDING:
            screen.wait_for(READY)
            screen.type("\x04")
        assert screen.end() == 0
    assert "Traceback" not in screen.screen


@pytest.mark.deep
def test_a_session_that_cannot_be_read_does_not_end_the_chat(tmp_path: Path) -> None:
    agentloop("-p", "hello", "--session", "s", "-m", "offline", cwd=tmp_path)
    with sqlite3.connect(tmp_path / "agentloop" / "sessions.db") as database:
        database.execute("UPDATE events SET body = 'gone'")
        database.execute("DELETE FROM checkpoints")
    database.close()
    with terminal("-r", "s", "-m", "offline", cwd=tmp_path) as screen:
        screen.wait_for("damaged")
        say(screen, "/preview", "damaged")
        screen.wait_for(READY)
        screen.type("\x04")
        assert screen.end() == 0


@pytest.mark.deep
def test_a_history_that_cannot_be_written_does_not_end_the_chat(tmp_path: Path) -> None:
    with terminal("-m", "offline", cwd=tmp_path) as screen:
        screen.wait_for(READY)
        (tmp_path / "agentloop" / "history").unlink()
        (tmp_path / "agentloop" / "history").mkdir()
        screen.type("hello\n")
        screen.wait_for("offline · ")
        screen.wait_for(READY)
        screen.type("\x04")
        assert screen.end() == 0
    assert "Unhandled" not in screen.screen


@pytest.mark.deep
def test_compact_and_undo_in_the_chat(tmp_path: Path) -> None:
    def brain(body: Body) -> str:
        return "a short record" if not body.get("tools") else "words " * 400

    with (
        StrictProvider(brain) as provider,
        terminal("--base-url", provider.url, "--window", "32k", cwd=tmp_path) as screen,
    ):
        for number in range(3):
            say(screen, f"question {number} " + "please " * 100, "0 compactions")
        say(screen, "/compact the numbers", "compacted: ")
        screen.wait_for("1 compaction")
        say(screen, "/undo", "taken back")
        screen.wait_for("0 compactions")
        screen.wait_for(READY)
        screen.type("\x04")
        assert screen.end() == 0
    assert provider.refusals == []


def test_ctrl_c_ends_the_answer_and_not_the_chat(tmp_path: Path) -> None:
    thinking = threading.Event()

    def brain(body: Body) -> Answered | str:
        if body["messages"][-1]["content"] == "think":
            thinking.set()
            return Hang()
        return "quick answer"

    with (
        StrictProvider(brain) as provider,
        terminal("--base-url", provider.url, "--window", "32k", cwd=tmp_path) as screen,
    ):
        screen.wait_for(READY)
        screen.type("think\n")
        assert thinking.wait(120)
        screen.interrupt()
        screen.wait_for("interrupted")
        say(screen, "now", "quick answer")
        screen.wait_for(READY)
        screen.interrupt()
        say(screen, "again", "quick answer")
        screen.wait_for(READY)
        screen.type("\x04")
        assert screen.end() == 0
    assert provider.refusals == []


@pytest.mark.deep
def test_an_error_does_not_end_the_chat(tmp_path: Path) -> None:
    with (
        StrictProvider([Fault(status=401, body=""), "better now"]) as provider,
        terminal("--base-url", provider.url, "--window", "32k", cwd=tmp_path) as screen,
    ):
        say(screen, "one", "OPENAI_API_KEY")
        say(screen, "two", "better now")
        screen.wait_for(READY)
        screen.type("\x04")
        assert screen.end() == 0


def test_a_signal_ends_the_chat_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    with terminal("-m", "offline", cwd=tmp_path) as screen:
        screen.wait_for(READY)
        screen.signal(signal.SIGTERM)
        assert screen.end() == 130
    assert "\x1b[?2004l" in screen.screen
    assert "Traceback" not in screen.screen


@pytest.mark.deep
def test_a_pending_run_goes_on_when_its_session_is_opened(tmp_path: Path) -> None:
    with StrictProvider([Fault(status=401, body=""), "done at last"]) as provider:
        options = ("--base-url", provider.url, "--window", "32k")
        agentloop("-p", "do it", "--session", "s", *options, cwd=tmp_path)
        with terminal("-r", "s", *options, cwd=tmp_path) as screen:
            screen.wait_for("left unfinished")
            screen.wait_for("done at last")
            screen.wait_for(READY)
            screen.type("\x04")
            assert screen.end() == 0


def test_what_a_model_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    with (
        StrictProvider([Reply(text="a\x1b]0;owned\x07b\x1b[2Jc")]) as provider,
        terminal("-p", "x", "--base-url", provider.url, "--window", "32k", cwd=tmp_path) as screen,
    ):
        assert screen.end() == 0
    assert "\x1b]0;owned" not in screen.screen
    assert "\x1b[2J" not in screen.screen


@pytest.mark.deep
def test_why_a_compaction_failed_cannot_steer_the_terminal(tmp_path: Path) -> None:
    refusal = json.dumps({"error": {"message": "no \x1b]0;owned\x07\x1b[2J summary"}})

    def brain(body: Body) -> Answered | str:
        return "words " * 400 if body.get("tools") else Fault(status=400, body=refusal)

    with (
        StrictProvider(brain) as provider,
        terminal("--base-url", provider.url, "--window", "32k", cwd=tmp_path) as screen,
    ):
        for number in range(3):
            say(screen, f"question {number} " + "please " * 100, "0 compactions")
        screen.wait_for(READY)
        screen.type("/compact\n")
        told = screen.wait_for(" summary")
        screen.wait_for(READY)
        screen.type("\x04")
        assert screen.end() == 0
    assert "not compacted, failed: " in told
    assert "\x1b]0;owned" not in told
    assert "\x1b[2J" not in told


def test_one_run_in_a_terminal_shows_its_tools_and_a_live_line(tmp_path: Path) -> None:
    turns = [Reply(calls=(calling("list_files", pattern="*.txt"),)), Reply(text="the answer")]
    with StrictProvider(turns) as provider:
        options = ("-p", "look", "--base-url", provider.url, "--window", "32k")
        with terminal(*options, cwd=tmp_path) as screen:
            screen.wait_for('list_files(pattern="*.txt")')
            screen.wait_for("(measured)")
            screen.wait_for("the answer\r\n")
            assert screen.end() == 0


@pytest.mark.deep
def test_no_color_is_honoured(tmp_path: Path) -> None:
    options = ("-p", "hello", "-m", "offline")
    with terminal(*options, cwd=tmp_path, env={"NO_COLOR": "1"}) as screen:
        assert screen.end() == 0
    assert "\x1b[36m" not in screen.screen
    with terminal(*options, cwd=tmp_path) as screen:
        assert screen.end() == 0
    assert "\x1b[36m" in screen.screen


@pytest.mark.deep
def test_an_answer_that_breaks_off_is_marked_and_tried_again(tmp_path: Path) -> None:
    replies: list[Answered | str] = [
        Drop(reply=Reply(text="half an answer that is lost"), events=2),
        "whole answer",
    ]
    with (
        StrictProvider(replies) as provider,
        terminal("a question", "--base-url", provider.url, "--window", "32k", cwd=tmp_path) as screen,
    ):
        screen.wait_for("half an answer")
        screen.wait_for("void]")
        screen.wait_for("whole answer")
        screen.wait_for(READY)
        screen.type("\x04")
        assert screen.end() == 0


@pytest.mark.deep
def test_a_limit_is_told_in_the_chat(tmp_path: Path) -> None:
    with (
        StrictProvider(lambda _: Reply(calls=(calling("list_files"),))) as provider,
        terminal(
            "go on", "--max-steps", "1", "--base-url", provider.url, "--window", "32k", cwd=tmp_path
        ) as screen,
    ):
        screen.wait_for("--max-steps sets it")
        screen.wait_for(READY)
        screen.type("\x04")
        assert screen.end() == 0


@pytest.mark.deep
def test_each_message_of_the_chat_has_its_own_limits(tmp_path: Path) -> None:
    with (
        StrictProvider(lambda _: Reply(text="on it", calls=(calling("list_files"),))) as provider,
        terminal(
            *("go on", "-m", "mine", "--max-tokens", "0.1k", "--base-url", provider.url), cwd=tmp_path
        ) as screen,
    ):
        screen.wait_for("window of 'mine' is not known")
        screen.wait_for("limit of 100 tokens is reached")
        screen.wait_for(READY)
        screen.type("again\n")
        assert "is not known" not in screen.wait_for("limit of 100 tokens is reached")
        screen.wait_for(READY)
        screen.type("\x04")
        assert screen.end() == 0
    assert len(provider.requests) == 2


@pytest.mark.deep
def test_the_live_line_shows_compactions_happening(tmp_path: Path) -> None:
    folder = str(Path(email.__file__).parent)
    job = "Read every Python file in this folder and say what each one does."
    with terminal("-p", job, "--workdir", folder, "--window", "8k", cwd=tmp_path) as screen:
        screen.wait_for("0 compactions · compacting …")
        screen.wait_for("⇣ compacted: ")
        screen.wait_for("1 compaction · ")
        screen.wait_for("2 compactions · ")
        assert screen.end() == 0
    assert "utils.py: " in screen.screen


@pytest.mark.deep
def test_a_second_ctrl_c_ends_a_chat_whose_tool_holds_up_everything(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\nfrom agentloop import tool\n"
        "@tool\nasync def blocks() -> str:\n    '''Holds up everything.'''\n"
        "    for _ in range(10_000):\n        print('held up', flush=True)\n        time.sleep(0.05)\n"
        "    return ''\n"
    )
    with (
        StrictProvider([Reply(calls=(calling("blocks"),))]) as provider,
        terminal(
            "go on", "--base-url", provider.url, "--window", "32k", "--tools", "slow", cwd=tmp_path
        ) as screen,
    ):
        screen.wait_for("held up")
        screen.interrupt()
        for _ in range(5):
            screen.wait_for("held up")
        screen.interrupt()
        assert screen.end() == 130
    assert "agentloop: interrupted" in screen.screen
