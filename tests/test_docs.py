"""What README and docs say is so: every block runs, every name is there, and every option stands in them."""

import ast
import asyncio
import builtins
import importlib
import importlib.util
import inspect
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click
import pytest

import agentloop
from agentloop import MicroCompact, strategies, stream, triggers
from agentloop.cli.app import COMMANDS, EXIT_STATUS, load, program
from agentloop.cli.chat import HELP
from agentloop.cli.compact import STRATEGIES
from agentloop.cli.options import LOG_VARIABLE
from agentloop.cli.settings import ENVIRONMENT
from tests import engine_kit
from tests.cli_kit import ROOT
from tests.cli_kit import agentloop as call
from tests.nets.surface import names_of
from tests.strict_provider import StrictProvider

pytestmark = pytest.mark.whole

PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
}
PUBLIC = (
    *("stores", "stores.base", "stores.lines", "strategies", "triggers", "stream", "testing", "workspace"),
    *(
        "compaction",
        "durable",
        "errors",
        "models",
        "codec",
        "events",
        "integrations.mcp",
        "integrations.otel",
    ),
)

FRAMEWORKS = {"CompactConversation", "CompactHistory", "CompactInput", "CompactMiddleware", "CompactSession"}
"""What the doors to frameworks have, which are not installed here."""

FENCE = re.compile(r"^```(\S*) *(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
MOST_WORDS = 20
"""A sentence that says one idea needs no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code, and where it stands."""

    page: str
    language: str
    kind: str
    text: str


BLOCKS = [
    Block(page=page, language=language, kind=kind, text=text)
    for page, whole in PAGES.items()
    for language, kind, text in FENCE.findall(whole)
]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SCRIPTS = [block for block in PYTHON if not block.kind and "DATABASE" not in block.text]
SHELL = [block for block in BLOCKS if block.language == "sh" or ".venv/bin/" in block.text]


def one(blocks: Sequence[Block], words: str) -> Block:
    """The one block that holds these words."""
    (found,) = (block for block in blocks if words in block.text)
    return found


def label(block: Block) -> str:
    """Its page, and the first line that tells it from others."""
    return f"{block.page}:{BLOCKS.index(block) if block in BLOCKS else 0}"


def spans(page: str) -> list[str]:
    """The page's code within sentences and tables."""
    return SPAN.findall(FENCE.sub("", PAGES[page]).replace("\\|", "¦"))


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the tables under a heading, without their heads."""
    section = re.split(r"^#+ ", PAGES[page], flags=re.MULTILINE)
    (text,) = (part for part in section if part.partition("\n")[0] == heading)
    lines = [
        line.replace("\\|", "¦").strip("|").split("|") for line in text.splitlines() if line.startswith("|")
    ]
    heads = {at - 1 for at, cells in enumerate(lines) if set("".join(cells)) <= set("-")}
    return [[cell.strip() for cell in cells] for at, cells in enumerate(lines) if not {at, at - 1} & heads]


def first_names(page: str, heading: str) -> set[str]:
    """The code in the first cells of the tables under a heading."""
    return {name for cells in rows(page, heading) for name in SPAN.findall(cells[0])}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with what the blocks read, and no key."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("one two three")
    (tmp_path / "agentloop").mkdir()
    for name in ("agentloop/cli", "lessons"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def ran(block: Block) -> dict[str, Any]:
    """Its names, once it has run as a file does."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(block.text, label(block), "exec"), names)
    return names


@pytest.mark.parametrize("block", SCRIPTS, ids=label)
def test_every_script_runs_as_it_stands(
    block: Block, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ran(block)
    if "app" not in names and "store_contract" not in names:
        assert capsys.readouterr().out
    if "app" in names:
        asyncio.run(names["runner"].close())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("def word_count", "says: 3"),
        ("self.facts = []", "(8, 'Door 1 opens with 1001')"),
        ('f"Note {n}: "', "60 became 17 by KeepRecentFraction"),
    ],
)
def test_the_scripts_of_the_readme_say_what_they_are_for(
    words: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(one([block for block in PYTHON if block.page == "README.md"], words))
    assert said in capsys.readouterr().out


def test_the_first_script_speaks_to_a_server_where_there_is_a_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with StrictProvider(["It is three."], key="sk-test", model="gpt-5-mini") as provider:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        ran(one(PYTHON, "def word_count"))
    assert capsys.readouterr().out.startswith("It is three.")


async def test_cells_of_a_notebook_run_one_after_the_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = (block for block in PYTHON if block.kind == "notebook")
    code = compile(cell.text, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, {})
    assert "My door is green" in capsys.readouterr().out


async def test_the_web_server_streams_events(folder: Path) -> None:
    names = ran(one(PYTHON, "FastAPI"))

    async def get(path: str, query: bytes) -> tuple[int, str]:
        sent: list[Mapping[str, Any]] = []
        waiting = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Mapping[str, Any]:
            if not waiting:
                await asyncio.Event().wait()  # a client that stays and says nothing more
            return waiting.pop()

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "query_string": query}
        await names["app"](
            {**scope, "headers": [], "http_version": "1.1", "asgi": {"version": "3.0"}}, receive, send
        )
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent).decode()

    status, body = await get("/chat/doors", b"prompt=hello")
    assert status == 200
    events = [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line]
    assert (events[0]["type"], events[-1]["type"]) == ("run_started", "run_ended")
    for path, query in (
        ("/chat/a b", b"prompt=hello"),
        ("/chat/.a", b"prompt=hello"),
        ("/chat/a", b"prompt="),
    ):
        assert (await get(path, query))[0] == 422
    await names["runner"].close()


