"""Worktrees: a copy of a git repository for each task, so that tasks side by side do not meet in its files.

Git runs as a program. What a repository's own settings could have it run is switched off: hooks, the monitor
of its files, filters, drivers of merges, remotes. Those of the user's own settings stay, but for hooks and
the monitor.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentloop._plumbing.checks import shown
from agentloop._plumbing.files import beginning_of
from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.private_files import lock, make_ignored_folder, open_lock, refused
from agentloop._plumbing.truncate import few
from agentloop.context import results_of
from agentloop.errors import RetryTool, UsageError
from agentloop.messages import SeenMessage, ToolCall
from agentloop.prompts import (
    WORKTREE,
    WORKTREE_CONFLICTS,
    WORKTREE_ENTERED,
    WORKTREE_MERGED,
    WORKTREE_REMOVED,
    WORKTREE_UNMERGEABLE,
    WORKTREES_INSTRUCTIONS,
    WORKTREES_NONE,
    first_given,
)
from agentloop.tools import RunContext, Tool, ToolAnswer, ToolRegistry, ToolSet, tool, tools_of
from agentloop.workspace import Folder, WorkspaceError, workspace_tools

ENTER = "worktree_enter"
BRANCHES = "agentloop/"
FOLDER = ".worktrees"
GIT_SECONDS = 120
MOST_NAMED = 20

_NAME = pattern(r"(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?")
_MOST_LEADING_BYTES = 10_000
"""A path has 4,096, and a word stands before it."""
_MARKERS = (b"<<<<<<< ", b">>>>>>> ")
_MOST_MERGED_BYTES = 64 * 1024 * 1024
"""What `read_file` reads of a file: markers behind that nobody could edit away."""
_SETTINGS = (
    r"^(user\.(name|email)|filter\..*\.(clean|smudge|process|required)|merge\..*\.driver"
    r"|branch\..*\.mergeoptions|pull\.(twohead|octopus)|gpg\.(.*\.)?(program|defaultkeycommand))$"
)
"""Who commits, and by what git runs programs on files, or merges in another way and signs that.

https://git-scm.com/docs/gitattributes and https://git-scm.com/docs/git-config
"""
_OFF = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.editor": "true",
    "commit.gpgSign": "false",
    "submodule.recurse": "false",
    "diff.ignoreSubmodules": "dirty",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "merge.verifySignatures": "false",
}
_NOBODY = {"user.name": "agentloop", "user.email": "agentloop@localhost"}
_OWN = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""What of the environment is the user's, and says nothing of where git works."""

_MERGES_TEXT = "git merge-file %A %O %B"
"""What git does with text itself, in the place of a repository's own program."""


