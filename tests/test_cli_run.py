"""One run from the command line, to its answer or to the end that the exit table has for it."""

import email
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from agentloop.messages import Message
from tests.cli_kit import ROOT, agentloop, command, environment
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import Answered, ExtractiveSummariser, Fault, Raw, Reply, calling

KEY = {"OPENAI_API_KEY": "sk-test"}


@pytest.mark.deep
def test_the_main_job_names_every_file_after_several_compactions(tmp_path: Path) -> None:
    folder = Path(email.__file__).parent
    job = "Read every Python file in this folder and say what each one does."
    done = agentloop("-p", "-", "--workdir", str(folder), "--window", "8k", cwd=tmp_path, stdin=job)
    assert done.status == 0, done.err
    for path in folder.rglob("*.py"):
        assert f"{path.relative_to(folder).as_posix()}: " in done.out
    compactions = done.err.count("⇣ compacted: ")
    transcripts = list((tmp_path / ".transcripts").glob("transcript_*.jsonl"))
    assert (len(transcripts), compactions >= 3) == (1, True)
    for path in transcripts:
        assert all(Message.from_openai(json.loads(line)).role for line in path.read_text().splitlines())
    assert f"{compactions} compactions" in done.err.splitlines()[-4]
    hidden, kept = done.err.splitlines()[-3:-1]
    times, covered, whole = map(int, re.findall(r"\d+", hidden))
    assert hidden.endswith(f"{covered} of this run's {whole} messages are no longer shown to the model")
    assert times == compactions
    assert covered < whole < covered + 20
    files = "1 transcript in .transcripts"
    assert kept == f"kept: all {whole} in the session's log, and {files}"
    exported = agentloop("sessions", "export", done.err.split()[-1], cwd=tmp_path)
    assert len(json.loads(exported.out)) == whole
    go_on = done.err.splitlines()[-1]
    assert f"python -m agentloop --workdir {folder} --window 8k -r " in go_on


def test_standard_output_holds_the_answer_alone(tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(
        "import os\nfrom agentloop import tool\nprint('loading chatty')\n"
        "@tool\ndef shout() -> str:\n    '''Shouts.'''\n    print('from a tool')\n"
        "    os.system('echo from a child')\n    return 'done'\n"
    )
    with StrictProvider([Reply(calls=(calling("shout"),)), "The answer.\n"]) as provider:
        done = agentloop("-p", "go", "--tools", "chatty", "--base-url", provider.url, cwd=tmp_path)
    assert (done.status, done.out) == (0, "The answer.\n")
    for noise in ("loading chatty", "from a tool", "from a child", "shout()"):
        assert noise in done.err
    assert provider.refusals == []


def test_a_server_gets_what_the_flags_say(tmp_path: Path) -> None:
    with StrictProvider(["short"], key="sk-test", model="a-model") as provider:
        done = agentloop(
            *("-p", "hello", "--base-url", provider.url, "-m", "a-model", "--no-stream"),
            *("--system", "Be brief."),
            cwd=tmp_path,
            env=KEY,
        )
    assert done.out == "short\n"
    (body,) = provider.bodies
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
    ]
    assert not body.get("stream")
    names = {tool["function"]["name"] for tool in body["tools"]}
    assert names >= {"list_files", "read_file", "search_files"}
    assert names.isdisjoint({"write_file", "edit_file", "run_command"})


def test_a_server_gets_the_temperature_and_the_fields_of_the_call(tmp_path: Path) -> None:
    with StrictProvider(lambda _: "ok") as provider:
        fields = ("--temperature", "0", "--extra", '{"top_p": 0.9}', "--timeout", "20")
        done = agentloop("-p", "x", "--base-url", provider.url, *fields, "--no-session", cwd=tmp_path)
    assert done.status == 0, done.err
    assert (provider.bodies[0]["temperature"], provider.bodies[0]["top_p"]) == (0, 0.9)


