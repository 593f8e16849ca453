"""The built-in tools, on real folders, files, links and processes."""

import asyncio
import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloop._plumbing.aio import in_thread
from agentloop.errors import UsageError
from agentloop.messages import ToolCall
from agentloop.tools import RunContext, ToolAnswer, ToolRegistry
from agentloop.workspace import WorkspaceError, folder, workspace_tools
from agentloop.workspace.files import find_lines
from agentloop.workspace.line_finder import answer as answer_finder
from tests.kit import later

CONTEXT = RunContext(session_id="s", run_id="r", call_id="c", deps=None)
EVERYTHING = ("write", "shell")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A working folder with something outside of it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("FACT-secret\n")
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def fill(root: Path, *paths: str, text: str = "x = 1\n") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def named(root: Path, name: str) -> Callable[..., Any]:
    tools = {each.__name__: each for each in workspace_tools(root, allow=EVERYTHING)}
    return tools[name]


async def call(root: Path, name: str, **arguments: Any) -> ToolAnswer:
    registry = ToolRegistry(workspace_tools(root, allow=EVERYTHING))
    return await registry.answer(ToolCall(id="c", name=name, arguments=json.dumps(arguments)), CONTEXT)


# What there is


@pytest.mark.parametrize(
    ("allow", "names"),
    [
        ((), ("list_files", "read_file", "search_files")),
        (["write"], ("list_files", "read_file", "search_files", "write_file", "edit_file")),
        ("shell", ("list_files", "read_file", "search_files", "run_command")),
        (
            {"shell", "write"},
            ("list_files", "read_file", "search_files", "write_file", "edit_file", "run_command"),
        ),
    ],
)
def test_what_is_allowed_is_there(root: Path, allow: Any, names: tuple[str, ...]) -> None:
    registry = ToolRegistry(workspace_tools(root, allow=allow))
    assert registry.names == names
    idempotent = [name for name in names if registry[name].idempotent]
    assert idempotent == ["list_files", "read_file", "search_files"]
    for schema in registry.schemas:
        assert schema["function"]["description"]
        properties = schema["function"]["parameters"]["properties"]
        assert all(each["description"] for each in properties.values())


def test_what_cannot_be_allowed_or_is_no_folder_is_a_usage_error(root: Path) -> None:
    with pytest.raises(UsageError, match="allow must be a list of write and shell, not 3"):
        workspace_tools(root, allow=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="nothing called 'delete' can be allowed: use write or shell"):
        workspace_tools(root, allow=["write", "delete"])
    with pytest.raises(UsageError, match=r"no working folder at '.*nowhere'"):
        workspace_tools(root / "nowhere")


# Nothing outside

OUTSIDE = ["../outside/secret.txt", "..", "a/../../outside/secret.txt", "link/secret.txt", "secret", "chain"]


@pytest.mark.parametrize("path", [*OUTSIDE, "/etc/passwd", "/"])
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("list_files", {}),
        ("read_file", {}),
        ("search_files", {"query": "."}),
        ("write_file", {"content": "gone"}),
        ("edit_file", {"old": "FACT", "new": "gone"}),
    ],
)
async def test_l18_no_path_leads_outside(root: Path, path: str, name: str, more: dict[str, str]) -> None:
    fill(root, "a/b.py")
    (root / "link").symlink_to(root.parent / "outside")
    (root / "secret").symlink_to("../outside/secret.txt")
    (root / "chain").symlink_to("secret")
    answer = await call(root, name, path=path, **more)
    assert answer.status == "error"
    assert "is outside the working folder: use a path inside" in answer.text
    assert (root.parent / "outside" / "secret.txt").read_text() == "FACT-secret\n"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a\0b", "has a NUL character"),
        ("x" * 5_000, "too long a name"),
        ("\ud800", "is no usable path: .* surrogates not allowed"),
        ("loop", "outside the working folder|link"),
        ("file/inside", "leads through something that is no folder"),
        ("nowhere", "there is no file 'nowhere': list_files shows what is there"),
    ],
)
async def test_paths_that_are_none_are_answered(root: Path, path: str, text: str) -> None:
    fill(root, "file")
    (root / "loop").symlink_to("loop")
    with pytest.raises(WorkspaceError, match=text):
        named(root, "read_file")(path)
    answer = await call(root, "read_file", path=path)
    assert answer.status == "error"
    assert answer.text.startswith("read_file failed: WorkspaceError: ")
    assert str(root) not in answer.text


