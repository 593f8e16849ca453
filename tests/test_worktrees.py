"""Worktrees: each task works in a copy of its own, and nothing of anybody is lost when they come together."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentloop import Agent, Compaction, RetryTool, Rules, SyncRunner, Worktrees
from agentloop.errors import UsageError
from agentloop.stores import SQLiteStore
from agentloop.strategies import KeepRecentTurns
from agentloop.testing import ScriptedModel, calls
from tests.cli_kit import program

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

NOBODY = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(place: Path, *words: str) -> str:
    """What git says there, as a user who is called somebody calls it."""
    named = ("-c", "user.name=Somebody", "-c", "user.email=somebody@localhost")
    done = subprocess.run(
        ["git", *named, *words], cwd=place, env=NOBODY, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, for a user who has told git nothing."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    place = tmp_path / "tea"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "tea.txt").write_text("warm\npour\nwait\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "Begin")
    return place


def results(model: ScriptedModel) -> list[str]:
    """The results in the newest request."""
    return [str(each["content"]) for each in model.requests[-1].messages if each["role"] == "tool"]


def test_l24_a_link_in_a_worktree_leads_past_no_rule(repo: Path, tmp_path: Path) -> None:
    (repo / "kept").mkdir()
    (repo / "kept" / "key.txt").write_text("1234")
    (repo / "open").symlink_to("kept")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "Keep a key")
    steps = [("open/key.txt", "open"), ("kept/key.txt", "kept"), ("tea/../own.txt", "normal")]
    writes = [calls(("write_file", {"path": path, "content": text})) for path, text in steps]
    model = ScriptedModel([calls(("worktree_enter", {"name": "top"})), *writes, "Done."])
    with SyncRunner(
        Agent(model, tools=[Worktrees(repo)]),
        rules=Rules(allow=["write"], deny=["write(kept/*)"]),
        transcripts=None,
    ) as runner:
        runner.run("Do it.")
    assert "open/key.txt really is kept/key.txt: name that" in results(model)[1]
    assert "a rule denies it" in results(model)[2]
    tree = repo / ".worktrees" / "top"
    assert (tree / "kept" / "key.txt").read_text() == "1234"
    assert (tree / "own.txt").read_text() == "normal"


def test_each_session_works_in_the_worktree_that_it_entered(repo: Path, tmp_path: Path) -> None:
    def steps(name: str, step: str) -> list[Any]:
        return [
            calls(("read_file", {"path": "tea.txt"})),
            calls(("worktree_enter", {"name": name})),
            calls(("write_file", {"path": f"{step}.txt", "content": f"{step}\n"})),
            calls(list_files={}),
            calls(("read_file", {"path": f"../../{name}.txt"})),
            "Done.",
            calls(list_files={}),
            calls(("worktree_merge", {"name": name})),
            calls(("worktree_remove", {"name": name})),
            calls(list_files={}),
            "Done.",
        ]

    models = [ScriptedModel(steps(name, name[::-1])) for name in ("top", "pan")]
    runners = [
        SyncRunner(
            Agent(model, tools=[Worktrees(repo)]), store=SQLiteStore(tmp_path / "s.db"), transcripts=None
        )
        for model in models
    ]
    for name, runner in zip("ab", runners, strict=True):
        runner.run("Do it.", session_id=name)
    assert sorted(each.name for each in repo.iterdir()) == [".git", ".worktrees", "tea.txt"]
    assert git(repo, "status", "--porcelain") == ""
    for name, runner in zip("ab", runners, strict=True):
        runner.run("Bring it home.", session_id=name)
        runner.close()
    for model, name in zip(models, ("top", "pan"), strict=True):
        unentered, entered, _, listed, outside, listed_later, merged, removed, gone = results(model)
        assert "enter a worktree first" in unentered
        assert entered == f"[Worktree {name}] Your file tools work here now."
        assert listed == listed_later == "\n".join(sorted([f"{name[::-1]}.txt", "tea.txt"]))
        assert "outside the working folder" in outside
        assert merged == f"[Worktree {name}] It is merged: tea has all of it."
        assert removed == f"[Worktree {name}] It is removed."
        assert "enter a worktree first" in gone
    assert {each.name for each in repo.glob("*.txt")} == {"tea.txt", "pot.txt", "nap.txt"}
    assert git(repo, "branch", "--list") == "* main"
    assert git(repo, "log", "-1", "--format=%an", "--no-merges") == "agentloop"


def test_a_conflict_is_met_in_the_worktree_and_nothing_is_lost(repo: Path) -> None:
    trees = Worktrees(repo)
    trees.enter("a")
    trees.enter("b")
    (trees.path("a") / "tea.txt").write_text("warm it\npour\nwait\n")
    (trees.path("b") / "tea.txt").write_text("warm well\npour\nwait\n")
    assert "is merged" in trees.merge("a")
    told = trees.merge("b")
    assert told.endswith("Edit them, then merge again:\ntea.txt")
    assert (repo / "tea.txt").read_text() == "warm it\npour\nwait\n"
    assert git(repo, "status", "--porcelain") == ""
    with pytest.raises(RetryTool, match=r"conflict markers are left in tea.txt"):
        trees.merge("b")
    with pytest.raises(RetryTool, match=r"changes that are not committed: tea.txt"):
        trees.remove("b")
    (trees.path("b") / "tea.txt").write_text("warm it well\npour\nwait\n")
    assert "is merged" in Worktrees(repo).merge("b")
    assert "is merged" in trees.merge("b")  # again
    assert (repo / "tea.txt").read_text() == "warm it well\npour\nwait\n"
    assert "warm well" in git(repo, "log", "-p", "--format=")


def test_what_no_editing_can_join_is_told_and_all_is_as_it_was(repo: Path) -> None:
    trees = Worktrees(repo)
    trees.enter("a")
    (trees.path("a") / "tea.txt").write_text("warm it\n")
    git(repo, "rm", "-q", "tea.txt")
    git(repo, "commit", "-qm", "Away")
    told = trees.merge("a")
    assert told.endswith("The branch agentloop/a has this side of:\ntea.txt")
    assert (trees.path("a") / "tea.txt").read_text() == "warm it\n"
    assert not (repo / "tea.txt").exists()
    assert git(trees.path("a"), "status", "--porcelain") == ""


def test_what_the_user_has_not_committed_is_never_overwritten(repo: Path) -> None:
    trees = Worktrees(repo)
    trees.enter("a")
    (trees.path("a") / "tea.txt").write_text("warm it\n")
    (trees.path("a") / "new.txt").write_text("theirs\n")
    (repo / "tea.txt").write_text("mine\n")
    (repo / "new.txt").write_text("mine\n")
    for kept in ("tea.txt", "new.txt"):
        with pytest.raises(RetryTool, match="would be overwritten"):
            trees.merge("a")
        assert (repo / kept).read_text() == "mine\n"
        git(repo, "checkout", "-q", "tea.txt")
    (repo / "new.txt").unlink()
    (repo / "other.txt").write_text("mine\n")
    assert "is merged" in trees.merge("a")
    assert (repo / "other.txt").read_text() == "mine\n"


def test_what_is_left_out_of_a_refusal_is_counted(repo: Path) -> None:
    trees = Worktrees(repo)
    trees.enter("a")
    for number in range(22):
        (trees.path("a") / f"{number}.txt").touch()
    with pytest.raises(RetryTool, match=r"\.txt and 2 more\. Merge it, or discard them"):
        trees.remove("a")


def test_nothing_is_removed_without_a_word(repo: Path) -> None:
    trees = Worktrees(repo)
    trees.enter("a")
    (trees.path("a") / "new.txt").write_text("one\n")
    with pytest.raises(RetryTool, match=r"a has changes that are not committed: new.txt"):
        trees.remove("a")
    git(trees.path("a"), "add", ".")
    git(trees.path("a"), "commit", "-qm", "One")
    assert trees.list() == "a: changed files: 0, commits that are not merged: 1"
    (repo / ".git/info/exclude").write_text("*.o\n")
    (trees.path("a") / "made.o").touch()
    told = trees.remove("a")
    assert "removed, with files that git ignores: 1; commits that stay" in told
    assert told.endswith(" on the branch agentloop/a: 1.")
    trees.enter("a")  # goes on where it was
    assert (trees.path("a") / "new.txt").read_text() == "one\n"
    (trees.path("a") / "more.txt").write_text("two\n")
    git(trees.path("a"), "checkout", "-q", "--detach")
    for verb in (trees.merge, trees.remove):
        with pytest.raises(RetryTool, match="a has 'HEAD' checked out"):
            verb("a")
    tip = git(trees.path("a"), "rev-parse", "--short", "HEAD")
    told = trees.remove("a", discard=True)
    assert told.endswith(f"removed, with changed files: 1, commits up to {tip}: 1.")
    assert git(repo, "branch", "--list") == "* main"
    assert trees.list() == "(no worktrees)"


def test_no_program_of_the_repository_runs(repo: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 $* >> {ran}\ncat\n")
    program.chmod(0o755)
    for hook in (
        "post-checkout",
        "pre-commit",
        "post-commit",
        "post-merge",
        "commit-msg",
        "post-index-change",
    ):
        (repo / ".git/hooks" / hook).symlink_to(program)
    (repo / ".gitattributes").write_text("*.txt filter=evil diff=evil merge=evil\n")
    git(repo, "-c", "core.hooksPath=/dev/null", "add", ".")
    git(repo, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "Attributes")
    included = tmp_path / "included"
    included.write_text(f'[filter "a=b"]\n\tsmudge = {program}\n')
    settings = {
        "filter.evil.clean": program,
        "filter.evil.smudge": program,
        "filter.evil.process": program,
        "filter.evil.required": "true",
        "merge.evil.driver": f"{program} %A",
        "diff.evil.textconv": program,
        "diff.external": program,
        "core.fsmonitor": program,
        "core.hooksPath": tmp_path,
        "core.pager": program,
        "commit.gpgSign": "true",
        "gpg.program": program,
        "merge.verifySignatures": "true",
        "include.path": included,
    }
    for name, value in settings.items():
        git(repo, "config", "--local", name, str(value))
    git(repo, "config", "--local", "core.hooksPath", str(repo / ".git/hooks"))
    ran.unlink(missing_ok=True)
    trees = Worktrees(repo)
    for name in ("a", "b"):
        trees.enter(name)
        (trees.path(name) / "tea.txt").write_text(f"warm {name}\npour\nwait\n")
        (trees.path(name) / f"{name}.txt").write_text("new\n")
    assert "is merged" in trees.merge("a")
    assert "Edit them" in trees.merge("b")
    (trees.path("b") / "tea.txt").write_text("warm both\npour\nwait\n")
    assert "is merged" in trees.merge("b")
    for name in ("a", "b"):
        assert "changed files: 0" in trees.list()
        trees.remove(name)
    assert (repo / "tea.txt").read_text() == "warm both\npour\nwait\n"
    assert not ran.exists() or ran.read_text() == ""


@pytest.mark.parametrize("options", ["-S", "-s ours", "--squash"])
def test_a_repository_says_neither_how_to_merge_nor_who_signs(
    options: str, repo: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\nexit 1\n")
    program.chmod(0o755)
    trees = Worktrees(repo)
    trees.enter("a")
    (trees.path("a") / "a.txt").write_text("new\n")
    (repo / "b.txt").write_text("new\n")
    git(repo, "add", "b.txt")
    git(repo, "commit", "-qm", "Another")
    for name, value in {
        "branch.main.mergeOptions": options,
        "branch.agentloop/a.mergeOptions": options,
        "pull.twohead": "ours",
        "gpg.program": str(program),
    }.items():
        git(repo, "config", "--local", name, value)
    assert "is merged" in trees.merge("a")
    assert {"a.txt", "b.txt", "tea.txt"} <= {path.name for path in repo.iterdir()}
    assert not (tmp_path / "ran").exists()


def test_a_worktree_that_leads_elsewhere_is_none(repo: Path, tmp_path: Path) -> None:
    trees = Worktrees(repo)
    trees.enter("a")
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (trees.path("a") / ".git").write_text(f"gitdir: {other}/.git\n")
    with pytest.raises(
        RetryTool, match=r"there is no worktree 'a': \(no worktrees\) Make one by worktree_enter"
    ):
        trees.merge("a")
    (trees.path("link")).symlink_to(other)
    with pytest.raises(RetryTool, match="there is no worktree 'link'"):
        trees.remove("link")
    with pytest.raises(RetryTool, match="already exists"):
        trees.enter("link")
    assert [each.name for each in other.iterdir()] == [".git"]
    linked = tmp_path / "linked"
    linked.mkdir()
    shutil.move(repo / ".worktrees", linked / "w")
    (repo / ".worktrees").symlink_to(linked / "w")
    with pytest.raises(RetryTool, match="is a link: put a folder there"):
        trees.enter("b")


MERGES = """
import sys
from agentloop import Worktrees
trees = Worktrees(sys.argv[1])
for number in range(2):
    name = f"{sys.argv[2]}{number}"
    trees.enter(name)
    (trees.path(name) / f"{name}.txt").write_text("new")
    assert "is merged" in trees.merge(name)
    trees.remove(name)