def test_allow_adds_the_tools_that_change_things(tmp_path: Path) -> None:
    with StrictProvider(["ok"]) as provider:
        url = ("--base-url", provider.url)
        assert agentloop("-p", "x", *url, "--allow", "write", "--allow", "shell", cwd=tmp_path).status == 0
    names = {tool["function"]["name"] for tool in provider.bodies[0]["tools"]}
    assert names >= {"write_file", "edit_file", "run_command"}


@pytest.mark.deep
def test_instructions_of_the_project_follow_the_default(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("rules of the root")
    (inner / "AGENTS.md").write_text("rules of b")
    with StrictProvider(["ok"]) as provider:
        agentloop("-p", "x", "--base-url", provider.url, "--workdir", str(inner), cwd=tmp_path)
    system = provider.bodies[0]["messages"][0]["content"]
    assert system.index("careful assistant") < system.index("rules of the root") < system.index("rules of b")


@pytest.mark.deep
def test_a_flag_beats_the_environment(tmp_path: Path) -> None:
    env = {"AGENTLOOP_MODEL": "from-env", "AGENTLOOP_WINDOW": "9k"}
    with StrictProvider(lambda _: "ok") as provider:
        url = ("-p", "x", "--base-url", provider.url, "--json")
        first = agentloop(*url, cwd=tmp_path, env=env)
        second = agentloop(*url, "-m", "from-flag", "--window", "11k", cwd=tmp_path, env=env)
    assert [body["model"] for body in provider.bodies] == ["from-env", "from-flag"]
    windows = [done.events[1]["context"]["window"] for done in (first, second)]
    assert windows == [9_000, 11_000]


def test_json_is_one_object_a_line_and_the_first_names_the_session(tmp_path: Path) -> None:
    done = agentloop("-p", "hello", "--json", "--session", "mine", cwd=tmp_path)
    types = [event["type"] for event in done.events]
    assert types[0] == "run_started"
    assert types[-1] == "run_ended"
    assert {event["session_id"] for event in done.events} == {"mine"}
    assert done.events[-1]["status"] == "answered"


def test_json_at_the_end_is_one_object(tmp_path: Path) -> None:
    done = agentloop("-p", "hello", "--output-format", "json", cwd=tmp_path)
    (result,) = done.events
    assert result["status"] == "answered"
    assert result["session_id"] in done.err
    assert result["error"] is None


@pytest.mark.parametrize("shape", ["json", "stream-json"])
def test_a_wrong_call_has_its_word_in_the_json(shape: str, tmp_path: Path) -> None:
    done = agentloop("-p", "x", "--window", "?", "--output-format", shape, cwd=tmp_path)
    (last,) = done.events
    assert (done.status, last["status"]) == (2, "usage")
    assert "--window" in last["error"]


@pytest.mark.parametrize(
    ("replies", "word", "status", "said"),
    [
        ([Fault(status=401, body={"error": {"message": "no"}})], "failed", 1, "OPENAI_API_KEY"),
        ([Fault(status=404, body={"error": {"message": "no such model"}})], "failed", 1, "gpt-x"),
        ([Fault(status=422, body={"error": {"message": "odd field"}})], "failed", 1, "odd field"),
        ([Fault(status=429, body="", headers={"retry-after": "3600"})], "try_later", 75, "later"),
        ([Fault(status=503, body="", headers={"retry-after": "3600"})], "try_later", 75, "later"),
    ],
)
def test_a_fault_of_the_server_is_one_line(
    replies: list[Fault], word: str, status: int, said: str, tmp_path: Path
) -> None:
    with StrictProvider(replies) as provider:
        url = ("--base-url", provider.url, "-m", "gpt-x", "--window", "32k")
        done = agentloop("-p", "hello", *url, "--json", cwd=tmp_path, env=KEY)
    assert done.status == status
    assert done.events[-1]["status"] == word
    assert said in done.complaint()
    assert "sk-test" not in done.err + done.out
    assert len(provider.requests) == 1


def test_what_is_no_server_is_one_line(tmp_path: Path) -> None:
    with StrictProvider([Fault(status=200, body="<html>hello</html>")]) as provider:
        done = agentloop(
            "-p", "hello", "-m", "m", "--base-url", provider.url, "--window", "32k", cwd=tmp_path
        )
    assert done.status == 1
    assert "check the base URL" in done.complaint()


@pytest.mark.parametrize(
    ("prompt", "window"), [("hello", "300"), ("word " * 9_000, "8k")], ids=["fixed part", "prompt"]
)
def test_what_cannot_fit_is_too_large_and_nothing_is_sent(prompt: str, window: str, tmp_path: Path) -> None:
    with StrictProvider(lambda _: "ok") as provider:
        arguments = ("-p", "-", "--window", window, "--base-url", provider.url, "--json")
        done = agentloop(*arguments, cwd=tmp_path, stdin=prompt)
    assert (done.status, done.events[-1]["status"]) == (5, "too_large")
    assert "window" in done.complaint()
    assert provider.requests == []


def test_a_limit_of_steps_ends_in_order(tmp_path: Path) -> None:
    def never_done(body: Body) -> Reply:
        return Reply(text="still looking", calls=(calling("list_files"),))

    with StrictProvider(never_done) as provider:
        url = ("--base-url", provider.url, "--window", "32k")
        done = agentloop("-p", "look", *url, "--max-steps", "2", "--json", cwd=tmp_path)
    assert (done.status, done.events[-1]["status"]) == (3, "limit")
    assert done.complaint() == "agentloop: the limit of 2 model calls is reached; --max-steps sets it"
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("limit", "output", "reason"),
    [
        (("--max-tokens", "0.1k"), "still looking", "the limit of 100 tokens is reached: "),
        (("--max-seconds", "0.000001"), "", "the limit of 1e-06 seconds is reached: "),
    ],
)
def test_each_limit_ends_a_run_in_order_and_is_named(
    limit: tuple[str, ...], output: str, reason: str, tmp_path: Path
) -> None:
    never_done = Reply(text="still looking", calls=(calling("list_files"),))
    with StrictProvider(lambda _: never_done) as provider:
        options = ("--base-url", provider.url, "--window", "32k", *limit)
        done = agentloop("-p", "look", *options, "--output-format", "json", cwd=tmp_path)
    outcome = json.loads(done.out)
    assert (done.status, outcome["status"], outcome["output"]) == (3, "limit", output)
    assert outcome["error"].startswith(reason)
    assert done.complaint() == f"agentloop: {outcome['error']}; {limit[0]} sets it"
    assert len(provider.requests) == (1 if output else 0)
    assert " ".join(limit) in done.err.splitlines()[-1]