def test_a_path_may_be_absolute_or_a_link_inside(root: Path) -> None:
    fill(root, "a/b.py", text="here\n")
    (root / "link").symlink_to("a")
    read = named(root, "read_file")
    assert read(str(root / "a" / "b.py")) == read("link/b.py") == read("a/../a/./b.py") == "     1\there"


def test_a_working_folder_that_is_a_link_is_the_folder_it_leads_to(root: Path) -> None:
    fill(root, "b.py", text="here\n")
    (root.parent / "alias").symlink_to(root)
    assert named(root.parent / "alias", "read_file")("b.py") == "     1\there"


@pytest.mark.parametrize("swapped", ["a", "a/b.txt"])
def test_l18_a_link_put_there_after_the_check_leads_nowhere(
    root: Path, swapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, "a/b.txt", "a/secret.txt")
    inside = folder.Folder.inside

    def and_then_swap(self: folder.Folder, path: str) -> tuple[str, ...]:
        names = inside(self, path)
        if not (root / swapped).is_symlink():
            (root / swapped).rename(root / "was")
            (root / swapped).symlink_to(root.parent / "outside")
        return names

    monkeypatch.setattr(folder.Folder, "inside", and_then_swap)
    with pytest.raises(WorkspaceError, match=r"is no folder|link"):
        named(root, "read_file")("a/secret.txt" if swapped == "a" else "a/b.txt")


# list_files


def test_files_are_listed_sorted_hidden_ones_left_out(root: Path) -> None:
    fill(
        root,
        "b.py",
        "a/z.py",
        "a/y/x.txt",
        "a-b.txt",
        ".hidden",
        ".git/config",
        "a/__pycache__/z.pyc",
        "CVS/x",
    )
    (root / "empty").mkdir()
    (root / "inside.py").symlink_to("b.py")
    (root / "outside.txt").symlink_to("../outside/secret.txt")
    (root / "out").symlink_to("../outside")
    (root / "again").symlink_to("a")
    (root / "broken").symlink_to("nowhere")
    os.mkfifo(root / "fifo")
    assert named(root, "list_files")() == "a-b.txt\na/y/x.txt\na/z.py\nb.py\ninside.py"
    assert named(root, "list_files")(path="a") == "a/y/x.txt\na/z.py"
    assert named(root, "list_files")(path=".git") == ".git/config"


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("**/*.py", ".", ["a/b/c.py", "a/d.py", "e.py"]),
        ("*.py", ".", ["e.py"]),
        ("./*.py", ".", ["e.py"]),
        ("*.py", "a", ["a/d.py"]),
        ("**/*.py", "a/b", ["a/b/c.py"]),
        ("a/**", ".", ["a/b/c.py", "a/d.py"]),
        ("a/**/*.py", ".", ["a/b/c.py", "a/d.py"]),
        ("**/b/*", ".", ["a/b/c.py"]),
        ("*/*/*", ".", ["a/b/c.py"]),
        ("?.{py,md}", ".", ["e.py", "f.md"]),
        ("**/[!c-e].*", ".", ["f.md"]),
        ("**", ".", ["a/b/c.py", "a/d.py", "e.py", "f.md"]),
        ("E.py", ".", []),
        ("../**/*", ".", []),
        ("", ".", []),
    ],
)
def test_patterns(root: Path, pattern: str, path: str, found: list[str]) -> None:
    fill(root, "a/b/c.py", "a/d.py", "e.py", "f.md")
    text = named(root, "list_files")(pattern, path)
    assert [line for line in text.split("\n") if not line.startswith("[")] == found


def test_patterns_that_would_take_for_ever_do_not(root: Path) -> None:
    fill(root, "a" * 200, "/".join("a" * 40))
    for pattern in ("*a" * 60 + "b", "**/a/" * 60 + "b", "{a,b}" * 40):
        assert named(root, "list_files")(pattern).startswith("[no file matches")
    with pytest.raises(WorkspaceError, match="the pattern has 2,000 characters"):
        named(root, "list_files")("{," * 1_000)


def test_a_long_list_says_how_many_more_and_how_to_go_on(root: Path) -> None:
    names = sorted(f"f{number}.txt" for number in range(25))
    fill(root, *names)
    list_files = named(root, "list_files")
    seen: list[str] = []
    while True:
        *lines, last = list_files(offset=len(seen), limit=10).split("\n")
        seen += lines
        if not last.startswith("..."):
            break
        assert last == f"... [{25 - len(seen)} more; call list_files with offset={len(seen)}]"
    assert [*seen, last] == names
    assert "offset=25 is beyond the last" in list_files(offset=25)
    with pytest.raises(WorkspaceError, match="limit must be at least 1, not 0"):
        list_files(limit=0)
    with pytest.raises(WorkspaceError, match="offset must be at least 0, not -1"):
        list_files(offset=-1)


