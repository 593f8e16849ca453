"""The command line's surface: what is understood, what is refused, and with which words."""

import email
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click
import pytest

from agentloop.cli.app import COMMANDS, EXIT_STATUS, load, program, status_of_call
from agentloop.cli.options import (
    AGENT,
    BUSY,
    COMPACTION,
    LIMITS,
    MODEL,
    SESSION,
    STORE,
    TTL,
    WORKER_STORE,
    KnownOption,
)
from agentloop.stream import RunStatus
from tests.cli_kit import agentloop, command, environment

HEAVY = ("openai", "tiktoken", "pydantic", "prompt_toolkit", "genai_prices")


MODULES = {
    "a_file": "not a session\n",
    "plain.py": "NUMBER = 3\n",
    "broken.py": "fine = 1\ndef broken(:\n",
    "halting.py": "import sys\nsys.exit('I do not want to')\n",
    "needs_more.py": "import absent_dependency\n",
    "twins.py": (
        "from agentloop import tool\n"
        "@tool(name='same')\ndef one() -> str:\n    '''One.'''\n    return '1'\n"
        "@tool(name='same')\ndef two() -> str:\n    '''Two.'''\n    return '2'\n"
    ),
}


WRONG: list[tuple[list[str], str]] = [
    (["--bogus"], "no such option '--bogus': "),
    (["--window", "-p", "x"], "--window has no value, since -p is an option: give it one"),
    (["-m", "offline", "-p", "--verbose", "x"], "or write --prompt=--verbose for that very text"),
    (["-p", ""], "the prompt is empty"),
    (["-p", "  \n "], "the prompt is empty"),
    (["-p", "-"], "the prompt is empty"),
    ([], "the prompt is empty"),
    (["one", "two"], "in quotes"),
    (["-p", "one", "two"], "give one"),
    (["-p", "x", "--window", "many"], "--window"),
    (["-p", "x", "--skills", "a" * 300], "File name too long: give a shorter one"),
    (["-p", "x", "--transcripts", "a" * 300], "File name too long: give a shorter one"),
    (["-p", "x", "--window", "0"], "--window"),
    (["-p", "x", "--compact-at", "2"], "--compact-at"),
    (["-p", "x", "--compact-at", "nan"], "--compact-at"),
    (
        ["-p", "x", "--max-steps", "0"],
        "--max-steps: '0' is no whole number of at least 1: write one such as 5",
    ),
    (["-p", "x", "--max-steps", "12k"], "--max-steps: '12k' is no whole number of at least 1"),
    (["-p", "x", "--max-repeats", "1"], "--max-repeats: '1' is no whole number of at least 2"),
    (["-p", "x", "--window", "1e9"], "--window: '1e9' is no number of tokens: write one such as 8000"),
    (["rewind", "x", "--turns", "0"], "--turns: '0' is no whole number of at least 1: write one such as 5"),
    (
        ["sessions", "search", "x", "-n", "1001"],
        "-n: '1001' is more than 1,000: write a smaller number",
    ),
    (["sessions", "expire", "x", "soon"], "TIME: 'soon' is no time above 0: write one such as 90"),
    (
        ["sessions", "show"],
        "missing argument 'ID': `agentloop sessions show --help` shows how",
    ),
    (
        ["sessions", "rename", "x", "My", "door"],
        "got unexpected extra argument (door): `agentloop sessions rename --help` shows how",
    ),
    (
        ["compact", "x", "y", "z"],
        "got unexpected extra arguments (y z): `agentloop compact --help` shows how",
    ),
    (["demo", "x"], "got unexpected extra argument (x): `agentloop demo --help` shows how"),
    (
        ["lessons", "3", "--model", "x"],
        "lesson 3 takes no --model: its 'Try it' says what to change",
    ),
    (["lessons", "3", "--source", "--model", "x"], "--source runs nothing, so it takes no --model"),
    (
        ["sessions", "import", "none.jsonl"],
        "'none.jsonl' cannot be read: No such file or directory: check the path",
    ),
    (
        ["-p", "x", "--system-file", "none"],
        "--system-file: 'none' cannot be read: No such file or directory: check the path",
    ),
    (
        ["-p", "x", "--attach", "~no-user/a.png"],
        "--attach: '~no-user/a.png' is the home of no user",
    ),
    (
        ["-p", "x", "--schema", "~no-user/a.json"],
        "--schema: '~no-user/a.json' is the home of no user",
    ),
    (
        ["-p", "x", "--schema", f'{{"title": "{"x" * 300}"}}'],
        "--schema: the schema itself cannot stand there: put it in a file and name that",
    ),
    (["lessons", "first"], "N: 'first' is no whole number of at least 0: write one such as 5"),
    (["sessions", "import"], "missing argument 'FILE': `agentloop sessions import --help` shows how"),
    (["-p", "x", "--max-tokens", "0"], "--max-tokens: '0' is no number of tokens"),
    (["-p", "x", "--max-tokens", "many"], "--max-tokens"),
    (["-p", "x", "--max-tokens", ""], "--max-tokens is empty"),
    (["-p", "x", "--compact-at", " "], "--compact-at is empty"),
    (["-p", "x", "--system-file", ""], "--system-file is empty"),
    (["-p", "x", "--max-cost", "0"], "--max-cost: '0' is no number of US dollars"),
    (["-p", "x", "--max-cost", "nan"], "--max-cost"),
    (["-p", "x", "--max-cost", "-1"], "--max-cost"),
    (
        ["-p", "x", "--max-cost", "1", "-m", "mine", "--base-url", "http://localhost:1/v1"],
        "price of 'mine' is not known: limit --max-tokens instead",
    ),
    (["-p", "x", "--max-seconds", "soon"], "--max-seconds: 'soon' is no number of seconds"),
    (["-p", "x", "--max-seconds", "inf"], "--max-seconds"),
    (["--max-cost", "1", "sessions", "list"], "--max-cost has no effect on"),
    (["-p", "x", "--workdir", "nowhere"], "is not there"),
    (["-p", "x", "--workdir", "a_file"], "is a file"),
    (["-p", "x", "--allow", "everything"], "--allow"),
    (["-p", "x", "--store", "mysql://x"], "store URL"),
    (["-p", "x", "--store", "sqlite://"], "store URL"),
    (["-p", "x", "--session", "../../x"], "bad session id"),
    (["-p", "x", "--session", ".x"], "bad session id"),
    (["-p", "x", "--session", "x" * 129], "bad session id"),
    (["-p", "x", "-r", "nobody"], "no session has"),
    (["-r", "nobody"], "no session has"),
    (["-p", "x", "-c"], "to continue: leave -c out, or name one of `agentloop sessions list --all` by -r"),
    (["-p", "x", "-c", "--no-session"], "cannot stand together"),
    (["-p", "x", "-r", "a", "--session", "b"], "cannot stand together"),
    (["-p", "x", "--json", "--output-format", "json"], "give one of them"),
    (["-p", "x", "--output-format", "yaml"], "yaml"),
    (["-p", "x", "--base-url", "localhost:8080"], "http://"),
    (["-p", "x", "-m", "some-model"], "needs a server"),
    (["-p", "x", "--system", "a", "--system-file", "a_file"], "give one of them"),
    (["-p", "x", "--system-file", "nowhere"], "--system-file"),
    (["-p", "x", "--tools", "no_such_module"], "neither installed nor in this folder"),
    (["-p", "x", "--tools", "a_file.py"], "name the module"),
    (["-p", "x", "--tools", "broken"], "line 2"),
    (["-p", "x", "--tools", "halting"], "halting.py:2)"),
    (["-p", "x", "--tools", "needs_more"], "absent_dependency"),
    (["-p", "x", "--tools", "plain"], "holds no tool"),
    (["-p", "x", "--tools", "plain:nothing"], "has no 'nothing': it is "),
    (["-p", "x", "--tools", "plain:NUMBERS"], "has no 'NUMBERS': did you mean 'NUMBER'?"),
    (["-p", "x", "--ask", "shell(git"], "is no rule: one is write, shell, a tool's name, or shell(git *)"),
    (["-p", "x", "--tools", "plain:NUMBER"], "is no tool"),
    (["-p", "x", "--tools", "twins"], "two tools"),
    (["-p", "x", "--callbacks", "plain"], "MODULE:NAME"),
    (["-p", "x", "--callbacks", "plain:NUMBER"], "is no callback"),
    (["-p", "x", "-m", ""], "--model is empty"),
    (
        ["-p", "x", "--temperature", "hot"],
        "--temperature: 'hot' is no number of at least 0: write one such as 0.7",
    ),
    (["-p", "x", "--temperature", "nan"], "--temperature: 'nan' is no number"),
    (["-p", "x", "--timeout", "0"], "--timeout: "),
    (["-p", "x", "--extra", "[1]"], "--extra: '[1]' is no JSON object"),
    (["-p", "x", "--extra", "{"], "--extra: '{' is no JSON"),
    (["-p", "x", "--workdir", "~nobody-here"], "home of no user"),
    (["-p", "x", "--workdir", "x" * 5_000], "--workdir"),
    (["-p", "x", "--window", "9" * 24], "1,000,000,000"),
    (["-p", "x", "-m", "m", "--base-url", "http://a\x01b/v1"], "bad base URL"),
    (["-p", "x", "-m", "m", "--base-url", "http://a b/v1"], "bad base URL"),
    (["-p", "x", "demo"], "--prompt has no effect on"),
    (["--json", "sessions", "list"], "--json has no effect on"),
    (["run"], "no command 'run': did you mean 'runs'? As a prompt: agentloop -p run"),
    (["model", "the solar system"], "As a prompt: agentloop -p 'model the solar system'"),
    (["run", "it's", "--json"], """As a prompt: agentloop -p 'run it'"'"'s'"""),
    (["sesions", "list"], "did you mean 'sessions'?"),
    (["hepl"], "did you mean 'help'?"),
    (["chat"], "no command 'chat': `agentloop` alone opens the chat. As a prompt: agentloop -p chat"),
    (["status"], "no command 'status': in the chat, /status: how full the window is. As a prompt"),
    (["export"], "no command 'export': `agentloop sessions export` is one. As a prompt"),
    (
        ["resume"],
        "no command 'resume': -c goes on with the newest session of this folder, -r ID with any. As a prompt",
    ),
    (
        ["login"],
        "no command 'login': nothing is to be set up: set OPENAI_API_KEY or give --base-url, and -m;",
    ),
    (["show", "abc"], "no command 'show': `agentloop sessions show` is one. As a prompt"),
    (["undo"], "missing argument 'ID': `agentloop undo --help` shows how"),
    (
        ["exit"],
        "no command 'exit': in the chat, /exit: end the chat, as Ctrl-D does; the session is kept. As a",
    ),
    (["-m", "offline", "quit", "--no-session"], "no command 'quit'"),
    (["submit"], 'e.g. agentloop submit "…"'),
    (["--ttl", "30d", "submit", "hi"], "--ttl has no effect on `submit`"),
    (["--ttl", "30d", "sessions", "list"], "--ttl has no effect on"),
    (["--system", "Be brief.", "submit", "hi"], "--system has no effect on `submit`"),
    (["-m", "offline", "submit", "hi"], "--model has no effect on `submit`"),
    (["sessions", "show", ""], "id is empty"),
    (["approve", ""], "id is empty: `agentloop approvals` shows those with calls that wait"),
    (["sessions", "show", "nobody"], "no session has"),
    (["sessions", "delete", "nobody", "--yes"], "no session has"),
    (["sessions", "import", "nowhere"], "cannot be read"),
    (["sessions", "import", "a_file"], "nothing imported"),
    (["sessions", "frobnicate"], "no such command 'frobnicate': `agentloop sessions --help` shows how"),
    (
        ["config", "get", "window"],
        "no such command 'get': `agentloop config --help` shows how",
    ),
    (["compact", "nobody"], "no session has"),
    (
        ["compact", "x", "--strategy", "forget"],
        "--strategy: 'forget' is no strategy: write one of keep-recent-fraction",
    ),
    (
        ["compact", "x", "--strategy", "turn-window"],
        "--strategy: turn-window needs a number: write one such as turn-window:8",
    ),
    (["compact", "x", "--strategy", "blocks:x"], "--strategy: blocks: 'x' is no whole number"),
    (
        ["compact", "x", "--strategy", "TurnWindows(4)"],
        "--strategy: 'TurnWindows' is no strategy: did you mean 'turn-window'?",
    ),
    (
        ["compact", "x", "--strategy", "token-window:lots"],
        "--strategy: token-window: 'lots' is no number of tokens: write one such as 8000",
    ),
    (
        ["compact", "x", "--strategy", "keep-recent-fraction:300%"],
        "--strategy: keep-recent-fraction: fraction must be at least 0 and below 1, not 3.0",
    ),
    (
        ["compact", "x", "--strategy", "keep-recent-fraction:off"],
        "--strategy: keep-recent-fraction: fraction must be at least 0 and below 1, not nan",
    ),
    (["-p", "x", "--modle", "m"], "no such option '--modle': did you mean '--model'?"),
    (["-p", "x", "--frobnicate"], "no such option '--frobnicate': `agentloop --help` shows how"),
    (["compact", "x", "--strategy", "reduce:3"], "--strategy: reduce takes no number: write reduce"),
    (["compact", "x", "--strategy", "turn-window:0"], "--strategy: turn-window: max_turns must be"),
    (["undo", "nobody"], "no session has"),
    (["lessons", "99"], "no lesson 99"),
]