def test_what_costs_nothing_stays_within_any_limit_on_cost(tmp_path: Path) -> None:
    assert agentloop("-p", "hello", "--max-cost", "0.01", cwd=tmp_path).status == 0


def test_a_cost_that_nobody_can_tell_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with StrictProvider(lambda _: "ok") as provider:
        done = agentloop("-p", "x", "--max-cost", "1", "--base-url", provider.url, "--json", cwd=tmp_path)
    assert (done.status, done.events[-1]["status"]) == (2, "usage")
    assert done.complaint().startswith("agentloop: --max-cost: ")
    assert provider.requests == []


@pytest.mark.deep
def test_an_unknown_window_is_asked_for_and_said_where_nobody_knows(tmp_path: Path) -> None:
    for window, notices in ((16_000, 0), (None, 1)):
        listed = {"data": [{"id": "mine", "max_model_len": window}]}
        with StrictProvider(lambda _: "ok", pages={"/v1/models": listed}) as provider:
            options = ("-m", "mine", "--base-url", provider.url)
            done = agentloop("-p", "hello", *options, "--session", "s", cwd=tmp_path)
            assert (done.status, done.out) == (0, "ok\n")
            assert done.err.count("the window of 'mine' is not known: 128k is assumed") == notices
            assert ("/16k " in done.err) == (window is not None)
            assert agentloop("compact", "s", *options, cwd=tmp_path).err.count("is not known") == notices
        assert provider.refusals == []