"""


def test_two_processes_at_once_lose_nothing(repo: Path, tmp_path: Path) -> None:
    with program(MERGES, repo, "a", cwd=tmp_path) as a, program(MERGES, repo, "b", cwd=tmp_path) as b:
        assert [each.communicate()[1] for each in (a, b)] == ["", ""]
        assert [a.returncode, b.returncode] == [0, 0]
    names = {f"{name}{number}.txt" for name in "ab" for number in range(2)}
    assert {each.name for each in repo.glob("*.txt")} == names | {"tea.txt"}
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "branch", "--list") == "* main"


def test_what_a_process_left_half_done_is_gone_on_with(repo: Path) -> None:
    trees = Worktrees(repo)
    trees.enter("a")
    (trees.path("a") / "new.txt").write_text("new\n")
    git(trees.path("a"), "add", ".")  # killed before it was committed
    assert "is merged" in trees.merge("a")
    shutil.rmtree(trees.path("a"))  # killed while it was removed
    trees.enter("a")
    assert (trees.path("a") / "new.txt").read_text() == "new\n"


def test_the_worktree_stays_in_sight_and_entered_over_a_compaction(repo: Path, tmp_path: Path) -> None:
    long = "The snails came. " * 80
    model = ScriptedModel(
        [calls(("worktree_enter", {"name": "a"})), long, long, calls(list_files={}), "Done."]
    )
    policy = Compaction(strategy=KeepRecentTurns(1), tool=False)
    agent = Agent(model, tools=[Worktrees(repo)], compaction=policy)
    with SyncRunner(agent, store=SQLiteStore(tmp_path / "s.db"), transcripts=None) as runner:
        for text in ("one", "two"):
            runner.run(text, session_id="s")
        assert runner.compact("s").status == "done"
        runner.run("three", session_id="s")
    texts = [str(each["content"]) for each in model.requests[-1].messages]
    assert any("[Worktree a] Your file tools work here now.\n</kept" in text for text in texts)
    assert results(model) == ["tea.txt"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "-a", "a.", "a.lock", "a..b", "a b", "x" * 65, "ä", "a\n", 7]
)
def test_bad_names_are_refused(name: Any, repo: Path) -> None:
    with pytest.raises(RetryTool, match="is no name"):
        Worktrees(repo).enter(name)


def test_what_is_no_repository_is_refused(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (repo / "below").mkdir()
    for bad, why in (
        (empty, "is no git repository with a commit"),
        (repo / "below", "is not the top of its git repository"),
        (tmp_path / "nowhere", "no folder at"),
        ("", "repository must be the path of a folder"),
        (7, "repository must be the path of a folder"),
    ):
        with pytest.raises(UsageError, match=why):
            Worktrees(bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="nothing called 'all' can be allowed"):
        Worktrees(repo, allow=["all"])
    git(empty, "init", "-q")
    with pytest.raises(UsageError, match="is no git repository with a commit"):
        Worktrees(empty)
    git(repo, "config", "--local", "core.worktree", str(tmp_path))
    with pytest.raises(UsageError, match="is not the top of its git repository"):
        Worktrees(repo)
    monkeypatch.setenv("PATH", str(empty))
    with pytest.raises(UsageError, match="git is not installed"):
        Worktrees(repo)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_no_pipe_is_waited_for_and_no_link_followed(repo: Path, tmp_path: Path, kind: str) -> None:
    trees = Worktrees(repo)
    trees.enter("brew")
    places = [repo / ".worktrees" / ".lock", repo / ".worktrees" / "brew" / ".git"]
    for place in places:
        place.unlink()
        os.mkfifo(place) if kind == "pipe" else place.symlink_to(tmp_path / "aim")
    with pytest.raises(RetryTool, match=f"^{places[0]}: "):
        trees.enter("pour")
    places[0].unlink()
    with pytest.raises(RetryTool, match=r"^there is no worktree 'brew'"):
        trees.merge("brew")
    assert not (tmp_path / "aim").exists()