@pytest.mark.deep
@pytest.mark.parametrize(("words", "told"), [("queue.submit", "answered "), ("Worker(team", "team.")])
def test_a_durable_run_is_submitted_and_done(
    database: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    told: str,
) -> None:
    monkeypatch.setenv("DATABASE", database)
    ran(one(PYTHON, words))
    assert capsys.readouterr().out.startswith(told)


def test_examples_import_only_what_is_public() -> None:
    imported = {
        (node.module, alias.name)
        for block in PYTHON
        if block.kind != "framework"
        for node in ast.walk(
            compile(block.text, "", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        )
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "agentloop"
        for alias in node.names
    }
    modules = {"agentloop", *(f"agentloop.{name}" for name in PUBLIC)}
    assert {module for module, _ in imported} <= modules
    assert {name for module, name in imported if module == "agentloop"} <= set(agentloop.__all__)


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command in it."""
    for line in block.text.splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command: list[str] = []
        for word in [*words, ";"]:
            if word in ("|", "||", "&&", ";", "&"):
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def of_ours(command: Sequence[str]) -> list[str] | None:
    """The arguments where it calls this program, else None."""
    if Path(command[0]).name == "agentloop":
        return list(command[1:])
    return list(command[3:]) if list(command[1:3]) == ["-m", "agentloop"] else None


def runs_alone(arguments: Sequence[str]) -> bool:
    """Whether it needs no terminal, no server and no database."""
    return "offline" in arguments or (arguments[:1] in (["demo"], ["lessons"], ["sessions"]))


@pytest.mark.parametrize("block", SHELL, ids=label)
def test_every_block_for_a_shell_is_one(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for command in commands(block):
        if Path(command[0]).name.startswith("python") and command[1:2] == ["-m"]:
            assert importlib.util.find_spec(command[2]), command
        for word in command:
            if re.fullmatch(r"tests/[\w/]+\.py", word):
                assert (ROOT / word).is_file()


@pytest.mark.parametrize("block", SHELL, ids=label)
def test_every_call_of_the_program_is_understood(block: Block, tmp_path: Path) -> None:
    for arguments in filter(None, map(of_ours, commands(block))):
        done = call(*arguments, "--help", cwd=tmp_path)
        assert (done.status, done.err) == (0, ""), arguments


def command_under(heading: str) -> str:
    """The code block under a heading of the README, as `.ci/run` reads it."""
    section = re.split(r"^## ", PAGES["README.md"], flags=re.MULTILINE)
    (text,) = (part for part in section if part.partition("\n")[0] == heading)
    return str(FENCE.findall(text)[0][2])


@pytest.mark.deep
@pytest.mark.parametrize("block", SHELL, ids=label)
def test_every_call_that_needs_nothing_else_runs(block: Block, folder: Path) -> None:
    for arguments in filter(None, map(of_ours, commands(block))):
        if runs_alone(arguments) and block.text != command_under("Run it"):
            done = call(*arguments, cwd=folder)
            assert done.status == 0, done.err


@pytest.mark.parametrize("heading", ["Run it", "Test it"])
def test_the_commands_of_the_readme_are_one_line_each(heading: str) -> None:
    command = command_under(heading)
    assert command.count("\n") == 1
    assert "$(" not in command


@pytest.mark.deep
def test_the_main_job_says_at_its_end_what_was_compacted_and_kept(folder: Path) -> None:
    block = one(SHELL, command_under("Run it"))
    (arguments,) = filter(None, map(of_ours, commands(block)))
    done = call(*arguments, cwd=folder)
    times, hidden, whole = map(int, re.findall(r"\d+", done.err.splitlines()[-3]))
    assert times >= 3
    assert hidden < whole
    assert done.err.splitlines()[-2].startswith(f"kept: all {whole} in the session's log, and ")


def test_the_figure_of_the_demonstration_is_the_one_it_prints(tmp_path: Path) -> None:
    (died, turns) = re.findall(r"dies at request (\d+) of (\d+)", PAGES["README.md"])[0]
    said = call("demo", cwd=tmp_path).out
    assert f"dead at turn {died} of {turns}" in said
    assert f"{turns} of {turns} turns" in said


def anchors(page: str) -> set[str]:
    """Where links within the page may point."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", PAGES[page]), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target in LINK.findall(FENCE.sub("", PAGES[page])):
        path, _, anchor = target.partition("#")
        if target.startswith("https://"):
            continue
        there = (ROOT / page).parent / path if path else ROOT / page
        assert there.is_file(), target
        if anchor:
            assert anchor in anchors(str(there.resolve().relative_to(ROOT))), target