def test_a_session_goes_on_by_id_prefix_title_and_as_the_newest(tmp_path: Path) -> None:
    with StrictProvider(lambda _: "ok") as provider:
        url = ("--base-url", provider.url, "--window", "32k")
        agentloop("-p", "first", "--session", "abcdef", *url, cwd=tmp_path)
        for number, option in enumerate([("-r", "abcdef"), ("-r", "abc"), ("-r", "first"), ("-c",)], start=2):
            done = agentloop("-p", f"number {number}", *option, *url, cwd=tmp_path)
            assert done.status == 0, done.err
    said = [message["content"] for message in provider.bodies[-1]["messages"] if message["role"] == "user"]
    assert said == ["first", "number 2", "number 3", "number 4", "number 5"]


@pytest.mark.deep
def test_a_prefix_of_several_sessions_is_refused(tmp_path: Path) -> None:
    for name in ("same-1", "same-2"):
        agentloop("-p", "hello", "--session", name, cwd=tmp_path)
    done = agentloop("-p", "x", "-r", "same", cwd=tmp_path)
    assert done.status == 2
    assert "same-1" in done.complaint()


@pytest.mark.deep
def test_no_session_leaves_nothing_behind(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with StrictProvider(ExtractiveSummariser(_reader), window=8_000) as provider:
        url = ("--base-url", provider.url, "--window", "8k")
        done = agentloop("-p", "read", "--no-session", *url, cwd=place, env={"TMPDIR": str(place)})
    assert done.status == 0, done.err
    assert "compacted" in done.err
    assert "-r" not in done.err
    assert "· nothing is stored\n" in done.err
    assert "session " not in done.err
    assert list(place.iterdir()) == []


def _reader(body: Body) -> Reply | str:
    results = sum(message["role"] == "assistant" for message in body["messages"])
    compressed = "Conversation compressed" in json.dumps(body["messages"])
    if compressed:
        return "read enough"
    return Reply(text="words " * 500, calls=(calling("list_files", pattern=f"*.{results}"),))


@pytest.mark.deep
def test_compact_at_off_never_compacts_by_itself(tmp_path: Path) -> None:
    folder = Path(email.__file__).parent
    done = agentloop(
        *("-p", "Read every Python file in this folder and say what each one does."),
        *("--workdir", str(folder), "--compact-at", "off", "--json", "--window", "128k"),
        cwd=tmp_path,
    )
    types = {event["type"] for event in done.events}
    assert types.isdisjoint({"compaction_started", "results_cleared"})


def test_a_pending_run_is_resumed_and_finished_tools_do_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(
        "from agentloop import tool\n@tool\ndef count() -> str:\n    '''Counts.'''\n"
        "    open('ran', 'a').write('x')\n    return 'counted'\n"
    )
    turns: list[Answered | str] = [Reply(calls=(calling("count"),)), Fault(status=401, body=""), "finished"]
    with StrictProvider(turns) as provider:
        options = ("--base-url", provider.url, "--tools", "counting", "--session", "s", "--window", "32k")
        assert agentloop("-p", "go", *options, cwd=tmp_path).status == 1
        done = agentloop(*options, cwd=tmp_path)
    assert (done.status, done.out) == (0, "finished\n")
    assert (tmp_path / "ran").read_text() == "x"


def test_a_database_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "garbage.db").write_bytes(b"this is no database" * 100)
    (tmp_path / "folder.db").mkdir()
    for name in ("garbage.db", "folder.db"):
        done = agentloop("-p", "hello", "--store", f"sqlite:///{tmp_path / name}", cwd=tmp_path)
        assert done.status == 1, done.err
        assert name in done.complaint()
        assert "go on with" not in done.err
    assert (tmp_path / "garbage.db").read_bytes() == b"this is no database" * 100


