"""Configuration files: what beats what, what a project may say, and the commands that show and write it."""

import json
import os
import py_compile
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from agentloop.cli.app import program
from agentloop.cli.config import with_setting
from agentloop.cli.config_files import KEYS
from agentloop.cli.options import KNOWN
from tests.cli_kit import Finished, agentloop, environment
from tests.strict_provider import StrictProvider
from tests.strict_replies import Reply, calling
from tests.warm_kit import ROOT


def user_says(folder: Path, text: str) -> None:
    (folder / "agentloop").mkdir(exist_ok=True)
    (folder / "agentloop" / "config.toml").write_text(text)


def project_says(folder: Path, text: str) -> None:
    (folder / ".agentloop.toml").write_text(text)


def shown(folder: Path, *, env: dict[str, str] | None = None, status: int = 0) -> dict[str, Any]:
    done = agentloop("config", "--json", cwd=folder, env=env)
    assert done.status == status, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def refused(folder: Path, *call: str) -> str:
    done: Finished = agentloop(*(call or ("sessions", "list")), cwd=folder)
    assert done.status == 2, done.err
    return done.complaint()


def test_each_option_has_a_key_but_those_of_one_call() -> None:
    names = {parameter.name for parameter in program.params} - {"prompt", "version", "help"}
    assert names == {each.name for each in KNOWN}
    of_one_call = names - {each.name for each in KEYS.values()}
    assert of_one_call == {"attach", "latest", "resume", "session", "no_session", "as_json"}


def test_a_flag_beats_the_environment_the_project_and_the_user(tmp_path: Path) -> None:
    user_says(tmp_path, 'model = "offline"\nwindow = 11000\nmax_steps = 7\ncompact-at = 0.5\n')
    project_says(tmp_path, "window = 12000\ncompact-at = 0.6\n")
    env = environment(tmp_path, AGENTLOOP_WINDOW="13k")
    found = shown(tmp_path, env=env)
    assert found["window"] == {"value": "13k", "from": "AGENTLOOP_WINDOW"}
    assert found["compact-at"] == {"value": "0.6", "from": str(tmp_path / ".agentloop.toml")}
    assert found["max-steps"] == {"value": "7", "from": str(tmp_path / "agentloop" / "config.toml")}
    assert found["api"]["from"] == "default"
    ran = agentloop("-p", "Hello.", "--window", "14k", "--json", cwd=tmp_path, env=env)
    assert ran.status == 0, ran.err
    assert "14k" in agentloop("-p", "Hello.", "--window", "14k", cwd=tmp_path, env=env).err
    assert "13k" in agentloop("-p", "Hello.", cwd=tmp_path, env=env).err


def test_a_project_may_stand_in_its_pyproject_above_the_folder(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.agentloop]\nsystem = "Be brief."\ntodo = true\n')
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)
    found = shown(below, env=environment(tmp_path))
    assert found["system"] == {"value": "Be brief.", "from": str(tmp_path / "pyproject.toml")}
    (tmp_path / ".git").rmdir()
    assert shown(below, env=environment(tmp_path))["system"]["from"] == "default"