def loaded_by(*arguments: str, cwd: Path) -> set[str]:
    """The top-level packages in memory once the call is over."""
    program = (
        "import sys\nfrom agentloop.cli.main import main\n"
        f"try:\n    main({list(arguments)!r})\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env=environment(cwd),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_help_shows_options_commands_and_exit_statuses(tmp_path: Path) -> None:
    done = agentloop("--help", cwd=tmp_path)
    assert done.status == 0
    assert done.err == ""
    for word in ("--resume", "--output-format", "sessions", "demo", "lessons", "75 try later"):
        assert word in done.out


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    assert loaded_by("--help", cwd=tmp_path).isdisjoint({*HEAVY, "rich", "structlog"})


@pytest.mark.parametrize("group", [(), ("sessions",)])
def test_help_cuts_no_sentence(group: tuple[str, ...], tmp_path: Path) -> None:
    shown = agentloop(*group, "--help", cwd=tmp_path).out
    assert [line for line in shown.splitlines() if line.endswith("...") and "[ARGS]" not in line] == []


def test_sessions_load_no_client_and_no_terminal_library(tmp_path: Path) -> None:
    loaded = loaded_by("sessions", "list", "--all", cwd=tmp_path)
    assert loaded.isdisjoint({"openai", "httpx2", "prompt_toolkit", "genai_prices"})


@pytest.mark.parametrize("command", ["sessions", "compact", "undo", "models", "lessons", "demo"])
def test_each_command_has_its_help(command: str, tmp_path: Path) -> None:
    done = agentloop(command, "--help", cwd=tmp_path)
    assert done.status == 0
    assert f"agentloop {command}" in done.out


def test_the_help_of_the_program_says_of_each_command_what_its_own_says_first() -> None:
    for place, line in COMMANDS.values():
        command = load(place)
        assert " ".join(command.help.partition("\n\n")[0].split()) == line


def test_each_status_of_a_run_has_its_number() -> None:
    assert set(EXIT_STATUS) == set(get_args(RunStatus))
    assert len(set(EXIT_STATUS.values())) == len(EXIT_STATUS)


def test_version_is_said_without_a_run(tmp_path: Path) -> None:
    done = agentloop("--version", cwd=tmp_path)
    assert (done.status, done.out.split()[0], done.err) == (0, "agentloop", "")


def test_a_system_without_posix_is_told_in_one_line(tmp_path: Path) -> None:
    program = "from agentloop.cli.main import main\nmain(['--version'], system='nt')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "agentloop: the command line needs POSIX: use it on Linux, macOS, or in WSL on Windows\n"
    )