def test_every_page_is_reached_from_the_readme() -> None:
    linked = {target.partition("#")[0] for target in LINK.findall(PAGES["README.md"])}
    assert {*PAGES, "docs/llms.txt"} - {"README.md"} <= linked


def test_every_page_is_named_for_models_and_their_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "llms.txt").read_text("utf-8")
    linked = [(ROOT / "docs" / target).resolve() for target in LINK.findall(text)]
    assert {str(path.relative_to(ROOT)) for path in linked} == set(PAGES)
    ((language, kind, example),) = FENCE.findall(text)
    ran(Block(page="docs/llms.txt", language=language, kind=kind, text=example))
    assert capsys.readouterr().out == "double(number=21) says: 42\n"


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_file_that_is_named_is_there(page: str) -> None:
    for span in spans(page):
        if re.match(r"(tests|docs|lessons|agentloop|\.ci)/", span):
            assert (ROOT / span.split()[0]).exists(), span
        if found := re.match(r"(?:\S*python )?-m (tests\.[\w.]+)", span):
            assert importlib.util.find_spec(found[1]), span


def test_every_place_in_the_figures_of_the_internals_is_there() -> None:
    figures = "".join(text for _, _, text in FENCE.findall(PAGES["docs/internals.md"]))
    places = re.findall(r"(?<![\w./])(?:[a-z_]+/)+[a-z_]+(?:\.py\b|\.\w+)?", figures)
    assert len(places) > 15
    for place in places:
        path, _, name = place.removesuffix(".py").partition(".")
        module = importlib.import_module(".".join(["agentloop", *path.split("/")]))
        assert not name or hasattr(module, name), place
    source = "".join(path.read_text("utf-8") for path in (ROOT / "agentloop").rglob("*.py"))
    made = set(re.findall(r"\b(?:class|def) (\w+)|^ *(\w+)(?=: | = )", source, re.MULTILINE))
    known = {name for names in made for name in names} | {"OpenAI"}
    for name in re.findall(r"\b(?:[A-Z][a-z]+[A-Z]\w+|_\w+|\w+(?=\())", figures):
        assert name in known, name