def test_what_a_file_of_the_system_prompt_says_is_no_default(tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("Be brief.")
    user_says(tmp_path, f'system-file = "{tmp_path}/system.txt"\n')
    found = shown(tmp_path, env=environment(tmp_path))
    assert found["system"] == {"value": "-", "from": "default"}
    assert found["system-file"]["value"] == f"{tmp_path}/system.txt"


def test_a_project_turns_a_switch_of_the_user_off(tmp_path: Path) -> None:
    user_says(tmp_path, 'todo = true\nsystem-file = "not there"\n')
    project_says(tmp_path, 'todo = false\nsystem = "Be brief."\n')
    found = shown(tmp_path)
    assert found["todo"]["from"] == found["system-file"]["from"] == "default"


WANTS_A_YES = [
    'model = "gpt-5-pro"',
    'summary-model = "gpt-5-pro"',
    'tools = ["evil"]',
    'callbacks = ["evil:It"]',
    'redact = "off"',
    'schema = "evil:T"',
    'allow = ["shell"]',
    'base-url = "http://evil.example/v1"',
    'header = ["x-team: us"]',
    'store = "sqlite:////tmp/x.db"',
    'transcripts = "/tmp/x"',
    'system-file = "/etc/passwd"',
    'skills = "/"',
    'workdir = "/"',
    'pass-env = ["OPENAI_ORG"]',
    "max-cost = 1000",
    'extra = {"n" = 1}',
    'owner = "bob"',
]


def test_what_a_project_may_not_say_by_itself_stops_each_call_until_the_yes(tmp_path: Path) -> None:
    for said in WANTS_A_YES:
        project_says(tmp_path, said.replace('{"n" = 1}', "{ n = 1 }"))
        assert "for which it needs your yes" in refused(tmp_path)
        assert refused(tmp_path).endswith("then run `agentloop config trust`")
    project_says(tmp_path, 'owner = "bob"\ntodo = true\n')
    assert agentloop("config", "trust", cwd=tmp_path).complaint().endswith(".agentloop.toml may set owner")
    assert shown(tmp_path)["owner"]["value"] == "bob"
    project_says(tmp_path, 'owner = "ann"\ntodo = true\n')
    assert "needs your yes" in refused(tmp_path), "another value wants another yes"


@pytest.mark.parametrize(
    ("said", "file"),
    [
        ('tools = ["mine"]', "mine.py"),
        ('callbacks = ["kit.mine:It"]', "kit/mine.py"),
        ('callbacks = ["kit.mine:It"]', "kit/__init__.py"),
        ('schema = "kit:T"', "kit/__init__.py"),
        ('mcp = ["servers.json"]', "servers.json"),
        ('system-file = "prompt.md"', "prompt.md"),
        ('skills = "skills"', "skills/write/SKILL.md"),
    ],
)
def test_a_yes_holds_for_files_that_are_named_as_they_are(said: str, file: str, tmp_path: Path) -> None:
    named = tmp_path / file
    named.parent.mkdir(parents=True, exist_ok=True)
    named.write_text("---\nname: write\ndescription: It writes.\n---\nSo.\n")
    project_says(tmp_path, said)
    assert f"with {file} as they are now" in agentloop("config", "trust", cwd=tmp_path).complaint()
    key = said.partition(" ")[0]
    assert shown(tmp_path)[key]["from"].endswith(".agentloop.toml")
    named.write_text(named.read_text() + "More.\n")
    assert "needs your yes" in refused(tmp_path)
    agentloop("config", "trust", cwd=tmp_path)
    assert "faults" not in shown(tmp_path)


@pytest.mark.parametrize("beside", ["mine{}", "mine/__init__.py", "mine/__init__{}", "kit.py", "kit{}"])
def test_a_file_that_python_would_import_first_wants_a_yes_of_its_own(beside: str, tmp_path: Path) -> None:
    for folder in ("mine", "kit"):
        (tmp_path / folder).mkdir()
    for file in ("mine.py", "kit/it.py"):
        (tmp_path / file).write_text("")
    project_says(tmp_path, 'tools = ["mine"]\ncallbacks = ["kit.it:It"]\n')
    agentloop("config", "trust", cwd=tmp_path)
    assert "faults" not in shown(tmp_path)
    (tmp_path / beside.format(EXTENSION_SUFFIXES[0])).write_text("")
    assert "needs your yes" in refused(tmp_path)


@pytest.mark.parametrize("module", ["mine", "kit.mine"])
def test_no_bytecode_runs_in_place_of_the_source_that_a_person_read(module: str, tmp_path: Path) -> None:
    file = tmp_path / f"{module.replace('.', '/')}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text("open('other', 'w').close()\n")
    py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    file.write_text("open('read', 'w').close()\n")
    agentloop("-m", "offline", "-p", "go", "--no-session", "--tools", module, cwd=tmp_path)
    assert (tmp_path / "read").exists()
    assert not (tmp_path / "other").exists()


def test_config_paths_and_doctor_show_what_is_wrong_and_go_on(tmp_path: Path) -> None:
    user_says(tmp_path, 'windw = 7\ntemperature = "hot"\nmax-steps = 9\n')
    project_says(tmp_path, 'tools = ["evil"]\ntodo = true\nsystem = ""\ncompact-at = 7\n')
    env = environment(tmp_path, AGENTLOOP_OWNER="a\tb")
    wrong = ["windw", "temperature", "sets tools", "compact-at", "AGENTLOOP_OWNER"]
    for call, status in (("config", 2), ("paths", 2), ("doctor", 1)):
        done = agentloop(call, cwd=tmp_path, env=env)
        faults = [line for line in done.out.splitlines() if line.startswith("fault\t")]
        assert (done.status, len(faults)) == (status, len(wrong)), done.out
        assert all(any(each in fault for fault in faults) for each in wrong)
        assert len(done.out.splitlines()) > len(faults) + 3
    found = shown(tmp_path, env=env, status=2)
    assert len(found["faults"]) == len(wrong)
    assert (found["max-steps"]["value"], found["todo"]["value"], found["tools"]["value"]) == (
        "9",
        "true",
        "-",
    )
    assert (found["temperature"]["from"], found["compact-at"]["value"]) == ("default", "0.8")
    assert agentloop("-p", "Hi.", cwd=tmp_path, env=env).status == 2


def test_a_file_that_is_none_stops_no_look_at_the_settings(tmp_path: Path) -> None:
    project_says(tmp_path, "todo = ")
    assert "is no TOML" in shown(tmp_path, status=2)["faults"][0]
    for call in ("paths", "doctor"):
        assert "is no TOML" in agentloop(call, cwd=tmp_path).out


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("compact-att = 0.5", "no setting 'compact-att': did you mean 'compact-at'?"),
        ("zzz = 1", "no setting 'zzz': each option that `agentloop --help` lists is one"),
        ('api_key = "x"', "a key stands in no file: set OPENAI_API_KEY"),
        ('resume = "x"', "no setting 'resume': it is of one call alone"),
        ("window = true", "window must be a text or a number, not True"),
        ("window = 'many'", "window: "),
        ("todo = 1", "todo must be true or false, not 1"),
        ("model = ''", "model is empty"),
        ("allow = [1]", "allow must be a list of texts"),
        ("model = ", "is no TOML"),
        ('system = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"', "system holds a secret"),
        ('base-url = "https://me:pa55word-x@host/v1"', "base-url holds a secret"),
        ('header = ["Authorization: Bearer abcdef0123456789"]', "header holds a secret"),
        ("system" + ".a" * 50_000 + " = 1", "a key of more than 20 parts"),
        ("extra" + " . 'a b'" * 50_000 + " = 1", "a key of more than 20 parts"),
        (f"extra = {'{a.b.c.d.e.f.g.h.i = ' * 200}1{'}' * 200}", "extra holds a number too long"),
        (f"timeout = {'9' * 5_000}", "is no TOML"),
        (f"timeout = 0x{'f' * 5_000}", "timeout holds a number too long"),
        ("\n".join(f"a{each} = 1" for each in range(90_000)), "90,000 keys"),
        ("allow = [" + '"a",' * 200_000 + "]", "allow has 200,000 values"),
        (f"skills = '{'a' * 900_000}'", "skills names files in more than 10,000 characters"),
    ],
    ids=lambda text: text[:60],
)
def test_what_a_project_says_wrongly_is_one_line(text: str, fault: str, tmp_path: Path) -> None:
    project_says(tmp_path, text)
    line = refused(tmp_path)
    assert fault in line
    assert ".agentloop.toml" in line