@pytest.mark.parametrize(
    ("call", "option"),
    [
        (["help"], ["--help"]),
        (["help", "sessions"], ["sessions", "--help"]),
        (["version"], ["--version"]),
    ],
)
def test_a_word_does_what_one_expects_of_it(call: list[str], option: list[str], tmp_path: Path) -> None:
    done, meant = agentloop(*call, cwd=tmp_path), agentloop(*option, cwd=tmp_path)
    assert (done.status, done.out, done.err) == (0, meant.out, "")


@pytest.mark.parametrize("prompt", ["Ciao!", "2+2", "什么是循环", "help me", "run them"])
def test_a_text_that_is_no_word_of_a_command_is_a_prompt(prompt: str, tmp_path: Path) -> None:
    done = agentloop("-m", "offline", "--no-session", prompt, cwd=tmp_path)
    assert (done.status, f"“{prompt}”" in done.out) == (0, True)


@pytest.mark.parametrize(("arguments", "said"), WRONG, ids=[" ".join(words)[:30] for words, _ in WRONG])
def test_a_wrong_call_is_one_line_and_status_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    done = agentloop(*arguments, cwd=tmp_path)
    assert done.status == 2, done.err
    assert said in done.complaint()
    assert done.out == "" or done.events[-1]["status"] == "usage"
    assert not (tmp_path / "agentloop").exists()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AGENTLOOP_WINDOW", "lots"),
        ("AGENTLOOP_COMPACT_AT", "never"),
        ("OPENAI_BASE_URL", "ftp://x"),
        ("AGENTLOOP_HOME", "~nobody-here"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, value: str, tmp_path: Path) -> None:
    done = agentloop("-p", "x", cwd=tmp_path, env={variable: value})
    assert done.status == 2
    assert variable in done.complaint()