def public_names() -> set[str]:
    """What can be imported from a public place."""
    modules = [importlib.import_module(f"agentloop.{name}") for name in PUBLIC]
    return {*agentloop.__all__, *FRAMEWORKS}.union(*(dir(module) for module in modules))


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_class_that_is_named_is_public(page: str) -> None:
    known = public_names() | {*dir(builtins), "FastAPI"}
    for span in spans(page):
        for name in re.findall(r"(?<![\w.{“])[A-Z][a-z]+(?:[A-Z][A-Za-z]*)+(?=\W|$)", span):
            assert name in known, span
        if found := re.match(r"agentloop((?:\.\w+)+)", span):
            module, _, name = found[0].rpartition(".")
            place = importlib.import_module(module)
            assert hasattr(place, name) or importlib.util.find_spec(found[0]), span


def all_commands() -> dict[str, click.Command]:
    """Each command by its words; the program itself by none."""
    found: dict[str, click.Command] = {"": program}
    for name, (place, _) in COMMANDS.items():
        command = load(place)
        inner = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {each}": one for each, one in inner.items()} or {name: command}
    return found


def long_options(command: click.Command) -> set[str]:
    """Its options by their long names."""
    names = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return {name for name in names if name.startswith("--")} - {"--help"}


def run_tables() -> list[list[str]]:
    return rows("docs/command-line.md", "Options of a run and of the chat")


def test_every_option_of_a_run_stands_in_its_tables_and_no_other() -> None:
    said = {name for cells in run_tables() for name in OPTION.findall(cells[0])}
    assert said - {"--help"} == long_options(program)
    short = {name for each in program.params for name in each.opts if re.fullmatch("-[a-z]", name)}
    assert {name for cells in run_tables() for name in re.findall(r"(?<!\S)`(-[a-z])`", cells[0])} == {
        *short,
        "-h",
    }


@pytest.mark.parametrize("name", sorted(set(all_commands()) - {""}))
def test_every_option_of_a_command_stands_in_its_row_and_no_other(name: str) -> None:
    command = all_commands()[name]
    tables = [*rows("docs/command-line.md", "Commands"), *rows("docs/durable.md", "Durable runs")]
    mine = [cells for cells in tables if re.match(rf"`{name}\b", cells[0])]
    assert mine
    said = {option for cells in mine for option in OPTION.findall(" ".join(cells))}
    shared = (
        long_options(program)
        if name in ("approve", "compact", "worker")
        else {"--store", "--owner", "--redact", "--base-url", "--header"}
    )
    assert said - {"--help"} <= long_options(command)
    assert long_options(command) - shared <= said


def test_every_option_that_a_page_names_is_one() -> None:
    known = {option for command in all_commands().values() for option in long_options(command)} | {"--help"}
    named = {option for page in PAGES for span in spans(page) for option in OPTION.findall(span)}
    assert named - known == set()


def test_every_command_is_named_and_no_other() -> None:
    named = {name.split()[0] for name in first_names("docs/command-line.md", "Commands")}
    assert named == set(COMMANDS)
    inner = {" ".join(name.split()[:2]) for name in first_names("docs/command-line.md", "Commands")}
    assert {name for name in inner if name.startswith("sessions ")} - {"sessions …"} == {
        name for name in all_commands() if name.startswith("sessions ")
    }


def test_every_variable_stands_in_the_table_and_no_other() -> None:
    table = {
        SPAN.findall(cells[0])[0]: cells[1] for cells in rows("docs/command-line.md", "Environment variables")
    }
    assert set(table) == {*ENVIRONMENT.values(), LOG_VARIABLE, "NO_COLOR"}
    flags = {variable: name.replace("_", "-") for name, variable in ENVIRONMENT.items()}
    for variable, name in flags.items():
        if f"--{name}" in long_options(program):
            assert f"`--{name}`" in table[variable]
    named = {
        name for page in PAGES for span in spans(page) for name in re.findall(r"\bAGENTLOOP_[A-Z_]+\b", span)
    }
    assert named - {"AGENTLOOP_DEEP"} <= set(table)  # which is of the tests