@pytest.mark.parametrize("text", ["tool = 'agentloop'", "tool = 5 # agentloop", "[[tool]]\nagentloop = 1"])
def test_what_is_no_table_of_tools_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert shown(tmp_path)["system"]["from"] == "default"


def test_a_file_that_is_a_pipe_or_no_text_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".agentloop.toml")
    assert "is no file" in refused(tmp_path)
    (tmp_path / ".agentloop.toml").unlink()
    (tmp_path / ".agentloop.toml").write_bytes(b"\xff")
    assert "is not in UTF-8" in refused(tmp_path)


def test_a_setting_is_written_and_taken_out_and_comments_stay(tmp_path: Path) -> None:
    user_says(tmp_path, '# mine\nmodel = "offline" # free\n')
    for call in ("set window 16k", "set tools json os", "set todo true", "unset model"):
        assert agentloop("config", *call.split(), cwd=tmp_path).status == 0
    file = tmp_path / "agentloop" / "config.toml"
    assert file.read_text() == 'todo = true\ntools = ["json", "os"]\nwindow = "16k"\n# mine\n'
    assert file.stat().st_mode & 0o777 == 0o600
    assert "did you mean 'window'" in refused(tmp_path, "config", "set", "windw", "x")
    assert "must be true or false" in refused(tmp_path, "config", "set", "todo", "yes")
    assert "takes one value" in refused(tmp_path, "config", "set", "model", "a", "b")
    assert 'window = "16k"' in file.read_text()


def test_a_setting_over_several_lines_is_changed_as_a_whole() -> None:
    text = 'allow = [\n  "write", # so\n  "shell",\n]\n[extra]\nallow = 1\n'
    assert with_setting(text, "allow", ["write"], "x") == 'allow = ["write"]\n[extra]\nallow = 1\n'


def checked(*options: str, cwd: Path, **more: str) -> tuple[int, dict[str, list[str]]]:
    done = agentloop("doctor", *options, cwd=cwd, env=environment(cwd, **more))
    assert "Traceback" not in done.err
    return done.status, {
        what: [word, said] for word, what, said in (line.split("\t") for line in done.out.splitlines())
    }