@pytest.mark.deep
def test_offline_is_said_once_when_it_was_not_chosen(tmp_path: Path) -> None:
    assert agentloop("-p", "x", cwd=tmp_path).err.count("offline model answers") == 1
    assert "offline model answers" not in agentloop("-p", "x", "-m", "offline", cwd=tmp_path).err


def test_no_colour_without_a_terminal(tmp_path: Path) -> None:
    assert "\x1b" not in agentloop("-p", "x", cwd=tmp_path).err


@pytest.mark.deep
def test_the_installed_script_is_the_same_program(tmp_path: Path) -> None:
    program = "import sys; sys.argv[0] = '/bin/agentloop'; from agentloop.cli.main import main; main()"
    done = subprocess.run(
        [command()[0], "-c", program, "-p", "hello"],
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONPATH=str(ROOT)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "go on with: /bin/agentloop -r" in done.stderr


@pytest.mark.deep
def test_models_lists_what_the_server_offers(tmp_path: Path) -> None:
    with StrictProvider(model="a-model") as provider:
        done = agentloop("models", "--base-url", provider.url, cwd=tmp_path)
    assert done.status == 0, done.err
    assert done.out
    offline = agentloop("models", cwd=tmp_path)
    assert (offline.status, offline.out) == (0, "offline\n")
    assert "offline" in offline.err


def test_callbacks_and_tools_by_name_are_used(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from agentloop import Callbacks\n\n"
        "class Watcher(Callbacks):\n    def on_event(self, event):\n"
        "        open('seen', 'a').write(type(event).__name__ + ' ')\n\n"
        "def bare(text: str) -> str:\n    '''Says it back.'''\n    return text\n\n"
        "both = [bare]\nwatcher = Watcher()\n"
    )
    with StrictProvider([Reply(calls=(calling("bare", text="echo"),)), "ok"]) as provider:
        own = ("--tools", "mine:both", "--tools", "mine:bare", "--callbacks", "mine:Watcher")
        url = ("--base-url", provider.url, "--window", "32k", "--callbacks", "mine:watcher")
        done = agentloop("-p", "x", *own, *url, cwd=tmp_path)
    assert (done.status, done.out) == (0, "ok\n"), done.err
    assert (tmp_path / "seen").read_text().split().count("RunEnded") == 2
    assert provider.bodies[1]["messages"][-1]["content"] == "echo"


def test_a_callback_that_fails_is_told_with_its_line_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import json\n\nfrom agentloop import Callbacks\n\n\nclass Bad(Callbacks):\n"
        "    def on_event(self, event):\n        json.loads('no')\n"
    )
    done = agentloop(
        "-p", "hello", "--callbacks", "bad:Bad", "--output-format", "json", "-m", "offline", cwd=tmp_path
    )
    assert done.status == 0
    where = f"{tmp_path / 'bad.py'}:8"
    assert f"! callback Bad.on_event failed at {where}: JSONDecodeError: " in done.err
    (failed,) = json.loads(done.out)["callback_failures"]
    assert (failed["callback"], failed["point"], failed["where"]) == ("Bad", "on_event", where)
    for turn in range(4):
        agentloop("-p", f"Turn {turn}. " + "word " * 400, "-c", cwd=tmp_path)
    by_hand = agentloop("compact", json.loads(done.out)["session_id"], "--callbacks", "bad:Bad", cwd=tmp_path)
    assert f"! callback Bad.on_event failed at {where}: JSONDecodeError: " in by_hand.err