def test_folders_however_deep_hide_no_file(root: Path) -> None:
    fill(root, "beside")
    deep = "a/" * 1_500
    assert named(root, "write_file")(f"{deep}x", "in the deep").startswith("made ")
    try:
        assert named(root, "list_files")().splitlines() == [f"{deep}x", "beside"]
        assert named(root, "search_files")("deep") == f"{deep}x:1: in the deep"
    finally:
        subprocess.run(["rm", "-rf", root / "a"], check=True)  # Python's own way to remove them calls itself


def test_where_nothing_is_found_it_is_said(root: Path) -> None:
    fill(root, "a/b.py")
    list_files = named(root, "list_files")
    assert list_files("*.py") == "[no file matches '*.py' in .; '**/*.py' looks into its folders too]"
    assert list_files("**/*.c") == "[no file matches '**/*.c' in .]"
    with pytest.raises(WorkspaceError, match=r"'a/b\.py' is a file, not a folder: use read_file"):
        list_files(path="a/b.py")
    with pytest.raises(WorkspaceError, match="there is no folder 'nowhere'"):
        list_files(path="nowhere")


# read_file


def test_lines_come_with_their_numbers(root: Path) -> None:
    fill(root, "f.txt", text="".join(f"line {number}\n" for number in range(1, 2_501)))
    read = named(root, "read_file")
    first = read("f.txt").split("\n")
    assert first[:2] == ["     1\tline 1", "     2\tline 2"]
    assert first[-1] == "... [lines 1 to 1000 of 2500; call read_file with offset=1001 for more]"
    assert read("f.txt", offset=7, limit=2) == (
        "     7\tline 7\n     8\tline 8\n... [lines 7 to 8 of 2500; call read_file with offset=9 for more]"
    )
    assert read("f.txt", offset=2_499).split("\n") == ["  2499\tline 2499", "  2500\tline 2500"]
    assert read("f.txt", offset=0, limit=1).startswith("     1\tline 1\n")
    assert read("f.txt", offset=2_501) == "[f.txt has 2500 lines; offset=2501 is beyond the last]"
    with pytest.raises(WorkspaceError, match="limit must be at least 1"):
        read("f.txt", limit=-1)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "[f is empty]"),
        (b"\n", "     1\t"),
        (b"a", "     1\ta"),
        (b"a\r\nb\r\n", "     1\ta\n     2\tb"),
        (b"a\x0bb\xe2\x80\xa8c\n", "     1\ta\x0bb\u2028c"),
        (b"\xef\xbb\xbfa\n", "     1\ta"),
        (b"caf\xe9\nb", "     1\tcaf\ufffd\n     2\tb\n... [bytes that are no text are shown as \ufffd]"),
        ("\ufffd".encode(), "     1\t\ufffd"),
        (b"a\0" * 600, "[f is a binary file of 1,200 bytes, not text]"),
    ],
)
def test_files_of_all_kinds(root: Path, data: bytes, text: str) -> None:
    (root / "f").write_bytes(data)
    assert named(root, "read_file")("f") == text


def test_a_long_line_is_cut(root: Path) -> None:
    fill(root, "f", text="x" * 1_000_000)
    text = named(root, "read_file")("f")
    assert text == f"     1\t{'x' * 2_000}... [998,000 more characters in this line]"


def test_what_is_no_file_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root, "a/b.py", text="12345")
    os.mkfifo(root / "fifo")
    read = named(root, "read_file")
    for path in ("a", ".", ""):
        with pytest.raises(WorkspaceError, match="is a folder: use list_files"):
            read(path)
    with pytest.raises(WorkspaceError, match="is no regular file"):
        read("fifo")
    monkeypatch.setattr(folder, "MOST_BYTES", 4)
    with pytest.raises(WorkspaceError, match="has 5 bytes, more than are read"):
        read("a/b.py")


# search_files