@pytest.mark.deep
@pytest.mark.parametrize("group", [SESSION, BUSY, TTL, LIMITS])
def test_no_option_of_a_run_is_taken_before_a_command_and_forgotten(
    group: Sequence[KnownOption], tmp_path: Path
) -> None:
    for option in group:
        shown = next(each for each in program.params if each.name == option.name)
        value = () if isinstance(shown, click.Option) and shown.is_flag else ("1d",)
        done = agentloop(shown.opts[-1], *value, "runs", "--store", "postgresql://h/d", cwd=tmp_path)
        assert done.status == 2
        assert f"{shown.opts[-1]} has no effect on `runs`" in done.complaint()


HEEDED: dict[str, Sequence[KnownOption]] = {
    "approvals": STORE,
    "approve": (*MODEL, *COMPACTION, *AGENT, *STORE),
    "compact": (*MODEL, *COMPACTION, *AGENT, *STORE),
    "completion": (),
    "config": (),
    "demo": (),
    "doctor": (*MODEL, *STORE),
    "lessons": (),
    "models": [option for option in MODEL if option.name in ("base_url", "header")],
    "paths": (),
    "runs": STORE,
    "sessions": STORE,
    "submit": STORE,
    "rewind": STORE,
    "undo": STORE,
    "worker": (*MODEL, *COMPACTION, *AGENT, *WORKER_STORE),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_taken_before_a_command_that_does_not_heed_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    heeded = {option.name for option in HEEDED[name]}
    for option in (*MODEL, *COMPACTION, *AGENT, *STORE):
        shown = next(each for each in program.params if each.name == option.name)
        value = () if isinstance(shown, click.Option) and shown.is_flag else ("1",)
        status = status_of_call([shown.opts[-1], *value, name, "--help"])
        said = capsys.readouterr().err
        refused = f"{shown.opts[-1]} has no effect on `{name}`" in said
        assert (status, refused) == ((0, False) if option.name in heeded else (2, True)), said


def test_a_group_of_commands_without_one_shows_its_help(tmp_path: Path) -> None:
    done = agentloop("sessions", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.err == agentloop("sessions", "--help", cwd=tmp_path).out


@pytest.mark.parametrize(
    "call",
    [
        ("sessions", "list"),
        ("compact", "x"),
        ("undo", "x"),
        ("runs",),
        ("submit", "x"),
        ("worker",),
        ("demo",),
    ],
)
def test_every_command_hears_how_much_is_to_be_logged(call: tuple[str, ...], tmp_path: Path) -> None:
    done = agentloop(*call, cwd=tmp_path, env={"AGENTLOOP_LOG": "loud"})
    assert done.status == 2
    assert "AGENTLOOP_LOG: 'loud' is no level" in done.complaint()


@pytest.mark.deep
def test_a_home_is_written_out_in_every_path(tmp_path: Path) -> None:
    (tmp_path / "system").write_text("Be brief.")
    env = {"HOME": str(tmp_path), "AGENTLOOP_TRANSCRIPTS": "~/kept"}
    job = ("-p", "Read every Python file in this folder and say what each one does.")
    options = (f"--workdir={Path(email.__file__).parent}", "--window=8k", "--system-file=~/system")
    assert agentloop(*job, *options, "--session", "s", cwd=tmp_path, env=env).status == 0
    exported = agentloop("sessions", "export", "s", "--output=~/out.json", cwd=tmp_path, env=env)
    assert exported.status == 0, exported.err
    assert list((tmp_path / "kept").iterdir())
    assert (tmp_path / "out.json").is_file()
    store = ("--store", "sqlite:///~/in/home.db")
    assert agentloop("-p", "Hello", *store, cwd=tmp_path, env=env).status == 0
    assert "Hello" in agentloop("sessions", "list", *store, cwd=tmp_path, env=env).out
    assert (tmp_path / "in" / "home.db").is_file()
    assert not (tmp_path / "~").exists()
    nowhere = agentloop("-p", "x", "--store", "sqlite:///~nobody-here/x.db", cwd=tmp_path)
    assert (nowhere.status, "home of no user" in nowhere.complaint()) == (2, True)
    nobody = agentloop(*job, "--transcripts=~nobody-here/x", cwd=tmp_path)
    assert (nobody.status, "--transcripts" in nobody.complaint()) == (2, True)


def test_options_may_stand_behind_the_text(tmp_path: Path) -> None:
    done = agentloop("hello there", "--no-session", "--output-format", "json", cwd=tmp_path)
    assert done.status == 0
    assert done.events[0]["status"] == "answered"


@pytest.mark.deep
@pytest.mark.parametrize("words", [("lessons", "0"), ("demo",)], ids=" ".join)
def test_what_standard_output_cannot_say_is_a_question_mark(words: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        command(*words),
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONIOENCODING="ascii"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert done.stdout.isascii()
    assert b"internal error" not in done.stderr


def _without_durable(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    script = (
        "import sys; sys.modules['dbos'] = None; "
        "from agentloop.cli.main import main; sys.argv[0] = 'agentloop'; sys.exit(main())"
    )
    call = [sys.executable, "-c", script, *words]
    return subprocess.run(call, env=environment(home, **variables), capture_output=True, text=True)


def test_an_unknown_option_is_one_line_without_the_extra_of_other_commands(tmp_path: Path) -> None:
    done = _without_durable(tmp_path, "-p", "x", "--frobnicate")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "agentloop: no such option '--frobnicate': `agentloop --help` shows how\n"


def test_a_command_whose_extra_is_missing_completes_nothing(tmp_path: Path) -> None:
    asked = {"_AGENTLOOP_COMPLETE": "bash_complete", "COMP_WORDS": "agentloop worker --", "COMP_CWORD": "2"}
    done = _without_durable(tmp_path, **asked)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