def test_the_doctor_says_what_a_server_can(tmp_path: Path) -> None:
    replies = [Reply(calls=(calling("agentloop_check"),)), "It is a whale, they say.\n"]
    with StrictProvider(replies, key="sk-test", model="a-model") as provider:
        status, found = checked(
            "--base-url", provider.url, "-m", "a-model", cwd=tmp_path, OPENAI_API_KEY="sk-test"
        )
        assert status == 0, found
        for what in ("server", "model", "tools", "usage", "streaming", "store", "transcripts"):
            assert found[what][0] == "ok", found
        assert "a-model" in found["server"][1]


def test_the_doctor_names_what_is_wrong_and_the_status_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    call = ("--base-url", "http://127.0.0.1:9/v1", "-m", "x", "--store", "sqlite:///file/x.db")
    status, found = checked(*call, cwd=tmp_path, AGENTLOOP_TRANSCRIPTS="file/below")
    assert status == 1
    assert {what for what, (word, _) in found.items() if word == "fault"} == {
        "server",
        "store",
        "transcripts",
    }
    assert "does not answer: check the address" in found["server"][1]


def test_the_doctor_goes_on_past_a_store_that_is_none(tmp_path: Path) -> None:
    status, found = checked(cwd=tmp_path, AGENTLOOP_STORE="mysql://here")
    assert (status, found["store"][0], found["transcripts"][0]) == (1, "fault", "ok")
    assert "'mysql://here' is no store URL" in found["store"][1]


def test_the_doctor_needs_no_server(tmp_path: Path) -> None:
    status, found = checked(cwd=tmp_path)
    assert status == 0
    assert found["server"][0] == "note"
    assert "there is no store" in found["store"][1]
    assert not (tmp_path / "agentloop").exists()


@pytest.mark.parametrize(
    ("origin", "way"),
    [
        ({}, 'pip install ".[strands]" in a clone'),
        ({"url": f"file://{ROOT}", "dir_info": {}}, f'pip install "{ROOT}[strands]"'),
        (
            {"url": f"file://{ROOT}", "dir_info": {"editable": True}},
            f'pip install -e "{ROOT}[strands]"',
        ),
        (
            {"url": "https://host/it.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            'pip install "agentloop-kit[strands] @ git+https://host/it.git"',
        ),
    ],
)
def test_the_doctor_says_how_an_extra_is_installed(origin: dict[str, Any], way: str, tmp_path: Path) -> None:
    installed = tmp_path / "site" / "agentloop_kit-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: agentloop-kit\nVersion: 1\n")
    (installed / "direct_url.json").write_text(json.dumps(origin))
    env = environment(tmp_path, PYTHONPATH=f"{installed.parent}{os.pathsep}{ROOT}")
    out = agentloop("doctor", cwd=tmp_path, env=env).out
    assert f"note\tstrands\toptional, for our compaction in strands: {way}\n" in out

    missing = "import sys; sys.modules['strands'] = None; import agentloop.integrations.strands"
    done = subprocess.run([sys.executable, "-c", missing], capture_output=True, text=True, env=env)
    assert done.stderr.endswith(f"strands needs the extra 'strands': {way}\n")


def test_paths_say_where_things_lie(tmp_path: Path) -> None:
    out = agentloop("paths", cwd=tmp_path).out
    for each in ("agentloop/config.toml", "agentloop/sessions.db", ".transcripts", "agentloop/history"):
        assert str(tmp_path / each) in out


def test_a_shell_is_told_what_may_come_next(tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_AGENTLOOP_COMPLETE" in agentloop("completion", shell, cwd=tmp_path).out
    assert agentloop("completion", "tcsh", cwd=tmp_path).status == 2
    asked = {"_AGENTLOOP_COMPLETE": "bash_complete", "COMP_WORDS": "agentloop comp", "COMP_CWORD": "1"}
    assert agentloop(cwd=tmp_path, env=asked).out == "plain,compact\nplain,completion\n"


def test_help_names_the_variables_in_groups(tmp_path: Path) -> None:
    out = agentloop("--help", cwd=tmp_path).out
    assert "Limits:" in out
    assert "AGENTLOOP_WINDOW" in out


def test_what_nobody_set_is_shown_as_it_holds(tmp_path: Path) -> None:
    held = {key: setting["value"] for key, setting in shown(tmp_path).items()}
    assert [held[key] for key in ("redact", "todo", "no-stream", "window")] == ["on", "false", "false", "-"]
    agentloop("config", "set", "window", "64k", cwd=tmp_path)
    assert "missing argument 'VALUE…'" in refused(tmp_path, "config", "set", "window")
    for told in ("is taken out", "is not set there"):
        assert agentloop("config", "unset", "window", cwd=tmp_path).err.endswith(f"window {told}\n")