def test_lines_that_match_are_found_in_order(root: Path) -> None:
    fill(root, "b.py", text="import os\nx = 1\r\nimport re\n")
    fill(root, "a/c.py", text="  IMPORT x\n")
    fill(root, ".hidden", text="import no\n")
    (root / "binary").write_bytes(b"import\0")
    (root / "latin").write_bytes(b"import caf\xe9")
    search = named(root, "search_files")
    assert search("^import") == "b.py:1: import os\nb.py:3: import re\nlatin:1: import caf\ufffd"
    assert search("(?i)import", "**/*.py") == "a/c.py:1:   IMPORT x\nb.py:1: import os\nb.py:3: import re"
    assert search("1$", path="b.py") == "b.py:2: x = 1"
    assert search("import", path="a") == "[no line matches 'import']"
    assert search("IMPORT", path="a") == "a/c.py:1:   IMPORT x"


def test_a_search_stops_at_its_limit(root: Path) -> None:
    for number in range(20):
        fill(root, f"f{number:02}", text="hit\n" * 20_000)
    lines = named(root, "search_files")("hit", limit=30_000).split("\n")
    assert len(lines) == 30_001
    assert lines[-1] == "... [more than 30000 lines match; narrow the query, pattern or path]"
    assert lines[20_000] == "f01:1: hit"
    assert named(root, "search_files")("hit", path="f00", limit=20_000).count("\n") == 19_999
    with pytest.raises(WorkspaceError, match="limit must be at least 1"):
        named(root, "search_files")("hit", limit=0)


def test_a_long_line_is_shown_around_its_match(root: Path) -> None:
    fill(root, "f", text="a" * 5_000 + "HIT" + "b" * 5_000)
    line = named(root, "search_files")("HIT")
    assert line.startswith("f:1: … aaa")
    assert line.endswith("bbb …")
    assert "aHITb" in line
    assert len(line) < 320
    assert named(root, "search_files")("^a").endswith("aaa …")


async def test_a_wrong_expression_is_answered(root: Path) -> None:
    answer = await call(root, "search_files", query="print(")
    assert answer.status == "error"
    assert "'print(' is no valid regular expression (missing ), unterminated subpattern at" in answer.text


def test_an_expression_that_takes_for_ever_is_stopped() -> None:
    with pytest.raises(WorkspaceError, match=r"stopped after 0\.3 s: use a simpler expression"):
        find_lines("(a+)+$", [("f", "a" * 60 + "!")], limit=1, seconds=0.3)


def _lines(requests: list[dict[str, Any]]) -> Any:
    return answer_finder(map(json.dumps, requests))["lines"]


def test_the_finder_reads_no_further_than_its_limit() -> None:
    def requests() -> Any:
        yield json.dumps({"query": "x", "limit": 1})
        yield json.dumps({"path": "f", "text": "x"})
        raise AssertionError

    assert answer_finder(requests()) == {"lines": ["f:1: x"]}
    around: list[dict[str, Any]] = [
        {"query": "x", "limit": 9},
        {"path": "f", "text": "a" * 999 + "x\nx" + "b" * 999},
        {"path": "g", "text": ""},
    ]
    assert [len(line) for line in _lines(around)] == [307, 307]
    assert "error" in answer_finder(iter([json.dumps({"query": "[", "limit": 1})]))


# write_file


def test_a_file_is_made_with_its_folders(root: Path) -> None:
    write = named(root, "write_file")
    assert write("a/b/c.txt", "é\r\n") == "made a/b/c.txt: 3 characters"
    assert (root / "a/b/c.txt").read_bytes() == b"\xc3\xa9\r\n"
    (root / "a/b/c.txt").chmod(0o750)
    assert write("a/b/c.txt", "new") == "replaced a/b/c.txt: 3 characters"
    assert (root / "a/b/c.txt").read_text() == "new"
    assert (root / "a/b/c.txt").stat().st_mode & 0o777 == 0o750
    assert [path.name for path in (root / "a/b").iterdir()] == ["c.txt"]


def test_writing_through_a_link_inside_keeps_the_link(root: Path) -> None:
    fill(root, "real.txt")
    (root / "link.txt").symlink_to("real.txt")
    named(root, "write_file")("link.txt", "new")
    assert (root / "link.txt").is_symlink()
    assert (root / "real.txt").read_text() == "new"


def test_who_holds_the_old_file_open_keeps_it(root: Path) -> None:
    fill(root, "f", text="old")
    with (root / "f").open() as old:
        named(root, "write_file")("f", "new")
        assert old.read() == "old"


