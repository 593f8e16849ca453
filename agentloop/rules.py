"""Which calls run unasked, which need a person's yes, and which never run: rules that deny, ask and allow.

A rule is the name of a tool, which may hold `*` (`github_*`), or a kind of built-in tool, `write` or `shell`,
alone or with a pattern: `write(docs/*)`, `shell(git *)`. What one denies is denied, whatever else is said;
then what one asks about is asked about; then what one allows runs.

A shell line is cut at `;`, `&`, `|` and line ends, and each part must be allowed. What is not plain is asked
about, unless a rule has the very line: substitution, redirection, groups, escapes, variables, and `*` in a
command's name. So is what runs its arguments (`env`, `sudo`, `xargs`), unless the rule begins with that very
word.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from agentloop._plumbing.checks import shown
from agentloop._plumbing.patterns import pattern
from agentloop.errors import UsageError

Verdict: TypeAlias = Literal["allow", "ask", "deny"]

KINDS: Mapping[str, tuple[str, str]] = {
    "run_command": ("shell", "command"),
    "run_in_background": ("shell", "command"),
    "write_file": ("write", "path"),
    "edit_file": ("write", "path"),
}
"""The built-in tools that change things: the kind of each, and the argument that a pattern looks at."""

_RULE = pattern(r"([^()\s]+)(?:\((.+)\))?", re.DOTALL)
_RUNS_OTHERS = pattern(
    r"!|\.|ash|bash|builtin|busybox|chroot|chrt|command|coproc|csh|dash|do|doas|elif|else|env|eval|exec|fakeroot|"
    "fd|find|fish|flock|gdb|if|ionice|ksh|ltrace|nice|nohup|nsenter|parallel|pkexec|pwsh|rbash|runuser|script|"
    "setarch|setsid|sh|source|ssh|stdbuf|strace|su|sudo|systemd-run|taskset|tcsh|then|time|timeout|trap|unshare|"
    "until|valgrind|watch|while|xargs|zsh|.*=.*"
)
"""Words behind which another command may stand. Not all there are; what is not known is not allowed
either."""
_SHELLS = pattern("(a|ba|c|da|fi|k|pw|rba|tc|z)?sh")
_NOT_PLAIN = frozenset("$`\\<>(){}#~\r")
_NOT_PLAIN_QUOTED = frozenset("$`\\")
_GLOB = frozenset("*?]")
_BLANK = pattern(r"\s")
_BLANKS = " \t\n"
_GAP = "\N{SYMBOL FOR SPACE}"
"""Stands for a blank within a word, where a pattern that allows is not to take it for one between words."""
_INNER = pattern(r"[;&|\n`(){}]|\$\(")
_DEEPEST = 8
"""So many commands that run others are looked through, one in the other."""


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    pattern: str | None

    def is_of(self, tool: str, kind: str | None) -> bool:
        return self.name == kind or (self.pattern is None and fnmatchcase(tool, self.name))


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by what they do, for `Runner(rules=…)`.

    A tool that no rule speaks of does as it says itself. A call of a kind that rules with patterns speak of,
    and that none of them meets, is asked about.

    Example:
        >>> rules = Rules(allow=["shell(git *)", "write(docs/*)"], deny=["shell(git push*)"])
        >>> rules.verdict("run_command", {"command": "git log | git cat-file --batch"})
        'allow'
        >>> rules.verdict("run_command", {"command": "git log > /etc/passwd"})
        'ask'
        >>> rules.verdict("run_command", {"command": "git add . && git push"})
        'deny'

    Raises:
        UsageError: something is no list of rules, or a pattern stands behind what takes none.
    """

    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()
    _rules: Mapping[Verdict, Sequence[_Rule]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rules = {
            name: [_rule(name, each) for each in _listed(name, getattr(self, name))] for name in _VERDICTS
        }
        object.__setattr__(self, "_rules", rules)

    @property
    def names(self) -> Sequence[str]:
        """The tools and kinds that they name."""
        return [each.name for rules in self._rules.values() for each in rules]

    def offer(self, kind: str) -> bool:
        """Whether built-in tools of that kind are offered: some of their calls may run."""
        if _Rule(kind, None) in self._rules["deny"]:
            return False
        return any(each.name == kind for name in ("allow", "ask") for each in self._rules[name])

    def speak_of(self, tool: str) -> bool:
        """Whether any of them may speak of that tool's calls."""
        return any(self._of(tool).values())

    def allow_all(self, tool: str) -> bool:
        """Whether they allow each call of that tool, whatever its arguments."""
        rules = self._of(tool)
        whole = any(each.pattern is None for each in rules["allow"])
        return whole and not rules["deny"] and not rules["ask"]

    def verdict(self, tool: str, arguments: Mapping[str, Any]) -> Verdict | None:
        """What they say of this call; None where none of them speaks of it."""
        rules = self._of(tool)
        if not any(rules.values()):
            return None
        kind, argument = KINDS.get(tool, (None, ""))
        value = arguments.get(argument)
        call = _call(kind, value) if isinstance(value, str) else None
        for name in _STRICT:
            if any(each.pattern is None or (call and call.touches(each.pattern)) for each in rules[name]):
                return name
        patterns = [each.pattern for each in rules["allow"] if each.pattern is not None]
        if len(patterns) < len(rules["allow"]):  # all are allowed but for what the others may speak of
            return "ask" if call and not call.is_plain and (rules["deny"] or rules["ask"]) else "allow"
        return "allow" if call and call.is_covered(patterns) else "ask"

    def strictest(self, tool: str, *given: Mapping[str, Any]) -> Verdict | None:
        """What is strictest of what they say of calls with each of these arguments."""
        said = [self.verdict(tool, arguments) for arguments in given]
        return next((each for each in _VERDICTS if each in said), None)

    def _of(self, tool: str) -> Mapping[Verdict, Sequence[_Rule]]:
        kind, _ = KINDS.get(tool, (None, ""))
        return {
            name: [each for each in rules if each.is_of(tool, kind)] for name, rules in self._rules.items()
        }


_STRICT: Sequence[Verdict] = ("deny", "ask")
_VERDICTS: Sequence[Verdict] = ("deny", "ask", "allow")


def _listed(name: str, given: object) -> Iterable[object]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{name} must be a list of rules such as 'shell(git *)', not {shown(given)}")
    return given


def _rule(name: str, text: object) -> _Rule:
    found = _RULE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise UsageError(
            f"{name}: {shown(text)} is no rule: write write, shell, a tool's name, or shell(git *)"
        )
    if found[2] is not None and found[1] not in {kind for kind, _ in KINDS.values()}:
        raise UsageError(f"{name}: {text}: only write(…) and shell(…) take a pattern: leave it out")
    pattern = found[2].strip() if found[2] else None
    return _Rule(found[1], None if pattern == "*" else pattern)


@dataclass(frozen=True, slots=True)
class _Path:
    """A path that is to be written, below the folder of the tools."""

    path: str
    is_plain = True

    def touches(self, wanted: str) -> bool:
        """Whether the pattern meets it; a path from the root down, wherever the folder may begin in it."""
        names = self.path.split("/")
        tails = ["/".join(names[at:]) for at in range(len(names))] if self.path[:1] == "/" else [self.path]
        return any(fnmatchcase(each, posixpath.normpath(wanted)) for each in tails)

    def is_covered(self, patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(self.path, posixpath.normpath(each)) for each in patterns)


@dataclass(frozen=True, slots=True)
class _Line:
    """A shell line: the words of its parts, and whether that is all there is to it."""

    text: str
    parts: Sequence[Sequence[str]]
    is_plain: bool

    def touches(self, wanted: str) -> bool:
        """Whether the pattern meets any part of it, wherever that stands, as far as can be seen."""
        return any(_meets(words, wanted) for words in self._all_parts())

    def is_covered(self, patterns: Sequence[str]) -> bool:
        """Whether patterns meet all of it."""
        if self.text in patterns:
            return True
        return self.is_plain and all(
            any(_is_allowed(words, each) for each in patterns) for words in self.parts
        )

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


def _runs(words: Sequence[str], depth: int = 0) -> Iterator[Sequence[str]]:
    """The command that these words are, and those that it runs."""
    if not words:
        return
    name = posixpath.basename(words[0])
    yield (name, *words[1:])
    if _RUNS_OTHERS.fullmatch(name) and depth < _DEEPEST:
        for at, word in enumerate(words[1:], 1):
            yield from _runs(words[at:], _DEEPEST)
            for inner in _line(word).parts if " " in word else ():
                yield from _runs(inner, depth + 1)


def _reads_commands(words: Sequence[str]) -> bool:
    """Whether it is a shell, which runs what others print to it."""
    names = [word for word in words if word[:1] != "-"]
    return bool(names) and _SHELLS.fullmatch(posixpath.basename(names[-1])) is not None


def _meets(words: Sequence[str], wanted: str) -> bool:
    text = " ".join(words)
    return fnmatchcase(text, wanted) or (wanted.endswith(" *") and text == wanted[:-2])


def _is_allowed(words: Sequence[str], wanted: str) -> bool:
    is_named = words[0] == wanted.split(maxsplit=1)[0]
    whole = [_BLANK.sub(_GAP, word) for word in words]
    return _meets(whole, wanted) and (is_named or not _RUNS_OTHERS.fullmatch(posixpath.basename(words[0])))


def _call(kind: str | None, value: str) -> _Path | _Line | None:
    if kind == "write":
        return _Path(posixpath.normpath(value))
    return _line(value) if kind == "shell" else None


def _line(text: str) -> _Line:
    """The line, read as a shell would read it as long as it is plain."""
    parts: list[list[str]] = [[]]
    word, quote, is_plain = None, "", True
    for char in text.strip(_BLANKS):
        if quote:
            if char == quote:
                quote = ""
                continue
            is_plain = is_plain and not (quote == '"' and char in _NOT_PLAIN_QUOTED)
        elif char in "'\"":
            quote, word = char, word or ""
            continue
        elif char in " \t\n;&|":
            if word is not None:
                parts[-1].append(word)
            word = None
            if char in "\n;&|":
                parts.append([])
            continue
        else:
            is_odd_name = not parts[-1] and char in _GLOB
            is_plain = is_plain and char not in _NOT_PLAIN and not is_odd_name
        word = (word or "") + char
    if word is not None:
        parts[-1].append(word)
    found = [part for part in parts if part]
    return _Line(text.strip(_BLANKS), found, is_plain and not quote and bool(found))
