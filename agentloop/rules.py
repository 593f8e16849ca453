"""Which calls run unasked, which need a person's yes, and which never run: rules that deny, ask and allow.

A rule is the name of a tool, which may hold `*` (`github_*`), or a kind of tool, `write` or `shell`, alone or
with a pattern: `write(docs/*)`, `shell(git *)`. A tool says of what kind it is, as the built-in ones do: its
name makes it none. What one denies is denied, whatever else is said; then what one asks about is asked about;
then what one allows runs.

A shell line is cut at `;`, `&`, `|` and line ends, and each part must be allowed. What is not plain is asked
about, unless a rule has the very line: substitution, redirection, groups, escapes, variables, and `*` in a
command's name. So is what runs other commands (`env`, `sudo`, `npx`, `python -c`), unless the rule itself
names it so.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeAlias

from agentloop._plumbing.checks import several, shown
from agentloop._plumbing.patterns import pattern
from agentloop.errors import UsageError

Verdict: TypeAlias = Literal["allow", "ask", "deny"]

Kind: TypeAlias = Literal["write", "shell"]

KINDS: Mapping[Kind, str] = {"write": "path", "shell": "command"}
"""The kinds of tools that change things, and the argument that a pattern looks at."""

_RULE = pattern(r"([^()\s]+)(?:\((.+)\))?", re.DOTALL)
_SHELL = "(a|ba|c|da|fi|k|mk|pw|rba|tc|ya|z)?sh"
_RUNS_OTHERS: Sequence[tuple[str, str, bool]] = (
    (
        r"!|\.|.*=.*|builtin|command|coproc|do|elif|else|eval|exec|if|source|then|time|trap|until|while",
        ".*",
        True,
    ),
    (_SHELL, ".*", False),
    (r"(busy|toy)box|chroot|doas|fakeroot|nsenter|pkexec|proot|runuser|s[gu]|su-exec|gosu|sudo", ".*", True),
    (
        r"dbus-run-session|ld(-linux.*)?\.so.*|logsave|numactl|perf|qemu-.*|setpriv|ssh-agent|unshare",
        ".*",
        True,
    ),
    (r"env", r"-[a-zA-Z0]*S.*|--s.*", False),
    (r"chrt|env|flock|ionice|nice|nohup|prlimit|setarch|setsid|stdbuf|systemd-run|taskset", ".*", True),
    (
        r"capsh|catchsegv|chpst|daemon|daemonize|ltrace|parallel|script|strace|timeout|valgrind|watch|xargs|xvfb-run",
        ".*",
        True,
    ),
    (r"ccache|chronic|dumb-init|eatmydata|faketime|proxychains4?|rlwrap|start-stop-daemon", ".*", True),
    (r"ifne|runcon|tini|torsocks|unbuffer", ".*", True),
    (r"find", "-(exec|ok)(dir)?", True),
    (r"ip", "exec", True),
    (r"fd|fdfind", r"-[a-zA-Z]*[xX].*|--exec.*", True),
    (
        r"alias|at|batch|bind|bwrap|compgen|complete|crontab|enable|entr|expect|firejail|gdb|guix|hash|hyperfine"
        r"|mapfile|nix-shell|screen|socat|tmux|watchexec|wine",
        ".*",
        False,
    ),
    (
        r"ed|elixir|elvish|emacs|erl|ex|ghci?|groovy|guile|g?vim?|jshell|julia|kotlin|nu|nvim|ocaml|octave|osascript"
        r"|R|racket|Rscript|sbcl|scala|swipl|tclsh|wish|xonsh",
        ".*",
        False,
    ),
    (r"mariadb|mysql|psql|sqlite3", r".*(\\!|\.she|\.sy|\b(program|system)\b).*", False),
    (r"g?sed", r"(.*[^\w-])?[0-9giImMp]*e([\s;}].*)?|-[a-zA-Z]*f.*|--fi.*", False),
    (r"g?(sort|split)", r"--(co|fi).*", False),
    (r"ant|bazel|bunx|cmake|g?make|gradle|just|mvn|ninja|nox|npx|pnpx|rake|scons|tox|uvx", ".*", False),
    (r"mosh|rsh|sftp|ssh|sshpass", ".*", False),
    (r"scp", r"-[a-zA-Z0-9]*[DFSo].*", False),
    (r"nc|ncat|netcat", r"-[a-zA-Z]*[ce].*", False),
    (r"tcpdump", r"-[a-zA-Z]*z.*", False),
    (r"man", r"-[a-zA-Z]*[HP].*|--ht.*", False),
    (r"wget", r"-e.*|--ex.*", False),
    (r"zip", r"-[a-zA-Z]*TT.*", False),
    (r"fzf|rg", r"--(bind|hostname-bin|pre|preview)(=.*)?", False),
    (r"emacsclient|gnuplot", r"-e.*|--eval.*", False),
    (
        r"asdf|bundle|bun|cabal|cargo|conda|deno|direnv|dotnet|fnm|go|hatch|mamba|mise|nix|npm|pdm|pipenv|pipx|pnpm"
        r"|poetry|pyenv|rbenv|rustup|rye|stack|swift|uv|volta|yarn",
        "create|dlx|exec|init|run.*|shell|start|test|x",
        False,
    ),
    (
        r"docker|docker-compose|incus|kubectl|lxc|nerdctl|oc|podman|podman-compose|vagrant",
        "attach|debug|exec|run|rsh|shell|ssh",
        False,
    ),
    (r"[gmn]?awk", r".*(system|\||@include|@load).*|-[Efil].*|--(ex|fi|in|lo).*", False),
    (
        r"git",
        r"[a-zA-Z0-9-]+\..*=.*|--(conf|exe|ext|open|rece|upl).*|-[a-ln-z]*(O|x).*|ext::.*|filter-branch|foreach|instaweb"
        r"|remote-ext|run|web--browse|(?i:(alias|pager|protocol)\..*|.*\.\w*(askpass|browser|clean|cmd|command"
        r"|difffilter|driver|editor|external|fsmonitor|gitproxy|helper|hook|hookspath|httpd|pack|pager|path|process"
        r"|program|server|smudge|templatedir|textconv|tunnel|update|vcs))",
        False,
    ),
    (r"git", r"clone -[a-zA-Z]*u.*", False),
    (r"(python|pypy)[0-9.]*", r"|-|-[a-zA-Z]*c.*", False),
    (r"(luajit|lua|perl|ruby)[0-9.]*", r"|-|-[a-zA-Z0-9]*[eE].*", False),
    (r"node(js)?", r"|-|-[a-z]*[ep].*|--(eval|import|print|require).*", False),
    (r"php[0-9.]*", r"|-|-[BREr].*", False),
    (r"rsync", r"-[a-zA-Z]*e.*|--rs(h|ync-path).*", False),
    (r"(bsd|g)?tar", r"(-|[crtux])[a-zA-Z]*[FI].*|--(checkpoint-a|info-s|new-v|rmt|rsh|to-c|use-c).*", False),
)
"""What runs other commands: its name, a word behind it that makes it do so (nothing stands for no word; of
several each must be there), and whether what it runs stands there to be seen. Not all there are; what is not
known is not allowed either."""
_NAMES_PROGRAM = pattern(
    r"--?(?!no-)([a-z]+-)*(askpass|cmd|command|editor|exec|pager|program|rsh|shell(-escape)?|ssh|toolexec|vettool"
    r"|wrapper)(=.*)?",
    re.DOTALL,
)
"""An option that names a program to run, whatever the command."""
_SHELLS = pattern(_SHELL)
_NOT_PLAIN = frozenset("$`\\<>(){}#~\r")
_NOT_PLAIN_QUOTED = frozenset("$`\\")
_GLOB = frozenset("*?]")
_MATCHES_NAMES = pattern(r"[*?]|\[.*\]", re.DOTALL)
_TO_BE_READ = pattern(r"[*?\[]")
"""Where what a pattern says letter by letter ends."""
_BEFORE_VALUE = pattern(r"--?[a-zA-Z-]+=|-[a-zA-Z]|")
_BLANK = pattern(r"\s")
_BLANKS = " \t\n"
_GAP = "\N{SYMBOL FOR SPACE}"
"""Stands for a blank within a word, where a pattern that allows is not to take it for one between words."""
_INNER = pattern(r"[;&|\n`(){}]|\$\(")
_DEEPEST = 8
"""So many commands that run others are looked through, one in the other."""
_MOST_WORDS = 200
"""So many words of a command are looked at for one that makes it run others; a longer one is taken to."""


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    pattern: str | None

    def is_of(self, tool: str, kind: Kind | None) -> bool:
        return self.name == kind or (self.pattern is None and fnmatchcase(tool, self.name))

    def __str__(self) -> str:
        return self.name if self.pattern is None else f"{self.name}({self.pattern})"

    @property
    def is_of_kind(self) -> bool:
        return self.name in KINDS


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by what they do, for `Runner(rules=…)`.

    A tool that no rule speaks of does as it says itself. A call of a kind that rules with patterns speak of,
    and that none of them meets, is asked about.

    Example:
        >>> rules = Rules(allow=["shell(git *)", "write(docs/*)"], deny=["shell(git push*)"])
        >>> rules.verdict("run_command", {"command": "git log | git cat-file --batch"}, kind="shell")
        'allow'
        >>> rules.verdict("run_command", {"command": "git log > /etc/passwd"}, kind="shell")
        'ask'
        >>> rules.verdict("run_command", {"command": "git add . && git push"}, kind="shell")
        'deny'

    Raises:
        UsageError: something is no list of rules, or a pattern stands behind what takes none.
    """

    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()
    _rules: Mapping[Verdict, Sequence[_Rule]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rules: dict[Verdict, Sequence[_Rule]] = {}
        for name in _VERDICTS:
            several(name, getattr(self, name), "a list of rules such as 'shell(git *)'")
            rules[name] = [_rule(name, each) for each in getattr(self, name)]
        object.__setattr__(self, "_rules", rules)

    @property
    def names(self) -> Sequence[str]:
        """The tools and kinds that they name."""
        return [each.name for rules in self._rules.values() for each in rules]

    @property
    def overruled(self) -> Sequence[tuple[str, str]]:
        """Rules that allow or ask, and speak of nothing since another denies all of it: both, as written."""
        return [
            (f"{name} {each}", f"deny {no}")
            for name in ("allow", "ask")
            for each in self._rules[name]
            for no in self._rules["deny"]
            if no.name == each.name and no.pattern in (None, each.pattern)
        ]

    def offer(self, kind: Kind) -> bool:
        """Whether built-in tools of that kind are offered: some of their calls may run."""
        if _Rule(kind, None) in self._rules["deny"]:
            return False
        return any(each.name == kind for name in ("allow", "ask") for each in self._rules[name])

    def speak_of(self, tool: str, kind: Kind | None = None) -> bool:
        """Whether any of them may speak of that tool's calls."""
        return any(self._of(tool, kind).values())

    def allow_all(self, tool: str, kind: Kind | None = None) -> bool:
        """Whether they allow each call of that tool, whatever its arguments."""
        rules = self._of(tool, kind)
        whole = any(each.pattern is None for each in rules["allow"])
        return whole and not rules["deny"] and not rules["ask"]

    def verdict(self, tool: str, arguments: Mapping[str, Any], *, kind: Kind | None = None) -> Verdict | None:
        """What they say of this call to a tool of that kind; None where none of them speaks of it."""
        rules = self._of(tool, kind)
        if not any(rules.values()):
            return None
        value = arguments.get(KINDS[kind]) if kind else None
        call = _call(kind, value) if isinstance(value, str) else None
        for name in _STRICT:
            if any(each.pattern is None or (call and call.touches(each.pattern)) for each in rules[name]):
                return name
        patterns = [each.pattern for each in rules["allow"] if each.pattern is not None]
        if len(patterns) < len(rules["allow"]):  # all are allowed but for what the others may speak of
            is_bound = bool(rules["deny"] or rules["ask"])
            return "ask" if is_bound and call and not call.is_seen_through(patterns) else "allow"
        return "allow" if call and call.is_covered(patterns) else "ask"

    def strictest(self, tool: str, *given: Mapping[str, Any], kind: Kind | None = None) -> Verdict | None:
        """What is strictest of what they say of calls with each of these arguments."""
        said = [self.verdict(tool, arguments, kind=kind) for arguments in given]
        return next((each for each in _VERDICTS if each in said), None)

    def _of(self, tool: str, kind: Kind | None) -> Mapping[Verdict, Sequence[_Rule]]:
        """Those that speak of the tool; what allows a kind allows no other tool of that name."""
        return {
            name: [
                each
                for each in rules
                if each.is_of(tool, kind) and (name != "allow" or not each.is_of_kind or each.name == kind)
            ]
            for name, rules in self._rules.items()
        }


_STRICT: Sequence[Verdict] = ("deny", "ask")
_VERDICTS: Sequence[Verdict] = ("deny", "ask", "allow")


def _rule(name: str, text: object) -> _Rule:
    found = _RULE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise UsageError(
            f"{name}: {shown(text)} is no rule: one is write, shell, a tool's name, or shell(git *)"
        )
    if found[2] is not None and found[1] not in KINDS:
        raise UsageError(f"{name}: {text}: only write(…) and shell(…) take a pattern: leave it out")
    pattern = found[2].strip() if found[2] else None
    return _Rule(found[1], None if pattern == "*" else pattern)


@dataclass(frozen=True, slots=True)
class _Path:
    """A path that is to be written, below the folder of the tools."""

    path: str

    def touches(self, wanted: str) -> bool:
        """Whether the pattern meets it; a path from the root down, wherever the folder may begin in it."""
        names = self.path.split("/")
        tails = ["/".join(names[at:]) for at in range(len(names))] if self.path[:1] == "/" else [self.path]
        return any(fnmatchcase(each, posixpath.normpath(wanted)) for each in tails)

    def is_covered(self, patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(self.path, posixpath.normpath(each)) for each in patterns)

    def is_seen_through(self, patterns: Sequence[str]) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class _Line:
    """A shell line: the words of its parts, and whether that is all there is to it."""

    text: str
    parts: Sequence[Sequence[str]]
    is_plain: bool

    def touches(self, wanted: str) -> bool:
        """Whether the pattern meets any part of it, wherever that stands, as far as can be seen."""
        return any(
            _meets(each, wanted) for words in self._all_parts() for each in _without_options(words, wanted)
        )

    def is_covered(self, patterns: Sequence[str]) -> bool:
        """Whether patterns meet all of it."""
        if self.text in patterns:
            return True
        return self.is_plain and all(
            any(_is_allowed(words, each) for each in patterns) for words in self.parts
        )

    def is_seen_through(self, patterns: Sequence[str]) -> bool:
        """Whether all that it runs can be seen, or is what patterns meet."""
        if self.text in patterns:
            return True
        commands = [command for words in self.parts for command in _runs(words)]
        if any(map(_MATCHES_NAMES.search, (name for name, *_ in commands))):
            return False
        hidden = [each for each in commands if (row := _row_of(each)) and not row.is_seen]
        return self.is_plain and all(any(_is_allowed(words, each) for each in patterns) for words in hidden)

    def _all_parts(self) -> Iterator[Sequence[str]]:
        inner = (
            []
            if self.is_plain
            else [part.replace('"', "").replace("'", "") for part in _INNER.split(self.text)]
        )
        for words in (*self.parts, *(part.split() for part in inner)):
            yield from _runs(words)
        if any(map(_reads_commands, self.parts[1:])):
            for said in (word for words in self.parts for word in words if " " in word):
                for words in _line(said).parts:
                    yield from _runs(words)


def _without_options(words: Sequence[str], wanted: str) -> Iterator[Sequence[str]]:
    """The command, and what it is without the options before its first other word, as in `git -C x push`.

    Nobody knows here which of them take a value, so each that may be one is left out too. What does not begin
    as the pattern does is not copied: a line may have as many commands and options as words. A pattern that
    begins with a glob is held against a long command as it is alone.
    """
    yield words
    begins = _TO_BE_READ.split(wanted, maxsplit=1)[0].rstrip()
    blanks = begins.count(" ")
    is_named = f"{words[0]} ".startswith(begins[: len(words[0]) + 1])
    if not is_named or (not begins and len(words) > _MOST_WORDS):
        return
    for at in range(1, len(words) - 1):
        if words[at][:1] != "-" and (at == 1 or words[at - 1][:1] != "-"):
            return
        if " ".join((words[0], *words[at + 1 : at + 2 + blanks])).startswith(begins):
            yield (words[0], *words[at + 1 :])


def _runs(words: Sequence[str], depth: int = 0) -> Iterator[Sequence[str]]:
    """The command that these words are, and those that it runs."""
    if not words:
        return
    yield (posixpath.basename(words[0]), *words[1:])
    if depth < _DEEPEST and _row_of(words):
        for at, word in enumerate(words[1:_MOST_WORDS], 2):
            before = _BEFORE_VALUE.match(word)
            for said in {word, word[before.end() if before else 0 :]}:
                yield from _runs((said, *words[at:]), _DEEPEST)
                for inner in _line(said).parts:
                    yield from _runs(inner, depth + 1)


class _Row(NamedTuple):
    """A kind of command that runs others; `is_seen` says whether these stand there to be seen."""

    name: re.Pattern[str]
    words: Sequence[re.Pattern[str]]
    is_seen: bool


_ROWS = [
    _Row(pattern(name, re.DOTALL), [pattern(word, re.DOTALL) for word in words.split(" ")], is_seen)
    for name, words, is_seen in _RUNS_OTHERS
]
_ANY_COMMAND = _Row(pattern(".*"), [_NAMES_PROGRAM], is_seen=False)


def _row_of(words: Sequence[str]) -> _Row | None:
    """The row of what runs other commands that the command meets."""
    name, behind = posixpath.basename(words[0]), words[1:_MOST_WORDS] or [""]
    is_long = len(words) > _MOST_WORDS
    for row in _ROWS:
        if row.name.fullmatch(name) and (
            is_long or all(any(map(word.fullmatch, behind)) for word in row.words)
        ):
            return row
    return _ANY_COMMAND if any(map(_NAMES_PROGRAM.fullmatch, behind)) else None


def _reads_commands(words: Sequence[str]) -> bool:
    """Whether it is a shell, which runs what others print to it."""
    names = [word for word in words if word[:1] != "-"]
    return bool(names) and _SHELLS.fullmatch(posixpath.basename(names[-1])) is not None


def _meets(words: Sequence[str], wanted: str) -> bool:
    text = " ".join(words)
    return fnmatchcase(text, wanted) or (wanted.endswith(" *") and text == wanted[:-2])


def _is_allowed(words: Sequence[str], wanted: str) -> bool:
    row, named = _row_of(words), wanted.split()
    is_named = [words[0]] == named[:1] and _row_of(named) is row
    whole = [_BLANK.sub(_GAP, word) for word in words]
    return _meets(whole, wanted) and (row is None or is_named)


def _call(kind: Kind | None, value: str) -> _Path | _Line | None:
    if kind == "write":
        return _Path(posixpath.normpath(value))
    return _line(value) if kind == "shell" else None


def _line(text: str) -> _Line:
    """The line, read as a shell would read it as long as it is plain."""
    parts: list[list[str]] = [[]]
    word: list[str] | None = None
    quote, is_plain = "", True
    for char in text.strip(_BLANKS):
        if quote:
            if char == quote:
                quote = ""
                continue
            is_plain = is_plain and not (quote == '"' and char in _NOT_PLAIN_QUOTED)
        elif char in "'\"":
            quote, word = char, word or []
            continue
        elif char in " \t\n;&|":
            if word is not None:
                parts[-1].append("".join(word))
            word = None
            if char in "\n;&|":
                parts.append([])
            continue
        else:
            is_odd_name = not parts[-1] and char in _GLOB
            is_plain = is_plain and char not in _NOT_PLAIN and not is_odd_name
        word = word or []
        word.append(char)
    if word is not None:
        parts[-1].append("".join(word))
    found = [part for part in parts if part]
    return _Line(text.strip(_BLANKS), found, is_plain and not quote and bool(found))