@dataclass(frozen=True)
class Worktrees(ToolSet):
    """A git worktree for each task: made, worked in, merged and removed; and the file tools that work there.

    The model enters one by `worktree_enter(name)`. From then on the built-in tools (see `workspace_tools` for
    `allow`) see that folder alone, in that session: each sub-agent has its own. `worktree_merge` commits what
    is there on the branch `agentloop/NAME` and brings it to the branch that the repository has checked out.
    A conflict is met in the worktree and named, so the repository's own files are never left half merged.
    `worktree_remove` refuses where something is not committed, unless it is told to discard it; commits that
    are not merged stay on their branch.

    `repository` is the folder at the repository's top; the worktrees lie below it in `.worktrees`, which git
    does not see. Any number of processes may work on them at once. Each verb of this class is a tool too.

    Example:
        >>> from agentloop import Agent, OfflineModel
        >>> Worktrees("no/such/place")
        Traceback (most recent call last):
        agentloop.errors.UsageError: no folder at 'no/such/place': name the top of a git repository

    Raises:
        UsageError: git is not installed, or the folder is not the top of a repository that git trusts and
            that has a commit; `allow` has another word.
    """

    repository: Path | str
    allow: Collection[str] = field(default=("write",), kw_only=True)
    priority = 15
    _root: Path = field(init=False, repr=False, compare=False)
    _kept_in: str = field(init=False, repr=False, compare=False)
    """Where git keeps what it knows of the worktrees."""

    def __post_init__(self) -> None:
        if not isinstance(self.repository, str | Path) or self.repository == "":
            raise UsageError(f"repository must be the path of a folder, not {shown(self.repository)}")
        if shutil.which("git") is None:
            raise UsageError("git is not installed: install it to use Worktrees")
        root = Path(self.repository).resolve()
        if not root.is_dir():
            raise UsageError(f"no folder at {str(self.repository)!r}: name the top of a git repository")
        object.__setattr__(self, "_root", root)
        workspace_tools(root, allow=self.allow)
        try:
            top = self._output_of(root, "rev-parse", "--show-toplevel")
            common = self._output_of(root, "rev-parse", "--path-format=absolute", "--git-common-dir")
            self._git(root, "rev-parse", "--verify", "HEAD")
        except RetryTool as error:
            raise UsageError(f"{str(root)!r} is no git repository with a commit: {error}") from error
        object.__setattr__(self, "_kept_in", f"{common}/worktrees/")
        if Path(top).resolve() != root:
            raise UsageError(f"{str(root)!r} is not the top of its git repository: {top!r} is")

    @property
    def tools(self) -> Sequence[Tool]:
        """The verbs, and the file tools."""
        files = tools_of(*workspace_tools(self._root, allow=self.allow))
        return (*tools_of(self.enter, self.list, self.merge, self.remove), *map(self._in_worktree, files))

    @property
    def instructions(self) -> str:
        """That each task has a worktree of its own."""
        return WORKTREES_INSTRUCTIONS

    def path(self, name: str) -> Path:
        """Where the worktree of this task lies, whether or not it is there.

        Raises:
            RetryTool: it is no name.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RetryTool(f"{shown(name)} is no name: use 1 to 64 letters, digits, and . _ - between them")
        return self._root / FOLDER / name

    @tool(name=ENTER, idempotent=True)
    def enter(self, name: str) -> str:
        """Enter the worktree of a task: your file tools then see that folder alone.

        It is made where there is none, on its branch where that was kept.

        Args:
            name: The task, in one short word: fix-login.

        Raises:
            RetryTool: it is no name, or git cannot make it.
        """
        with self._alone(name) as tree:
            if not self._is_there(tree):
                branch = f"{BRANCHES}{name}"
                self._git(self._root, "worktree", "prune")
                kept = self._try_git(self._root, "show-ref", "--quiet", f"refs/heads/{branch}")
                new = ("-b", branch, "--", str(tree)) if kept.returncode else ("--", str(tree), branch)
                self._git(self._root, "worktree", "add", *new)
        return WORKTREE_ENTERED.format(name=name)

    @tool(name="worktree_list", idempotent=True)
    def list(self) -> str:
        """List the worktrees, each with what is not merged of it.

        Raises:
            RetryTool: git cannot tell.
        """
        lines = (
            f"{tree.name}: changed files: {len(self._changed(tree))}, commits that are not merged: "
            f"{self._ahead(tree)}"
            for tree in self._there()
        )
        return "\n".join(lines) or WORKTREES_NONE

    @tool(name="worktree_merge", idempotent=True)
    def merge(self, name: str) -> str:
        """Commit what is in a worktree, and merge it into the repository.

        Where both sides changed the same lines, the files are named: edit them in the worktree, then merge
        again.

        Args:
            name: The task.

        Raises:
            RetryTool: there is no such worktree, conflict markers are left in it, or git refuses: what is not
                committed in the repository itself is never overwritten.
        """
        with self._alone(name) as tree:
            self._check(tree)
            if marked := [file for file in self._conflicts(tree) if _has_markers(tree / file)]:
                raise RetryTool(f"conflict markers are left in {few(marked, MOST_NAMED)}: edit them first")
            self._commit(tree, f"Work of {name}")
            ours = self._output_of(self._root, "rev-parse", "HEAD")
            joined = self._try_git(tree, "merge", "--no-edit", "-m", f"Join {name}", ours)
            files = self._conflicts(tree)
            if joined.returncode and not files:
                raise RetryTool(f"git cannot merge: {_words(joined)}")
            named = "\n".join(files[:MOST_NAMED])
            if not all(_has_markers(tree / file) for file in files):
                self._git(tree, "merge", "--abort")
                return WORKTREE_UNMERGEABLE.format(name=name, branch=f"{BRANCHES}{name}", files=named)
            if files:
                return WORKTREE_CONFLICTS.format(name=name, files=named)
            self._git(self._root, "merge", "--ff-only", "--no-edit", f"{BRANCHES}{name}")
        return WORKTREE_MERGED.format(name=name, root=self._root.name)

    @tool(name="worktree_remove", idempotent=True)
    def remove(self, name: str, discard: bool = False) -> str:
        """Remove a worktree; commits that are not merged stay on its branch.

        Args:
            name: The task.
            discard: Whether changes that are not committed go with it, and its branch too.

        Raises:
            RetryTool: there is no such worktree, or something in it is not committed and not to be discarded.
        """
        with self._alone(name) as tree:
            self._check(tree, on_branch=not discard)
            changed, branch = self._changed(tree), f"{BRANCHES}{name}"
            if changed and not discard:
                told = few(changed, MOST_NAMED)
                raise RetryTool(
                    f"{name} has changes that are not committed: {told}. Merge it, or discard them"
                )
            others = ("ls-files", "--others", "--ignored", "--exclude-standard", "-z")
            ahead, ignored = self._ahead(tree), len(self._names(tree, *others))
            tip = self._output_of(tree, "rev-parse", "--short", "HEAD")
            self._git(self._root, "worktree", "remove", *(["--force"] if discard else []), "--", str(tree))
            gone = [f"files that git ignores: {ignored}"] if ignored else []
            if discard:
                gone += [f"changed files: {len(changed)}", f"commits up to {tip}: {ahead}"]
            if discard or not ahead:
                self._try_git(self._root, "branch", "-D", "--", branch)
            kept = "" if discard or not ahead else f"; commits that stay on the branch {branch}: {ahead}"
            more = f", with {', '.join(gone)}" if gone else ""
        return WORKTREE_REMOVED.format(name=name, more=more + kept)

    def pinned(self, said: Sequence[SeenMessage], fits: Callable[[str], bool]) -> str:
        """The worktree that was entered, where that is out of sight."""
        entered = next(_entered(said), None)
        return "" if entered is None or entered[1] else WORKTREE_ENTERED.format(name=entered[0])

    def _in_worktree(self, made: Tool) -> Tool:
        """The built-in tool as it works in the worktree that the session has entered."""

        async def work(context: RunContext[Any], **arguments: Any) -> ToolAnswer:
            name = next(_entered(await context.said()), ("", False))[0]
            if not name or not self._is_there(tree := self.path(name)):
                raise RetryTool(f"enter a worktree first, by {ENTER}")
            if made.kind == "write":
                _refuse_other_name(tree, str(arguments.get("path")))
            call = ToolCall(id=context.call_id, name=made.name, arguments=json.dumps(arguments))
            return await ToolRegistry(workspace_tools(tree, allow=self.allow)).answer(call, context)

        return replace(made, function=work, signature=None)

    @contextmanager
    def _alone(self, name: str) -> Iterator[Path]:
        """The folder of that worktree, with no other process of ours at work on any meanwhile."""
        tree = self.path(name)
        if tree.parent.is_symlink():
            raise RetryTool(f"{tree.parent} is a link: put a folder there")
        make_ignored_folder(tree.parent)
        try:
            file = open_lock(tree.parent / ".lock")
        except OSError as error:
            raise RetryTool(str(refused(tree.parent / ".lock", error))) from error
        with file:
            lock(file)
            yield tree

    def _check(self, tree: Path, *, on_branch: bool = True) -> None:
        """That the worktree is there, and has its own branch checked out."""
        if not self._is_there(tree):
            there = few([each.name for each in self._there()], MOST_NAMED)
            more = f"there are {there}" if there else f"{WORKTREES_NONE} Make one by {ENTER}"
            raise RetryTool(f"there is no worktree {tree.name!r}: {more}")
        has, wanted = self._output_of(tree, "rev-parse", "--abbrev-ref", "HEAD"), f"{BRANCHES}{tree.name}"
        if on_branch and has != wanted:
            raise RetryTool(f"{tree.name} has {has!r} checked out: go back to {wanted} first")

    def _there(self) -> Sequence[Path]:
        return sorted(filter(self._is_there, (self._root / FOLDER).glob("*")))

    def _is_there(self, tree: Path) -> bool:
        """Whether it is a worktree of the repository; its file that leads git there may be rewritten."""
        try:
            leads = beginning_of(tree / ".git", _MOST_LEADING_BYTES, follows_links=False).decode()
            return not tree.is_symlink() and leads.startswith(f"gitdir: {self._kept_in}")
        except (OSError, ValueError):
            return False

    def _changed(self, tree: Path) -> Sequence[str]:
        """The files that are not committed."""
        words = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
        return [line[3:] for line in self._names(tree, *words)]

    def _conflicts(self, tree: Path) -> Sequence[str]:
        return sorted({*self._names(tree, "diff", "--no-ext-diff", "--name-only", "-z", "--diff-filter=U")})

    def _ahead(self, tree: Path) -> int:
        base = self._output_of(self._root, "rev-parse", "HEAD")
        return int(self._output_of(tree, "rev-list", "--count", f"{base}..HEAD"))

    def _commit(self, tree: Path, message: str) -> None:
        """Commit all that is not ignored, and the merge that is under way."""
        self._git(tree, "add", "--all")
        joins = self._try_git(tree, "rev-parse", "--quiet", "--verify", "MERGE_HEAD")
        if joins.returncode == 0 or self._changed(tree):
            self._git(tree, "commit", "--quiet", "--no-verify", "-m", message)

    def _output_of(self, place: Path, *words: str) -> str:
        return self._git(place, *words).stdout.strip()

    def _names(self, place: Path, *words: str) -> Sequence[str]:
        """What git names, each ended by a NUL."""
        return [name for name in self._git(place, *words).stdout.split("\0") if name]

    def _git(self, place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run git there, which is to succeed."""
        done = self._try_git(place, *words)
        if done.returncode:
            raise RetryTool(f"git {words[0]}: {_words(done)}")
        return done

    def _try_git(self, place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run git there, none of the repository's own programs with it."""
        return _run(place, {**_OFF, **_settings(place)}, *words)


def _settings(place: Path) -> Mapping[str, str]:
    """What takes the place of settings there: no programs of the repository's own, and somebody commits."""
    words = _run(place, _OFF, "config", "--show-scope", "-z", "--name-only", "--get-regexp", _SETTINGS)
    told = words.stdout.split("\0")
    found = list(zip(told[::2], told[1::2], strict=False))
    off = {"driver": _MERGES_TEXT, "required": "false", "twohead": "recursive", "octopus": "octopus"}
    own = {name for scope, name in found if scope in ("local", "worktree") and name not in _NOBODY}
    nobody = {name: value for name, value in _NOBODY.items() if name not in [each for _, each in found]}
    return {name: off.get(name.rpartition(".")[2], "") for name in own} | nobody


def _run(place: Path, settings: Mapping[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    seen = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(_OWN)
    }
    for at, (name, value) in enumerate(settings.items()):
        seen |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
    # What the repository names as its remote may be a program too: nothing is fetched.
    seen |= {"GIT_CONFIG_COUNT": str(len(settings)), "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    seen |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}
    try:
        return subprocess.run(
            ["git", *words],
            cwd=place,
            env=seen,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RetryTool(f"git {words[0]} could not be run: {error}") from error


def _words(done: "subprocess.CompletedProcess[str]") -> str:
    """What git said, on one line."""
    said = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
    return " ".join(said.encode("utf-8", "replace").decode().split())[:500]


def _has_markers(file: Path) -> bool:
    try:
        lines = beginning_of(file, _MOST_MERGED_BYTES, follows_links=False).splitlines()
    except (OSError, ValueError):
        return False
    return all(any(line.startswith(mark) for line in lines) for mark in _MARKERS)


def _entered(said: Sequence[SeenMessage]) -> Iterator[tuple[str, bool]]:
    """The worktrees that were entered, newest first, each with whether that is in sight."""
    for call, result in results_of(ENTER, said):
        name = str((call.decoded() or {}).get("name"))
        if first_given(result.message.text).startswith(WORKTREE.format(name=name)):
            yield name, result.in_sight


def _refuse_other_name(tree: Path, path: str) -> None:
    """Raise where the path is another's, through a link: rules look at the path that is named."""
    with suppress(WorkspaceError):  # the tool says what is wrong with it
        real = "/".join(Folder.at(tree).inside(path))
        if real != os.path.normpath(path):
            raise RetryTool(f"{path} really is {real}: name that")
