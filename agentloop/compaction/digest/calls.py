"""What was done: calls with their outcome, the errors met, and the files with the last thing done to each.

`Calls` holds those made so far; `failure_lines`, `last_done` and `newest_of_each` make three sections of it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.truncate import beginning, failure_in, halves, head, opening_failure_in, tail
from agentloop.compaction.digest.actions import CHANGING, action_of, only_looks, paths_in
from agentloop.compaction.digest.language import MORE_FILES, is_keyed
from agentloop.compaction.digest.sentences import Sentence, is_hard, sentences, words
from agentloop.context import WaitingCalls
from agentloop.messages import Message, ToolCall, decoded
from agentloop.strategies import given_in

MOST_ARGUMENT_CHARS = 20_000
"""Longer arguments are not decoded but read as text, at their head."""

MOST_RESULT_CHARS = 8_000
"""So much of a result is looked at, head and tail together."""

_MOST_NAME_CHARS = 200
"""OpenAI allows a tool's name 64; a longer one was made up and is shown at its head."""

_MOST_UNREAD_CHARS = 200
"""Of arguments that are no JSON object, so much is shown."""

_MOST_COMMAND_CHARS = 2_000
"""A command is read for what it does and shown at its head; a script behind `<<` adds nothing to that."""

_MOST_LOOKED_AT_CHARS = 400
"""So much of one argument's value is looked at before its blanks are folded."""

_MOST_VALUE_CHARS = 80
"""A line of a terminal: a longer value of an argument is shown by its head and its length."""

_VALUE_HEAD_CHARS = 60
"""What is shown of such a value, so that its length fits into the same line."""