@pytest.mark.deep
def test_another_model_writes_the_summaries(tmp_path: Path) -> None:
    with StrictProvider(ExtractiveSummariser(_reader)) as provider:
        url = ("--base-url", provider.url, "--window", "8k", "-m", "large", "--summary-model", "small")
        assert agentloop("-p", "read", *url, cwd=tmp_path).status == 0
    assert {body["model"] for body in provider.bodies} == {"large", "small"}
    assert all(bool(body.get("tools")) == (body["model"] == "large") for body in provider.bodies)


@pytest.mark.deep
def test_logging_is_there_for_who_asks(tmp_path: Path) -> None:
    quiet = agentloop("-p", "hello", cwd=tmp_path).err
    verbose = agentloop("-p", "hello", "--verbose", cwd=tmp_path).err
    debug = agentloop("-p", "hello", cwd=tmp_path, env={"AGENTLOOP_LOG": "debug"}).err
    assert "run_started" not in quiet
    assert "run_started" in verbose
    assert "message_added" in debug
    wrong = agentloop("-p", "hello", cwd=tmp_path, env={"AGENTLOOP_LOG": "loud"})
    assert wrong.status == 2
    assert "AGENTLOOP_LOG" in wrong.complaint()


def test_lessons_are_listed_and_run(tmp_path: Path) -> None:
    listed = agentloop("lessons", cwd=tmp_path)
    assert listed.status == 0
    assert "l00_chat" in listed.out
    done = agentloop("lessons", "0", cwd=tmp_path)
    assert done.status == 0, done.err
    motto, problem, picture, path = (
        done.out.index(text)
        for text in ("A conversation is a list", "The problem\n", "The picture\n", "lessons/l00_chat.py\n")
    )
    assert 0 == motto < problem < picture < path
    assert "How it works" in done.out[:path]
    source = agentloop("lessons", "0", "--source", cwd=tmp_path)
    assert (source.status, source.out) == (0, (ROOT / "lessons" / "l00_chat.py").read_text("utf-8"))
    assert done.out[path:].strip().count("\n") > 0


@pytest.mark.deep
@pytest.mark.parametrize("shape", ["text", "json", "stream-json"])
def test_a_model_that_answers_nothing_is_asked_thrice(shape: str, tmp_path: Path) -> None:
    with StrictProvider([Reply(text="")] * 3) as provider:
        url = ("--base-url", provider.url, "--window", "32k", "--output-format", shape)
        done = agentloop("-p", "x", *url, cwd=tmp_path)
        assert len(provider.requests) == 3
    assert done.status == 1, done.err
    assert "3 answers in a row were empty" in done.complaint()


@pytest.mark.deep
@pytest.mark.parametrize("shape", ["text", "json", "stream-json"])
@pytest.mark.parametrize(
    ("finish", "by"), [("length", "the output limit"), ("content_filter", "a content filter")]
)
def test_an_answer_that_is_cut_off_is_told(finish: str, by: str, shape: str, tmp_path: Path) -> None:
    with StrictProvider([Reply(text="half of it", finish=finish)]) as provider:
        url = ("--base-url", provider.url, "--window", "32k", "--output-format", shape)
        done = agentloop("-p", "x", *url, cwd=tmp_path)
    assert done.status == 0, done.err
    assert "half of it" in done.out
    assert done.err.count(f"the answer was cut off by {by}\n") == 1
    assert shape == "text" or json.loads(done.out.splitlines()[-1])["reason"] == finish


@pytest.mark.parametrize(
    "body", ["null", "[]", "<html>", "", '{"data":[5]}', '{"data":null}', '{"data":[{}]}']
)
@pytest.mark.deep
def test_a_list_of_models_that_is_none_is_one_line(body: str, tmp_path: Path) -> None:
    with _page_server(body) as url:
        done = agentloop("models", "--base-url", url, cwd=tmp_path)
    assert (done.status, done.out) == (1, ""), done.err
    assert "no list of models" in done.complaint()


