"""The parts of the command line that are functions: what they say for what they are given."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from agentloop import Todo
from agentloop.cli.answer_writer import json_line
from agentloop.cli.approvals import GIVEN_BY
from agentloop.cli.build import DEFAULT, LONGEST_CHARS, build, default_instructions, load_tools
from agentloop.cli.chat import command_in
from agentloop.cli.durable import RunEdges
from agentloop.cli.progress import (
    EventLines,
    RunFigures,
    bar,
    call_text,
    compaction_report,
    dollars,
    short,
    status_line,
)
from agentloop.cli.settings import ENVIRONMENT, settings_for
from agentloop.cli.terminal import printable
from agentloop.errors import UsageError
from agentloop.messages import Message, Usage
from agentloop.run import Limits
from agentloop.stream import (
    CallbackFailed,
    CompactionEnded,
    CompactionStarted,
    ContextStatus,
    ContextWarning,
    MessageAdded,
    ResultsCleared,
    Retrying,
    RunEnded,
    RunStarted,
    StreamEvent,
    ToolEnded,
    ToolStarted,
)

AT: dict[str, Any] = {"session_id": "s", "run_id": "r", "time": 1.0}


def answered(
    *, tokens: int = 9, usage: Usage | None = None, cost: float | None = None, seq: int = 1
) -> MessageAdded:
    status = ContextStatus(tokens=tokens, window=128_000, threshold=102_400, measured=True)
    message = Message.assistant("x")
    return MessageAdded(**AT, seq=seq, message=message, tokens=1, context=status, usage=usage, cost=cost)


def compaction(status: Literal["done", "failed"] = "done", error: str | None = None) -> CompactionEnded:
    return CompactionEnded(
        **AT,
        compaction_id="c",
        status=status,
        reason="threshold",
        strategy="s",
        tier=1,
        tokens_before=102_500,
        tokens_after=30_000,
        messages_before=80,
        messages_after=12,
        archived=tuple(range(1, 71)),
        transcript="transcript_1.jsonl",
        duration_seconds=2.5,
        summary_tokens=900,
        lost=(),
        error=error,
    )


def tally_of(*events: StreamEvent) -> RunFigures:
    tally = RunFigures()
    for event in events:
        tally.add(event)
    return tally


def test_the_status_line_is_what_people_ask_for() -> None:
    used = Usage(input_tokens=100_000, output_tokens=10, cached_tokens=91_000)
    tally = tally_of(
        RunStarted(**AT, model="gpt-5-mini"),
        compaction(),
        compaction(status="failed"),
        compaction(),
        answered(tokens=52_100, usage=used, cost=0.42),
    )
    assert status_line(tally) == (
        "gpt-5-mini · 52.1k/128k 41% (measured) · auto at 102k · 2 compactions · $0.42 · cache 91%"
    )


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (81_919, "81.9k/128k 64% (measured) · auto at 102k"),
        (81_920, "81.9k/128k 64% (measured) · auto at 102k, 80% of it: warning"),
        (95_000, "95k/128k 74% (measured) · auto at 102k, 93% of it: critical"),
        (116_000, "116k/128k 91% (measured): critical · auto at 102k, 113% of it: critical"),
    ],
)
def test_the_status_line_has_the_levels_of_the_line_and_of_the_window(tokens: int, says: str) -> None:
    status = ContextStatus(tokens=tokens, window=128_000, threshold=102_400, measured=True)
    assert status_line(RunFigures(model="m", context=status)) == f"m · {says} · 0 compactions"


def test_the_status_line_leaves_out_what_is_not_known() -> None:
    assert status_line(RunFigures(model="m", earlier=1)) == "m · 1 compaction"
    off = ContextStatus(tokens=0, window=8_000, threshold=None, measured=False)
    assert (
        status_line(RunFigures(model="m", context=off))
        == "m · 0/8k 0% (estimated) · auto off · 0 compactions"
    )


def test_the_report_tells_the_messages_of_the_run_from_those_before_it() -> None:
    tally = tally_of(*(answered(seq=seq) for seq in (8, 9, 10)))
    tally.add(replace(compaction(), archived=(2, 3, 9), transcript=None))
    assert compaction_report(tally, Path(".transcripts")) == (
        "compacted once: 1 of this run's 3 messages and 2 of earlier runs are no longer shown to the model",
        "kept: all of them in the session's log, and 0 transcripts in .transcripts",
    )


@pytest.mark.parametrize(
    ("cost", "text"),
    [(0.0, "$0.00"), (2e-9, "less than $0.0001"), (0.0421, "$0.0421"), (0.1, "$0.10"), (12.345, "$12.35")],
)
def test_costs_as_people_read_them(cost: float, text: str) -> None:
    assert dollars(cost) == text


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1k"),
        (52_149, "52.1k"),
        (102_400, "102k"),
        (999_499, "999k"),
        (999_500, "1m"),
        (1_050_000, "1.1m"),
    ],
)
def test_tokens_as_people_read_them(tokens: int, text: str) -> None:
    assert short(tokens) == text


def test_the_bar_marks_where_compaction_fires() -> None:
    status = ContextStatus(tokens=64_000, window=128_000, threshold=102_400, measured=True)
    assert bar(status) == "━━━━━───┃─"


def test_each_happening_has_its_line_in_words() -> None:
    happenings = EventLines()
    assert happenings.line(ToolStarted(**AT, call_id="1", name="read", arguments='{"path":"a.py"}')) is None
    told = [
        str(happenings.line(event))
        for event in (
            ToolEnded(**AT, call_id="1", name="read", status="timeout", duration_seconds=120.0),
            ToolEnded(**AT, call_id="2", name="other", status="ok", duration_seconds=0.04),
            ResultsCleared(**AT, positions=(3,), tokens_before=9_000, tokens_after=4_000),
            CompactionStarted(
                **AT, compaction_id="c", reason="threshold", why="tokens 81,204 > 80,000", strategy="s",
                tokens_before=1, messages_before=1, first=1, last=2,
            ),
            compaction(),
            CompactionStarted(
                **AT, compaction_id="d", reason="threshold", why="tokens 81,204 > 80,000", strategy="s",
                tokens_before=30_000, messages_before=1, first=1, last=2,
            ),
            replace(compaction(), archived=(), shortened=(3, 4)),
            compaction("failed", "the summary\nwas blank"),
            Retrying(**AT, attempt=2, wait_seconds=1.5, error="busy"),
            CallbackFailed(**AT, callback="Mine", point="on_event", error="ValueError: x", where="my.py:7"),
            ContextWarning(**AT, level="critical", tokens=120_000, window=128_000),
        )
    ]  # fmt: skip
    assert told == [
        '• read(path="a.py") 120s timeout',
        "• other 0.0s",
        "⇣ micro: 1 old message shortened, 9k → 4k tokens",
        "⇣ compacting (threshold: tokens 81,204 > 80,000)",
        "⇣ compacted: 102k → 30k tokens, 80 → 12 messages, 2.5s, transcript_1.jsonl",
        "⇣ compacting on (30k tokens are still over the target)",
        "⇣ compacted: 102k → 30k tokens, 2 old messages shortened, 2.5s, transcript_1.jsonl",
        "⇣ not compacted, failed: the summary was blank",
        "↻ try 2 failed, again in 1.5s: busy",
        "! callback Mine.on_event failed at my.py:7: ValueError: x",
        "! the window is nearly full: 120k of 128k tokens",
    ]


def test_a_worker_says_which_runs_begin_go_on_here_and_end() -> None:
    edges = RunEdges()
    ended = RunEnded(**AT, status="failed", output="", usage=Usage(), cost=None, error="no such model")
    taken = replace(answered(tokens=1), run_id="taken over")
    told = [edges.line(event) for event in (RunStarted(**AT, model="m"), answered(tokens=1), taken, taken)]
    assert told == ["run r begins, session s", None, "run taken over goes on here, session s", None]
    assert [edges.line(ended), edges.line(answered(tokens=1))] == [
        "run r failed: no such model",
        "run r goes on here, session s",
    ]


def test_no_line_of_a_run_steers_a_terminal() -> None:
    bad = "x\x1b[2J\x07\ny\u202e"
    happenings = EventLines()
    told = [
        str(happenings.line(event))
        for event in (
            RunStarted(**AT, model=bad),
            ToolEnded(**AT, call_id="2", name=bad, status="ok", duration_seconds=0.04),
            CompactionStarted(
                **AT, compaction_id="c", reason="threshold", why=bad, strategy="s",
                tokens_before=1, messages_before=1, first=1, last=2,
            ),
            replace(compaction(), transcript=bad),
            compaction("failed", bad),
            Retrying(**AT, attempt=2, wait_seconds=1.5, error=bad),
            CallbackFailed(**AT, callback=bad, point="on_event", error=bad),
        )
    ]  # fmt: skip
    assert [line for line in told if not line.isprintable()] == []
    assert call_text(bad, "{").isprintable()
    assert call_text(bad, json.dumps({bad: bad})).isprintable()
    assert status_line(RunFigures(model=bad)).isprintable()


@pytest.mark.parametrize(
    "arguments",
    ["", "{}", "{", "[]", "null", '{"a": "' + "x" * 9_000 + '"}', '{"a": "\\u001b[2J\\n"}', "[" * 100_000],
    ids=len,
)
def test_a_call_in_brief_is_one_short_line(arguments: str) -> None:
    brief = call_text("read", arguments)
    assert brief.startswith("read(")
    assert len(brief) <= 100
    assert brief.isprintable()


def test_nothing_steers_a_terminal() -> None:
    assert printable("a\x1b[2Jb\r\nc\td\x9b\x07") == "a�[2Jb\nc\td��"


def test_instructions_are_cut_to_their_share_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("rule " * 20_000)
    text, notice = default_instructions(tmp_path, window=None)
    assert text.startswith(DEFAULT)
    assert len(text) < LONGEST_CHARS + 1_000
    assert "[cut:" in text
    assert notice is not None
    assert "AGENTS.md" in notice
    small, _ = default_instructions(tmp_path, window=8_000)
    assert len(small) < 4_000 + 1_000


def test_a_folder_without_a_project_has_its_own_instructions_alone(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "AGENTS.md").write_text("above")
    (inner / "AGENTS.md").write_bytes("here".encode("utf-16"))
    text, notice = default_instructions(inner, window=None)
    assert "here" in text
    assert "above" not in text
    assert notice is None


def test_settings_without_anything_are_the_defaults(tmp_path: Path) -> None:
    settings = settings_for({}, {"AGENTLOOP_HOME": str(tmp_path)})
    assert (settings.model, settings.model_is_fallback) == ("offline", True)
    assert settings.store == f"sqlite:///{tmp_path / 'sessions.db'}"
    assert (settings.compact_at, settings.max_steps, settings.window) == (0.8, 200, None)
    assert settings.transcripts == Path(".transcripts")


@pytest.mark.parametrize("reach", [{"OPENAI_API_KEY": "k"}, {"OPENAI_BASE_URL": "http://localhost:1/v1"}])
def test_with_a_key_or_a_server_the_default_is_a_small_model(reach: dict[str, str]) -> None:
    settings = settings_for({}, reach)
    assert settings.model.startswith("gpt-")
    assert not settings.model_is_fallback


def test_every_variable_is_heard_and_an_empty_one_is_none() -> None:
    values = {
        "model": "m",
        "base_url": "https://x/v1",
        "api_key": "k",
        "summary_model": "s",
        "store": "memory:",
        "window": "16k",
        "compact_at": "70%",
        "transcripts": "t",
    }
    settings = settings_for({}, {ENVIRONMENT[name]: value for name, value in values.items()})
    assert (settings.model, settings.base_url, settings.api_key) == ("m", "https://x/v1", "k")
    assert (settings.summary_model, settings.store, settings.window) == ("s", "memory:", 16_000)
    assert (settings.compact_at, settings.transcripts) == (0.7, Path("t"))
    assert settings_for({}, dict.fromkeys(ENVIRONMENT.values(), " ")).model == "offline"


def test_limits_are_read_as_people_write_them() -> None:
    limits = settings_for({"max_tokens": "1.5m", "max_cost": "0.5", "max_seconds": "90"}, {}).limits
    assert limits == Limits(tokens=1_500_000, cost=0.5, seconds=90)
    assert settings_for({}, {}).limits == Limits()


def test_compaction_can_be_switched_off() -> None:
    assert settings_for({"compact_at": "off"}, {}).compact_at is None


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ("hello", None),
        ("/etc/hosts says what?", None),
        ("what is /help", None),
        ("/help", ("help", "")),
        ("/Help", ("help", "")),
        ("?", ("help", "")),
        ("/?", ("help", "")),
        ("exit", ("exit", "")),
        ("Quit", ("quit", "")),
        ("exit the loop", None),
        ("/compact the parsers\nand more", ("compact", "the parsers\nand more")),
    ],
)
def test_what_is_a_command_of_the_chat(message: str, command: tuple[str, str] | None) -> None:
    assert command_in(message) == command


def test_a_line_of_json_is_strict_whatever_is_in_it() -> None:
    line = json_line({"a": float("nan"), "b": "\ud800", "c": ("é", Path("p"))})
    assert json.loads(line.encode("utf-8")) == {"a": None, "b": "?", "c": ["é", "p"]}
    assert line.endswith("\n")


def test_instructions_never_come_from_outside_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (tmp_path / "secret").write_text("the secret")
    (project / "AGENTS.md").symlink_to(tmp_path / "secret")
    text, notice = default_instructions(project, window=None)
    assert text == DEFAULT
    assert notice is not None
    assert "leads out of the project" in notice
    (project / "AGENTS.md").unlink()
    (project / "RULES.md").write_text("rules of the project")
    (project / "AGENTS.md").symlink_to("RULES.md")
    text, notice = default_instructions(project, window=None)
    assert "rules of the project" in text
    assert notice is None


def test_the_scheme_of_a_server_may_be_written_large() -> None:
    assert settings_for({"base_url": "HTTP://localhost/v1"}, {}).base_url == "HTTP://localhost/v1"


@pytest.mark.parametrize(("flags", "recalls"), [({}, True), ({"no_recall": True}, False)])
def test_what_was_hidden_can_be_recalled_unless_that_is_switched_off(
    flags: dict[str, Any], recalls: bool
) -> None:
    assert build(settings_for(flags, {})).agent.recall is recalls


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """A folder with one skill."""
    (tmp_path / "skills/tea").mkdir(parents=True)
    (tmp_path / "skills/tea/SKILL.md").write_text("---\nname: tea\ndescription: Tea.\n---\nBoil it.\n")
    return tmp_path / "skills"


def test_sets_of_tools_are_offered_to_who_asks_for_them(skills: Path) -> None:
    plain = build(settings_for({}, {})).agent
    asked = {"todo": True, "skills": str(skills), "background": True, "allow": ("shell", "write")}
    agent = build(settings_for(asked, {})).agent
    more = set(agent.registry) - set(plain.registry)
    assert more == {
        *("todo_write", "todo_read", "read_skill"),
        *("run_command", "run_in_background", "check", "stop"),
        *("write_file", "edit_file"),
    }
    assert more == set(GIVEN_BY)
    assert plain.tool_sets == ()
    assert "- tea: Tea." in (agent.system or "")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"skills": "nowhere"}, "--skills: folder 'nowhere' is not there: name a folder with skills"),
        ({"skills": "."}, "--skills: there is no skill in '.': one is a folder with a SKILL.md"),
        ({"background": True}, "--background runs commands: give --allow or --ask shell too"),
        (
            {"background": True, "allow": ("write",)},
            "--background runs commands: give --allow or --ask shell too",
        ),
    ],
)
def test_sets_of_tools_that_cannot_be_had_are_refused_in_one_line(
    flags: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        build(settings_for(flags, {}))
    assert str(caught.value) == why


def test_a_set_of_ones_own_is_loaded_as_a_tool_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house_sets.py").write_text("from agentloop import Todo\nlist_of_house = Todo()\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("house_sets", "house_sets:list_of_house"):
        [loaded] = load_tools([name])
        assert isinstance(loaded, Todo)
    with pytest.raises(UsageError, match="type is no tool: name a function or a list of them"):
        load_tools(["house_sets:Todo"])