def test_every_key_of_the_chat_stands_in_the_table_and_no_other() -> None:
    typed = {name.split()[0] for name in first_names("docs/command-line.md", "Keys of the chat")}
    assert typed == set(re.findall(r"^/\w+|(?<=, )/\w+", HELP, re.MULTILINE))


def test_every_exit_status_stands_in_the_table() -> None:
    table = {SPAN.findall(cells[1])[0]: int(cells[0]) for cells in rows("docs/command-line.md", "Output")}
    assert table == EXIT_STATUS


def test_every_event_stands_in_the_table() -> None:
    assert first_names("docs/library.md", "Events") == {
        each.__name__ for each in get_args(stream.AnyStreamEvent)
    }


@pytest.mark.parametrize(("heading", "module"), [("Triggers", triggers), ("Strategies", strategies)])
def test_every_trigger_and_strategy_stands_in_its_table(heading: str, module: Any) -> None:
    named = set(re.findall(r"\w+", " ".join(first_names("docs/policies.md", heading))))
    parts = {name for name in names_of(module.__name__) if name not in NO_PARTS}
    assert parts - named - {"Summary", "Digest", "Lines", "Note"} == set()


def test_compact_takes_by_name_every_strategy_of_the_table() -> None:
    table = {name.partition("(")[0] for name in first_names("docs/policies.md", "Strategies")}
    combining = {"then", "first_of", "replaced_by"}
    assert table - combining == {kind for kind, _ in STRATEGIES.values()}


@pytest.mark.parametrize(
    ("heading", "tried"), [("Triggers", engine_kit.TRIGGERS), ("Strategies", engine_kit.STRATEGIES)]
)
def test_histories_are_drawn_for_every_trigger_and_strategy(heading: str, tried: Mapping[str, Any]) -> None:
    table = {name.partition("(")[0] for name in first_names("docs/policies.md", heading)}
    assert table - {name.split()[0] for name in tried} == set()


NO_PARTS = {
    *("Budget", "Context", "Fired", "HasThreshold", "Trigger", "threshold_of"),
    *("Chain", "Cut", "Instead", "Strategy", "cut_of", "foldable", "strategy_name"),
}
"""What triggers and strategies are made of, take and give."""


def test_the_numbers_of_layer_one_are_its_own() -> None:
    table = {
        SPAN.findall(cells[2])[0]: cells[1]
        for cells in rows("docs/compaction.md", "The numbers")
        if "`" in cells[2]
    }
    for name, field in inspect.signature(MicroCompact).parameters.items():
        said = re.match(r"[\d,]+", table[f"MicroCompact({name}=)"])
        assert field.default == (int(said[0].replace(",", "")) if said else None)


def test_every_extra_stands_in_the_readme_and_no_other() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert first_names("README.md", "Install") - {"pip install"} >= set(extras)
    assert {name for cells in rows("README.md", "Install") for name in SPAN.findall(cells[0])} == set(extras)


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 150
    assert len(PAGES["README.md"].split()) <= 1_000


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_is_long(page: str) -> None:
    text = LINK.sub("link", SPAN.sub("code", FENCE.sub("", PAGES[page]).replace("\\|", "¦")))
    pieces = re.split(r"\n\s*\n|\n(?=[-#|\d])|(?<=[^|])\|(?=[^|])", text)
    sentences = [each for piece in pieces for each in re.split(r"(?<=[.!?])\s+", piece.replace("**", ""))]
    assert [each for each in sentences if len(each.split()) > MOST_WORDS] == []


def test_nothing_is_fetched_by_name_from_where_another_project_has_it() -> None:
    assert [
        page for page, text in PAGES.items() if re.search(r"pip install agentloop\b(?!-kit)|pypi", text)
    ] == []