def test_what_cannot_be_written_is_said_and_nothing_left(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root, "a/b", "f", text="old")
    write = named(root, "write_file")
    with pytest.raises(WorkspaceError, match="'a' is a folder: name a file"):
        write("a", "x")
    with pytest.raises(WorkspaceError, match="is the working folder itself"):
        write(".", "x")
    with pytest.raises(WorkspaceError, match="content has a lone surrogate at 1"):
        write("f", "x\ud800")
    with pytest.raises(WorkspaceError, match="leads through something that is no folder"):
        write("f/g", "x")

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(WorkspaceError, match="'f': No space left on device"):
        write("f", "new")
    assert (root / "f").read_text() == "old"
    assert sorted(path.name for path in root.iterdir()) == ["a", "f"]


# edit_file


def test_one_place_is_replaced(root: Path) -> None:
    (root / "f").write_bytes(b"one two\xff\nthree\n")
    assert named(root, "edit_file")("f", "two", "2") == "replaced 1 place in f"
    assert (root / "f").read_bytes() == b"one 2\xff\nthree\n"


def test_several_places_want_to_be_meant(root: Path) -> None:
    fill(root, "f", text="a b a")
    edit = named(root, "edit_file")
    with pytest.raises(WorkspaceError, match="old stands in f 2 times; nothing was changed"):
        edit("f", "a", "c")
    with pytest.raises(WorkspaceError, match="old does not stand in f; nothing was changed"):
        edit("f", "x", "c", replace_all=True)
    assert (root / "f").read_text() == "a b a"
    assert edit("f", "a", "c", replace_all=True) == "replaced 2 places in f"
    assert (root / "f").read_text() == "c b c"


def test_line_ends_stay_what_they_are(root: Path) -> None:
    (root / "f").write_bytes(b"a\r\nb\r\nc\r\n")
    named(root, "edit_file")("f", "a\nb", "x\ny\nz")
    assert (root / "f").read_bytes() == b"x\r\ny\r\nz\r\nc\r\n"
    named(root, "edit_file")("f", "y\r\nz", "w")
    assert (root / "f").read_bytes() == b"x\r\nw\r\nc\r\n"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("", "x", "old must be a text"),
        ("a", "a", "differ"),
        ("a", "\udcff", "old or new has a lone surrogate"),
    ],
)
def test_edits_that_are_none_are_refused(root: Path, old: str, new: str, text: str) -> None:
    fill(root, "f", text="a")
    with pytest.raises(WorkspaceError, match=text):
        named(root, "edit_file")("f", old, new)
    with pytest.raises(WorkspaceError, match="there is no file 'nowhere'"):
        named(root, "edit_file")("nowhere", "a", "b")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_files_in_utf_16_are_read_searched_and_edited_in_it(root: Path, encoding: str) -> None:
    text = "\ufeffone caf\xe9\r\ntwo\r\n"
    (root / "f").write_bytes(text.encode(encoding))
    assert named(root, "read_file")("f") == "     1\tone caf\xe9\n     2\ttwo"
    assert named(root, "search_files")("caf\xe9") == "f:1: one caf\xe9"
    named(root, "edit_file")("f", "\xe9\ntwo", "e\nthree")
    assert (root / "f").read_bytes().decode(encoding) == "\ufeffone cafe\r\nthree\r\n"


def test_damaged_utf_16_is_not_edited(root: Path) -> None:
    damaged = "\ufeffone".encode("utf-16-le") + b"x"
    (root / "f").write_bytes(damaged)
    assert "are shown as" in named(root, "read_file")("f")
    with pytest.raises(WorkspaceError, match="damaged UTF-16"):
        named(root, "edit_file")("f", "one", "two")
    assert (root / "f").read_bytes() == damaged


def test_hidden_files_are_found_where_they_are_asked_for_by_name(root: Path) -> None:
    fill(root, ".github/workflows/ci.yml", ".github/.private/x", ".gitignore", "src/.env", "src/a.py")
    found = {
        pattern: named(root, "list_files")(pattern).split("\n")
        for pattern in ("**/*", ".github/**", ".git*", "**/.env", "{src,.github}/**")
    }
    assert found == {
        "**/*": ["src/a.py"],
        ".github/**": [".github/workflows/ci.yml"],
        ".git*": [".gitignore"],
        "**/.env": ["src/.env"],
        "{src,.github}/**": [".github/workflows/ci.yml", "src/a.py"],
    }
    assert named(root, "search_files")("x", ".github/**") == ".github/workflows/ci.yml:1: x = 1"