_COMMAND_KEYS = ("command", "cmd", "script", "code", "bash", "shell")


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call with its result; `result` is None where there is none.

    `at` is the place of the message that asked, `paths` the files that the arguments name, `command` the
    command line where there is one.
    """

    at: int
    name: str
    arguments: str
    paths: tuple[str, ...]
    command: str
    result: str | None = None
    error: str | None = None

    @cached_property
    def outcome(self) -> str:
        """What came of it: its error, its few words, or the sentences that tell most of it."""
        return _outcome(self)

    @cached_property
    def asked(self) -> str:
        """What was called, with the arguments in brief."""
        return f"{self.name}({_arguments(self)})"

    @cached_property
    def line(self) -> str:
        """What was called, and what came of it."""
        return f"{self.asked}{ARROW}{self.outcome}"

    @cached_property
    def run(self) -> str:
        """What is run, however much it prints; for a call that runs no command, what it is about."""
        if not self.command:
            return " ".join(self.paths) or self.arguments
        words = _SHOWN.sub("", self.command).split()
        if not words or words[0] in _LOUD_IS_ELSE:
            return self.command
        return " ".join(word for word in words if not _LOUD.fullmatch(word))

    @cached_property
    def actions(self) -> tuple[tuple[str, str], ...]:
        """The files that it names, each with what was done to it."""
        return tuple((path, _action(self, path)) for path in self.paths)

    def with_result(self, text: str) -> "Call":
        """The same call with its result."""
        result = halves(text, MOST_RESULT_CHARS)
        failure = opening_failure_in if only_looks(self.name, self.command) else failure_in
        return replace(self, result=result, error=failure(result))


def call_at(at: int, call: ToolCall) -> Call:
    """A call of the message at this place, without its result."""
    arguments, paths, command = _read_arguments(call.arguments)
    return Call(
        at=at,
        name=_folded(call.name, _MOST_NAME_CHARS) or "tool",
        arguments=arguments,
        paths=paths,
        command=_folded(command, _MOST_COMMAND_CHARS),
    )


class Calls:
    """Every call so far, in the order in which they were made, each with its result once that came."""

    def __init__(self) -> None:
        self.made: list[Call] = []
        self._first: dict[int, int] = {}
        self._given: list[tuple[str, str] | None] = []
        self._waiting = WaitingCalls()
        self._results: defaultdict[tuple[str, str], list[int]] = defaultdict(list)

    def add(self, at: int, message: Message, calls: Sequence[Call]) -> None:
        """Take in the calls of the message at this place."""
        self._first[at] = len(self.made)
        self.made += calls
        self._given += (
            (call.name, given) if (given := given_in(call.arguments)[1]) else None
            for call in message.tool_calls
        )
        self._waiting.add(at, message)

    def answer(self, at: int, result: Message, *, keep: bool) -> list[int]:
        """Take in a result by its position.

        The positions of older ones come back whose call was now made again with the same arguments, and went
        well; none of what is to be kept.
        """
        answered = self._waiting.answered_by(result)
        if answered is None:
            return []
        asking, number = answered
        place = self._first[asking] + number
        self.made[place] = self.made[place].with_result(result.text)
        given = self._given[place]
        if given is None:
            return []
        older = self._results.pop(given, []) if failure_in(result.text) is None else []
        if not keep:
            self._results[given].append(at)
        return older


def _read_arguments(given: str) -> tuple[str, tuple[str, ...], str]:
    """Arguments in brief, the paths that they name, and the command line among them."""
    short = len(given) <= MOST_ARGUMENT_CHARS
    arguments: dict[str, Any] = (decoded(given) if short else None) or {}
    if not arguments:
        paths = paths_in({"text": given[:MOST_ARGUMENT_CHARS]})
        return _folded(given, _MOST_UNREAD_CHARS).strip("{} "), tuple(paths), ""
    command = next((text for key in _COMMAND_KEYS if (text := _as_command(arguments.get(key)))), "")
    return brief(arguments), tuple(paths_in(arguments)), command


def _folded(text: str, max_chars: int) -> str:
    return " ".join(head(text, max_chars).split())


def _as_command(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return " ".join(value)
    return ""


def brief(arguments: dict[str, Any]) -> str:
    """The arguments in a few words: single values as they are, long texts by their length."""
    return ", ".join(_brief(key, value, alone=len(arguments) == 1) for key, value in arguments.items())


def _brief(key: str, value: object, *, alone: bool) -> str:
    text = value if isinstance(value, str) else repr(value)
    shown = " ".join(text[:_MOST_LOOKED_AT_CHARS].split())
    if len(shown) > _MOST_VALUE_CHARS:
        shown = (
            f"{head(shown, _VALUE_HEAD_CHARS)}… ({len(text):,} characters)"
            if isinstance(value, str)
            else beginning(shown, _MOST_VALUE_CHARS)
        )
    return shown if alone else f"{key}={shown}"


OPEN, MENDED = " — not seen mended", " — later succeeded"

_LOUD = pattern(r"-v+|-q+|--verbose|--quiet|--no-color|--color=\w+|--tb=\w+")
"""Options that only change how much is printed, or how."""

_LOUD_IS_ELSE = ("grep", "egrep", "rg", "docker", "podman")
"""Programs in which such an option means something else."""

_SHOWN = pattern(r"\s*(?:2>&1)?\s*(?:\|\s*tail(?:\s+-n?\s?\d+)?)?\s*$")
"""What only shows the end of what is printed."""

_CHECKS = pattern(
    r"(?:python3? -m )?(?:pytest|py\.test|mypy|ruff check|flake8|jest|vitest|eslint|rspec|mocha|"
    r"phpunit)(?=\s)"
)
"""Programs that check all there is where they are given no path."""

_PATH = pattern(r"(?!-)[\w.@/-]*(?:/|\.\w)[\w.@/:\[\]-]*")

_MOST_SHOWN_COMMAND_CHARS = 80
"""Of a command that failed: a line of a terminal, and no more than `_FAILURE_LINE` reads back."""

_MOST_SHOWN_ARGUMENT_CHARS = 60
"""Of the arguments of another call, so that name and error fit beside them."""

_FAILURE_LINE = pattern(r"(?P<name>[^(\n]{0,200})\((?P<about>.{0,80}?)\): ")


def failure_lines(calls: Sequence[Call], earlier: Iterable[str] = ()) -> Iterator[str]:
    """A line for each error, newest first, those not mended before those that were.

    `earlier` are the lines of an earlier record, oldest first and without their dash: what they tell of may
    have been mended since.
    """
    calls = [*(call for line in earlier for call in _parse_failure(line)), *calls]
    mended = _mended_by(calls)
    failed = [(at, call) for at, call in enumerate(calls) if call.error]
    lines: dict[str, None] = {}
    for open_ones in (True, False):
        for at, call in reversed(failed):
            if (mended.get(at) is None) is open_ones:
                lines[_line(call, mended.get(at))] = None
    yield from lines


def _line(call: Call, by: Call | None) -> str:
    about = head(call.command, _MOST_SHOWN_COMMAND_CHARS) or (
        call.paths[0] if call.paths else head(call.arguments, _MOST_SHOWN_ARGUMENT_CHARS)
    )
    return f"- {call.name}({about}): {call.error}{OPEN if by is None else MENDED}"


def _parse_failure(line: str) -> Iterator[Call]:
    """The calls that such a line tells of: one that failed, and where it was mended one that went well."""
    told = _FAILURE_LINE.match(line)
    if told is None:
        return
    failed = Call(
        at=-1,
        name=told["name"],
        arguments="",
        paths=(),
        command=told["about"],
        result="",
        error=line[told.end() :].removesuffix(OPEN).removesuffix(MENDED),
    )
    yield failed
    if line.endswith(MENDED):
        yield replace(failed, error=None)


def _mended_by(calls: Sequence[Call]) -> dict[int, Call]:
    """The failed calls with the later one that went well: the same, or the whole of which it was part."""
    later: dict[tuple[str, str], Call] = {}
    found: dict[int, Call] = {}
    for at in range(len(calls) - 1, -1, -1):
        call = calls[at]
        if call.error:
            keys = [(call.name, run) for run in _runs_with(call.run)]
            hit = next((later[key] for key in keys if key in later), None)
            if hit:
                found[at] = hit
        elif call.result is not None:
            later[call.name, call.run] = call
    return found


def _runs_with(run: str) -> Iterator[str]:
    """The run itself, and of a check on one path the runs on all that holds it."""
    yield run
    words = run.split()
    paths = [at for at, word in enumerate(words) if at and _PATH.fullmatch(word)]
    if len(paths) != 1 or not _CHECKS.match(run):
        return
    before, path, after = words[: paths[0]], words[paths[0]], words[paths[0] + 1 :]
    for part in re.finditer(r"::|/", path):
        yield " ".join([*before, path[: part.start()], *after])
    yield " ".join([*before, *after])


_WRITES = pattern(r"(?:>>?|\btee(?: -a)?)\s*$")
COULD_NOT = "could not be "
_PARTS = pattern(r"\|\||&&|[;|\n]")


def last_done(calls: Iterable[Call], earlier: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Each file with the last thing done to it, the one touched last coming last.

    A read after a change does not hide the change: the change is what must be known. `earlier` are files with
    what was done to them before all these calls.
    """
    done = dict(earlier)
    for call in calls:
        for path, action in call.actions:
            before = done.pop(path, None)
            looked_at = before and changes_file(before) and not changes_file(action)
            done[path] = before if before and looked_at else action
    return done