@contextmanager
def _page_server(body: str) -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.mark.parametrize("variable", [{"ALL_PROXY": "gopher://x:1"}, {"SSL_CERT_FILE": "/nope"}], ids=str)
def test_a_connection_that_cannot_be_set_up_is_one_line(variable: dict[str, str], tmp_path: Path) -> None:
    done = agentloop("models", "--base-url", "https://localhost:1/v1", cwd=tmp_path, env=variable)
    assert done.status == 2, done.err
    assert "can be set up" in done.complaint()


def test_the_only_model_of_a_server_of_ones_own_answers_unnamed(tmp_path: Path) -> None:
    with StrictProvider(["hello", "again"], model="mine") as provider:
        done = agentloop("-p", "hi", "--base-url", provider.url, "--session", "s", cwd=tmp_path)
        assert (done.status, done.out) == (0, "hello\n"), done.err
        assert "mine · session s" in done.err
        assert agentloop("-p", "hi", "-c", cwd=tmp_path).out == "again\n"
        assert [body["model"] for body in provider.bodies] == ["mine", "mine"]


@pytest.mark.parametrize(
    ("names", "said", "asked"),
    [
        (["b", "a"], "no model is named, and the server has a, b: name one by -m", []),
        (["b", "gpt-5-mini"], "", ["gpt-5-mini"]),
        (
            [],
            "the server says of no model that it has it: gpt-5-mini is asked for; -m names another",
            ["gpt-5-mini"],
        ),
    ],
    ids=["several", "the usual one", "none"],
)
def test_a_server_of_ones_own_is_asked_which_models_it_has(
    names: list[str], said: str, asked: list[str], tmp_path: Path
) -> None:
    listed = {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}
    with StrictProvider(lambda _: "hello", pages={"/v1/models": listed}) as provider:
        done = agentloop("-p", "hi", "--base-url", provider.url, "--no-session", cwd=tmp_path)
    assert said in done.err
    assert (done.status, [body["model"] for body in provider.bodies]) == (0 if asked else 2, asked)


def test_a_server_with_a_key_is_not_asked_which_models_it_has(tmp_path: Path) -> None:
    with StrictProvider(["hello"], key="sk-test") as provider:
        env = {"OPENAI_API_KEY": "sk-test"}
        done = agentloop("-p", "hi", "--base-url", provider.url, "--no-session", cwd=tmp_path, env=env)
    assert (done.status, provider.bodies[0]["model"]) == (0, "gpt-5-mini")


PAGE = Raw(pieces=(b"<!doctype html><html><body>Welcome</body></html>",), content_type="text/html")


def test_a_web_page_in_place_of_an_answer_asks_to_check_the_base_url(tmp_path: Path) -> None:
    with StrictProvider([PAGE]) as provider:
        done = agentloop("-p", "hi", "-m", "m", "--base-url", provider.url, "--no-session", cwd=tmp_path)
    hint = "check the base URL, which often ends in /v1; a proxy on the way may answer in its place"
    assert (done.status, f"the server's answer is a web page: {hint}" in done.err) == (1, True)


def test_work_in_the_background_is_stopped_at_the_end_of_a_run_and_that_is_said(tmp_path: Path) -> None:
    asked = 'run_in_background(command="sleep 300")'
    more = ("-m", "offline", "--no-session", "--background")
    done = agentloop("-p", asked, *more, "--allow", "shell", cwd=tmp_path)
    assert (done.status, " ended: stopped, since its run ended] sleep 300\n" in done.err) == (0, True), (
        done.err
    )
    done = agentloop("-p", asked, *more, cwd=tmp_path)
    assert (done.status, done.complaint()) == (
        2,
        "agentloop: --background runs commands: give --allow or --ask shell too",
    )


@pytest.mark.deep
def test_a_share_that_the_fixed_parts_are_above_is_said_once(tmp_path: Path) -> None:
    call = ("-m", "offline", "--window", "8k", "--compact-at", "5%", "--session", "s")
    done = agentloop("-p", "Hello", *call, cwd=tmp_path)
    assert "at which it is to compact, so no compaction gets there: let it do so later" in done.err