async def test_edits_side_by_side_are_all_there(root: Path) -> None:
    fill(root, "f", text="".join(f"<{number}>" for number in range(30)))
    registry = ToolRegistry(workspace_tools(root, allow=["write"]))
    calls = [
        ToolCall(
            id=f"c{number}",
            name="edit_file",
            arguments=json.dumps({"path": "f", "old": f"<{number}>", "new": f"[{number}]"}),
        )
        for number in range(30)
    ]
    answers = await asyncio.gather(*(registry.answer(each, CONTEXT) for each in calls))
    assert {answer.status for answer in answers} == {"ok"}
    assert (root / "f").read_text() == "".join(f"[{number}]" for number in range(30))


# run_command


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo hi", "hi\n[exit status 0]"),
        ("echo out; echo err >&2; exit 3", "out\nerr\n[exit status 3]"),
        ("true", "[exit status 0]"),
        ("cat", "[exit status 0]"),
        ("cat f", "here\n[exit status 0]"),
        ("kill -9 $$", "[killed by signal 9]"),
        ("printf 'caf\\351'", "caf\ufffd\n[exit status 0]"),
        ("no-such-command-at-all 2>/dev/null", "[exit status 127]"),
    ],
)
async def test_output_and_exit_status(root: Path, command: str, text: str) -> None:
    fill(root, "f", text="here\n")
    assert await call(root, "run_command", command=command) == ToolAnswer(text, "ok")
    assert await named(root, "run_command")(command) == text


async def test_a_command_is_killed_with_its_children_when_time_is_up(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(root / "both run")
    command = "echo started; sleep 1000 & echo $! > pid; echo > 'both run'; wait"
    running = asyncio.create_task(named(root, "run_command")(command, timeout_seconds=60))
    await in_thread((root / "both run").read_text)
    while not running.done():  # its time begins to run when it is awaited, which may be later than it runs
        later(monkeypatch, 60)
        await asyncio.wait({running}, timeout=0.2)
    assert await running == "started\n[killed after 60 s, when its time was up]"
    await _is_gone(int((root / "pid").read_text()))


async def test_what_is_left_in_the_background_ends_with_the_command(root: Path) -> None:
    text = await named(root, "run_command")("sleep 1000 & echo $! > pid; echo done")
    assert text == "done\n[exit status 0]"
    await _is_gone(int((root / "pid").read_text()))


async def test_l16_cancelling_kills_the_command(root: Path) -> None:
    os.mkfifo(root / "started")
    running = asyncio.create_task(call(root, "run_command", command="echo $$ > started; sleep 1000"))
    pid = int(await in_thread((root / "started").read_text))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await _is_gone(pid)


async def _is_gone(pid: int) -> None:
    """Returns once there is no such process, or only its remains, which its new parent has yet to take."""
    await in_thread(_wait_for, pid)


def _wait_for(pid: int) -> None:
    while _state_of(pid) not in ("", "Z"):
        os.sched_yield()


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def test_output_is_bounded_in_memory(root: Path) -> None:
    text = await named(root, "run_command")("echo first; yes | head -c 5000000; echo last")
    assert text.startswith("first\ny\n")
    assert text.endswith("\nlast\n[exit status 0]")
    assert "bytes of output left out] ..." in text
    assert len(text) < 1_100_000


async def test_commands_that_are_none_are_answered(root: Path) -> None:
    for seconds in (0, -1, 601):
        answer = await call(root, "run_command", command="true", timeout_seconds=seconds)
        assert "timeout_seconds must be more than 0 and at most 600" in answer.text
    assert (await call(root, "run_command", command="a\0b")).status == "error"
    assert threading.active_count() < 20


async def test_what_lets_go_of_its_output_ends_with_the_command_too(root: Path) -> None:
    await named(root, "run_command")("(sleep 1000 >/dev/null 2>&1 & echo $! > pid)")
    await _is_gone(int((root / "pid").read_text()))


async def test_what_begins_a_session_of_its_own_ends_with_the_command_too(root: Path) -> None:
    os.mkfifo(root / "pipe")
    detached = "setsid sh -c 'echo $$ > pipe; exec sleep 1000' > /dev/null 2>&1 & cat pipe"
    text = await named(root, "run_command")(detached)
    await _is_gone(int(text.split()[0]))


def test_a_pipe_is_never_replaced(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(WorkspaceError, match="no regular file"):
        named(root, "write_file")("pipe", "text")
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)