def changes_file(action: str) -> bool:
    """Whether what was done, or tried, changes a file."""
    return action.removeprefix(COULD_NOT) in CHANGING


def _action(call: Call, path: str) -> str:
    action = _of_command(call.command, path) if call.command else action_of(call.name)
    return f"{COULD_NOT}{action}" if call.error and action in CHANGING else action


def _of_command(command: str, path: str) -> str:
    for part in _PARTS.split(command):
        if path in part:
            before = part[: part.index(path)]
            return "written" if _WRITES.search(before) else action_of(part.strip())
    return "used"


def lines_by_action(files: Sequence[tuple[str, str]], *, more: int) -> list[str]:
    """One line for each thing done, with the files it was done to, and how many `more` have no room."""
    lines: dict[str, list[str]] = {}
    for path, action in files:
        lines.setdefault(action, []).append(path)
    unnamed = [MORE_FILES.format(more=more)] if more else []
    return [*(f"- {action}: {', '.join(paths)}" for action, paths in lines.items()), *unnamed]


ARROW = " → "
"""Between what was called and what came of it."""

MOST_CHARS = 200
"""The outcome of one call takes at most so many characters."""

_SPACED = pattern(r"\S+")

_SUMS_UP = pattern(
    r"\b(?:total|sum|result|status|summary|passed|failed|success\w*|done|created|updated|deleted|saved|found|"
    r"id|code|key|version|reference|error|warning|count|count\w*|ok)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierLine:
    """The line of a call in an earlier record, at its place before all calls made since."""

    at: int
    line: str

    @property
    def asked(self) -> str:
        """What was called, with the arguments in brief."""
        return self.line.partition(ARROW)[0]

    @property
    def outcome(self) -> str:
        """What came of it."""
        return self.line.partition(ARROW)[2]


def earlier_lines(lines: Sequence[str], calls: Sequence[Call]) -> list[EarlierLine]:
    """The lines of an earlier record, newest first, without those of calls that were made again since.

    A call without arguments asks for what comes next, and one that failed says nothing of the one before.
    """
    again = {call.asked for call in calls if call.arguments and not call.error} if lines else set()
    told = [EarlierLine(at=at, line=line) for at, line in enumerate(lines, -len(lines))]
    return [one for one in reversed(told) if one.asked not in again]


def newest_of_each(calls: Sequence[Call]) -> list[Call]:
    """The calls, newest first; of calls with the same arguments the newest, and the newest that went well.

    A call without arguments asks for what comes next, not for the same again: all of these stay.
    """
    kept: list[Call] = []
    well: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()
    for call in reversed(calls):
        same = (call.name, call.arguments)
        if not call.arguments or (same not in well and (same not in seen or not call.error)):
            kept.append(call)
        seen.add(same)
        if not call.error:
            well.add(same)
    return kept


def outcome_line(call: Call | EarlierLine) -> str:
    """The tool, its arguments in brief, and what came of it."""
    return f"- {call.line}"


def _arguments(call: Call) -> str:
    """The arguments with each path by its last part: the whole stands among the files."""
    text = call.arguments
    for path in call.paths[:4]:
        text = text.replace(path, path.rstrip("/").rsplit("/", 1)[-1] or path)
    return beginning(text, 100)


def _outcome(call: Call) -> str:
    if call.result is None:
        return "no result"
    if call.error:
        return f"failed: {head(call.error, MOST_CHARS)}"
    text = call.result
    if len(text) <= MOST_CHARS // 2:
        return " ".join(text.split()) or "nothing"
    return most_telling(sentences(text, most_chars=len(text)))


def most_telling(found: Sequence[Sentence]) -> str:
    """The sentences with the most to say in `MOST_CHARS` characters, in their order."""
    ranked = sorted(range(len(found)), key=lambda at: (-_weight(found, at), at))
    room = MOST_CHARS
    kept: list[int] = []
    for at in ranked[:8]:
        text = found[at].text
        if kept and (len(text) > room or _weight(found, at) < 1):
            continue
        kept.append(at)
        room -= len(text)
        if room < 20:
            break
    texts = (" ".join(found[at].text.split()) for at in sorted(kept))
    return " … ".join(map(_excerpt, texts)) or "nothing"


def _excerpt(text: str) -> str:
    """The text, or the part of it in which most is exact: its beginning, or what ends with an exact word."""
    if len(text) <= MOST_CHARS:
        return text
    places = [match.end() for match in _SPACED.finditer(text) if is_hard(match.group())]
    ends = [MOST_CHARS - 1, *(end for end in places if end >= MOST_CHARS)]
    end = max(ends, key=lambda end: sum(end - MOST_CHARS + 2 < place <= end for place in places))
    if end < MOST_CHARS:
        return beginning(text, MOST_CHARS)
    return f"…{tail(text[:end], MOST_CHARS - 2)}{'…' if end < len(text) else ''}"


def _weight(found: Sequence[Sentence], at: int) -> float:
    text = found[at].text[:400]
    hard = [word for word in words(text) if is_hard(word)]
    mixed = sum(bool(re.search(r"\d", word) and re.search(r"[A-Za-z_-]", word)) for word in hard)
    edge = 1.0 if at == 0 or at == len(found) - 1 else 0.0
    return min(2, mixed) + min(1, len(hard)) * 0.5 + is_keyed(text) + bool(_SUMS_UP.search(text)) * 0.5 + edge
