"""Calls that wait for a yes, on the command line and in the chat."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentloop import Pending
from agentloop.cli.asking import shown_call
from tests.cli_kit import agentloop, terminal
from tests.strict_provider import StrictProvider
from tests.strict_replies import Reply, calling

READY = "\x1b[?2004h"


def waiting(tmp_path: Path, *options: str) -> str:
    """A session in which a command waits; its id."""
    with StrictProvider([Reply(calls=[calling("run_command", command="rm x")])]) as provider:
        done = agentloop("-p", "go", "--base-url", provider.url, "--session", "s", *options, cwd=tmp_path)
    assert done.status == 4
    assert 'waits for a yes: run_command(command="rm x")' in done.err
    [row] = agentloop("approvals", "--json", cwd=tmp_path).events
    assert f"approve s {row['call_id']} " in done.err
    return "s"


ASK = ("--allow", "shell(echo *)")


def test_a_call_waits_is_listed_and_is_answered(tmp_path: Path) -> None:
    session, file = waiting(tmp_path, *ASK), tmp_path / "x"
    file.write_text("")
    listed = agentloop("approvals", cwd=tmp_path)
    assert "rm x" in listed.out
    [row] = agentloop("approvals", "--json", cwd=tmp_path).events
    assert (row["session_id"], row["tool"], row["arguments"]) == ("s", "run_command", {"command": "rm x"})
    with StrictProvider([Reply(text="done")]) as provider:
        options = ("--base-url", provider.url, *ASK)
        done = agentloop("approve", session, row["call_id"], *options, cwd=tmp_path)
    assert (done.status, done.out, file.exists()) == (0, "done\n", False)
    assert agentloop("approvals", cwd=tmp_path).out == ""


@pytest.mark.parametrize(
    ("answer", "shown", "told"),
    [
        (
            ("--reject", "not today"),
            'no: run_command(command="rm x") (',
            "not run: a person said no: not today",
        ),
        (("--respond", "it is gone"), 'answered: run_command(command="rm x") (', "it is gone"),
        (("--arguments", '{"command": "echo hi"}'), 'yes: run_command(command="echo hi") (', "hi\n"),
    ],
)
def test_the_ways_to_answer(answer: tuple[str, str], shown: str, told: str, tmp_path: Path) -> None:
    session = waiting(tmp_path, *ASK)
    with StrictProvider([Reply(text="done")]) as provider:
        done = agentloop("approve", session, *answer, "--base-url", provider.url, *ASK, cwd=tmp_path)
    assert done.status == 0
    assert shown in done.err
    assert told in provider.bodies[-1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("nope",), "no session has the id"),
        (("s", "nope"), "no call 'nope' waits for an answer in session 's'"),
        (("s", "--reject", "a", "--respond", "b"), "--reject, --arguments and --respond: give one of them"),
        (("s", "--arguments", "[1]"), "--arguments is no JSON object"),
        (("s", "--arguments", "{"), "--arguments is no JSON: "),
        (("s", "--arguments", '{"comand": "ls"}'), "run_command cannot be called so"),
    ],
)
def test_what_cannot_be_answered_is_one_line(words: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    waiting(tmp_path, *ASK)
    done = agentloop("approve", *words, *ASK, "-m", "offline", cwd=tmp_path)
    assert done.status == 2
    assert complaint in done.complaint()


def test_after_a_refused_answer_the_hint_says_how_to_answer(tmp_path: Path) -> None:
    waiting(tmp_path, *ASK)
    [row] = agentloop("approvals", "--json", cwd=tmp_path).events
    given = ("--arguments", '{"command": 5}')
    done = agentloop("approve", "s", *given, *ASK, "-m", "offline", cwd=tmp_path)
    complaint, hint = [line for line in done.err.splitlines() if line.startswith("agentloop: ")]
    assert "cannot be called so: command: Input should be a valid string" in complaint
    assert hint.startswith("agentloop: say yes by: ")
    assert f"approve s {row['call_id']} " in hint


@pytest.mark.parametrize(
    ("call", "given", "option"),
    [
        (calling("run_command", command="rm x"), ("--ask", "shell"), "--ask shell"),
        (calling("write_file", path="x", content="y"), ("--ask", "write"), "--ask write"),
        (calling("todo_read"), ("--todo", "--ask", "todo_*"), "--todo"),
        (calling("deploy"), ("--tools", "deploying"), "--tools MODULE"),
        (
            calling("run_in_background", command="rm x"),
            ("--ask", "shell", "--background"),
            "--ask shell --background",
        ),
    ],
)
def test_a_yes_without_the_tool_names_the_option_that_gives_it(
    call: Any, given: tuple[str, ...], option: str, tmp_path: Path
) -> None:
    lines = "import agentloop", "@agentloop.tool(needs_approval=True)", "def deploy(): 'Deploy.'"
    (tmp_path / "deploying.py").write_text("\n".join(lines))
    with StrictProvider([Reply(calls=[call]), Reply(text="done")]) as provider:
        url = ("--base-url", provider.url)
        agentloop("-p", "go", *url, "--session", "s", *given, cwd=tmp_path)
        before = agentloop("sessions", "show", "s", "--json", cwd=tmp_path).out
        done = agentloop("approve", "s", *url, cwd=tmp_path)
        assert (done.status, option in done.complaint()) == (2, True)
        assert agentloop("sessions", "show", "s", "--json", cwd=tmp_path).out == before
        done = agentloop("approve", "s", "--reject", "no", *url, cwd=tmp_path)
    assert (done.status, done.out) == (0, "done\n")


def test_what_is_answered_is_shown(tmp_path: Path) -> None:
    waiting(tmp_path, *ASK)
    with StrictProvider([Reply(text="done")]) as provider:
        done = agentloop("approve", "s", "--base-url", provider.url, *ASK, cwd=tmp_path)
    assert 'yes: run_command(command="rm x") (' in done.err


def test_a_denial_that_wins_is_said_in_one_line(tmp_path: Path) -> None:
    options = ("--deny", "write", "--allow", "write", "--ask", "write(docs/*)", "--allow", "shell(ls)")
    done = agentloop("-p", "hi", "-m", "offline", *options, cwd=tmp_path)
    told = [line for line in done.err.splitlines() if "wins" in line]
    assert told == [
        "agentloop: --deny write wins over --allow write: no such call runs",
        "agentloop: --deny write wins over --ask write(docs/*): no such call runs",
    ]


def test_nothing_waits_in_a_session_that_is_answered(tmp_path: Path) -> None:
    agentloop("-p", "hi", "-m", "offline", "--session", "s", cwd=tmp_path)
    done = agentloop("approve", "s", "-m", "offline", cwd=tmp_path)
    assert (done.status, "nothing waits for a yes in session 's'" in done.complaint()) == (2, True)


def test_json_says_what_waits(tmp_path: Path) -> None:
    with StrictProvider([Reply(calls=[calling("run_command", command="rm x")])]) as provider:
        options = ("--base-url", provider.url, "--ask", "shell", "--output-format", "json")
        done = agentloop("-p", "go", *options, cwd=tmp_path)
    told = json.loads(done.out)
    assert (done.status, told["status"]) == (4, "needs_approval")
    assert told["pending"][0]["arguments"] == {"command": "rm x"}


@pytest.mark.parametrize(
    ("typed", "told", "left"),
    [
        (["yes\n"], "made notes.md", "one\ntwo\n"),
        (["maybe\n", "no\n", "not mine\n"], "not run: a person said no: not mine", None),
        (["always\n"], "made notes.md", "one\ntwo\n"),
        (["\x04"], None, None),
    ],
)
def test_the_chat_shows_a_write_and_asks(
    typed: list[str], told: str | None, left: str | None, tmp_path: Path
) -> None:
    write = Reply(calls=[calling("write_file", path="notes.md", content="one\ntwo\n")])
    with StrictProvider([write, Reply(text="all is said")]) as provider:
        options = ("--base-url", provider.url, "--ask", "write", "--window", "32k")
        with terminal("write the notes", *options, cwd=tmp_path) as screen:
            screen.wait_for("+one")
            for words in typed:
                screen.wait_for(READY)
                screen.type(words)
            if told:
                screen.wait_for("all is said")
            screen.wait_for(READY)
            screen.type("/quit\n")
            assert screen.end() == 0
    file = tmp_path / "notes.md"
    assert (file.read_text() if file.exists() else None) == left
    if told:
        assert provider.bodies[-1]["messages"][-1]["content"].startswith(told)


SHOWN: list[tuple[dict[str, Any], list[str]]] = [
    ({"command": "ls\nrm x"}, ["  $ ls", "  $ rm x"]),
    ({"command": "ls", "host": "prod"}, ["  $ ls", '  {"host": "prod"}']),
    (
        {"path": "a\n+b", "old": "x", "new": "y", "all": True},
        ["  --- a +b", "  -x", "  +y", '  {"all": true}'],
    ),
    ({"path": "a", "content": "x", "mode": "777"}, ["  +++ a", "  +x", '  {"mode": "777"}']),
    ({"path": "a", "content": "x\n" * 6_000}, ["  a: 0 lines become these", "  +x"]),
    ({"path": "pipe", "content": "x"}, ["  +x"]),
    ({"path": "same", "content": "one\n"}, ["  same: no line is changed"]),
    ({"text": "x" * 500 + "end"}, ['  {"text": "' + "x" * 500 + 'end"}']),
    ({}, ["  {}"]),
]


@pytest.mark.parametrize(("arguments", "lines"), SHOWN)
def test_all_of_a_call_is_shown(arguments: dict[str, Any], lines: list[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "same").write_text("one\n")
    pending = Pending(call_id="c", tool="t", arguments=arguments, session_id="s")
    shown = [str(line) for line in shown_call(pending, tmp_path)]
    assert [line for line in lines if line not in shown] == []


def test_a_question_has_the_terminal_alone_and_says_what_its_answers_mean(tmp_path: Path) -> None:
    write = Reply(calls=[calling("write_file", path="notes.md", content="one")])
    with StrictProvider([write, Reply(text="all is said")]) as provider:
        options = ("--base-url", provider.url, "--ask", "write", "--window", "32k")
        with terminal("write the notes", *options, cwd=tmp_path) as screen:
            screen.wait_for("run it? yes, no, edit, always:")
            screen.type("?\n")
            shown = screen.wait_for("y runs it, n does not, e changes its arguments")
            assert "step" not in shown
            screen.wait_for("asks no more for: write_file with the path notes.md")
            screen.wait_for("run it? yes, no, edit, always:")
            screen.type("a\n")
            screen.wait_for("not asked again in this chat: write_file with the path notes.md")
            screen.wait_for("all is said")
            screen.wait_for(READY)
            screen.type("/quit\n")
            assert screen.end() == 0


def test_keys_typed_ahead_answer_no_question(tmp_path: Path) -> None:
    write = Reply(calls=[calling("write_file", path="notes.md", content="one\n")])
    with StrictProvider([write, Reply(text="all is said")]) as provider:
        options = ("--base-url", provider.url, "--ask", "write", "--window", "32k")
        with terminal("write the notes", *options, cwd=tmp_path) as screen:
            screen.type("y\ny\nyes")
            screen.wait_for("run it? yes, no, edit, always:")
            screen.type("no\n")
            screen.wait_for("why not?")
            screen.type("not mine\n")
            screen.wait_for("all is said")
            screen.wait_for(READY)
            screen.type("/quit\n")
            assert screen.end() == 0
    assert not (tmp_path / "notes.md").exists()
    assert provider.bodies[-1]["messages"][-1]["content"] == "not run: a person said no: not mine"


def test_nothing_of_a_call_steers_the_line_that_changes_it(tmp_path: Path) -> None:
    command = "echo '\u202e\u2066\x9b2J\x07'"
    with StrictProvider(
        [Reply(calls=[calling("run_command", command=command)]), Reply(text="end")]
    ) as provider:
        options = ("--base-url", provider.url, "--ask", "shell", "--window", "32k")
        with terminal("write the notes", *options, cwd=tmp_path) as screen:
            screen.wait_for("run it? yes, no, edit, always:")
            screen.type("e\n")
            shown = screen.wait_for("arguments:") + screen.wait_for("\\u0007")
            screen.type("\n")
            shown += screen.wait_for("end")
            screen.wait_for(READY)
            screen.type("/quit\n")
            assert screen.end() == 0
    assert not {*"\u202e\u2066\x9b\x07"} & {*shown}
    assert f"\n{command[6:-1]}\n" in provider.bodies[-1]["messages"][-1]["content"]


def test_the_chat_lists_what_waits(tmp_path: Path) -> None:
    waiting(tmp_path, *ASK)
    with (
        StrictProvider([]) as provider,
        terminal("-r", "s", "--base-url", provider.url, *ASK, cwd=tmp_path) as screen,
    ):
        screen.wait_for("run it? yes, no, edit, always:")
        screen.type("\x04")
        screen.wait_for(READY)
        screen.type("/approvals\n")
        screen.wait_for('run_command(command="rm x") (')
        screen.wait_for("your next message asks again")
        screen.wait_for(READY)
        screen.type("/quit\n")
        assert screen.end() == 0


def test_where_nothing_waits_that_is_said(tmp_path: Path) -> None:
    done = agentloop("approvals", cwd=tmp_path)
    assert (done.status, done.out, done.err) == (0, "", "agentloop: nothing waits for a yes\n")
