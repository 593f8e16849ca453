"""Long texts shown in part: the beginning, the last lines, both around a marker, or the line that failed.

Texts are cut between whole characters, never inside one that is made of several code points, such as a letter
and its marks, by the rules of Unicode (https://unicode.org/reports/tr29/). The two halves of a surrogate pair
are one as well. Only what goes on for more than 64 code points as one character is cut inside.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.remembered import Remembered
from agentloop.prompts import EARLIER_LINES, LEFT_OUT

_MOST_BACK = 64
_FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
FEW = 5
"""So many names are listed where there may be any number."""


def head(text: str, max_chars: int) -> str:
    """The text itself if it has at most `max_chars` characters, else as many whole ones from its beginning.

    >>> head("naïve", 4), head("nai\u0308ve", 3)
    ('naïv', 'na')
    """
    return text if len(text) <= max_chars else text[: _boundary_before(text, max(0, max_chars))]


def tail(text: str, max_chars: int) -> str:
    """The text itself if it has at most `max_chars` characters, else as many whole ones from its end."""
    return text if len(text) <= max_chars else text[_boundary_after(text, len(text) - max(0, max_chars)) :]


def beginning(text: str, max_chars: int) -> str:
    """The text itself if it has at most `max_chars` characters, else its beginning and an ellipsis in them.

    >>> beginning("one two three", 8)
    'one two…'
    """
    return text if len(text) <= max_chars else head(text, max_chars - 1) + "…"


def last_lines(text: str, max_lines: int, *, rest: str = "") -> str:
    """The text itself if it has at most `max_lines` lines, else its last ones, after one that says so.

    `rest` says how to get what was left out.

    >>> print(last_lines("one\\ntwo\\nthree\\n", 1))
    [2 earlier lines left out]
    three
    """
    lines = text.removesuffix("\n").rsplit("\n", max_lines)
    if len(lines) <= max_lines:
        return text
    left_out = EARLIER_LINES.format(count=lines[0].count("\n") + 1, way=_way(rest))
    return "\n".join((left_out, *lines[1:]))


def halves(text: str, max_chars: int) -> str:
    """The text itself if it has at most `max_chars` characters, else head and tail, each on its own line.

    Nothing says that anything is left out: it is for searching.
    """
    if len(text) <= max_chars:
        return text
    return f"{head(text, max_chars // 2)}\n{tail(text, max_chars // 2)}"


def ends(text: str, *, max_chars: int, rest: str = "") -> str:
    """The text itself if it has at most `max_chars` characters, else its head and tail around a marker.

    Head and tail stand about two to one. `rest` says how to get what was left out. The text that comes back
    has at most `max_chars` characters as long as the marker alone (about 100) fits into it.
    """
    if len(text) <= max_chars:
        return text
    room = max(0, max_chars - len(_marker(len(text), len(text), rest)))
    end = _boundary_before(text, room - room // 3)
    start = _boundary_after(text, len(text) - room // 3)
    short = text[:end] + _marker(start - end, len(text), rest) + text[start:]
    return short if len(short) < len(text) else text


def _marker(left_out: int, total: int, rest: str) -> str:
    return LEFT_OUT.format(count=left_out, total=total, way=_way(rest))


def _way(rest: str) -> str:
    return f"; {rest}" if rest else ""


def _boundary_before(text: str, index: int) -> int:
    return max((place for place in _boundaries(text, index) if place <= index), default=index)


def _boundary_after(text: str, index: int) -> int:
    return min((place for place in _boundaries(text, index) if place >= index), default=index)


def _boundaries(text: str, index: int) -> Iterator[int]:
    """The places near this one where a cut parts no character."""
    start, end = max(0, index - _MOST_BACK), min(len(text), index + _MOST_BACK)
    near = text[start:end]
    if near.isascii() and "\r" not in near:
        yield index
        return
    if near[:1] in _FLAGS:  # they go by twos
        start -= (start - len(text[:start].rstrip(_FLAGS))) % 2
    for each in _characters().finditer(text, start, end):
        at = each.start()
        is_half = "\udc00" <= text[at] <= "\udfff" and "\ud800" <= text[at - 1 : at] <= "\udbff"
        if at == 0 or (at > start and not is_half):
            yield at
    if end == len(text):
        yield end


@cache
def _characters() -> Any:
    """Finds each character, of however many code points."""
    import regex  # when it is first needed: few texts are cut where more than ASCII stands

    return regex.compile(r"\X")


MOST_CHARS = 1_200
"""So much of a result is searched for a failure, head and tail together."""

MOST_LINE_CHARS = 240

_OPENING = pattern(
    r"(?!(?:0|no) (?:error|failed|failure)\b|"
    r"\W{0,4}[\"']?(?:error|is_?error|stderr)[\"']?\s*[:=]\s*(?:null|none|false|0|\"\"|'')\W)"
    r"(?:\W{0,12}(?:\w+ )?(?:error|err|fatal|exception|failed|failure|traceback|cannot|could not|unable to|"
    r"invalid|"
    r"permission denied|access denied|not found|timed? ?out|aborted|fehler|erreur|ошибка|错误|失败|エラー)\b|"
    r"(?:interrupted|not run): |\S{1,64} (?:failed|timed out|was not called)\b|Call \S{1,64} again\b|"
    r"[\w.]*(?:Error|Exception)\b|\S{1,120}: [^\n]{0,120}(?:no such file|not found|denied|refused|cannot |"
    r"failed)|"
    r"\W{0,4}[\"']?(?:error|is_?error|stderr)[\"']?\s*[:=]\s*\S|"
    r"\W{0,4}[\"']?(?:ok|success)[\"']?\s*[:=]\s*false\b|"
    r"\W{0,3}(?:(?:exit(?:ed)?(?: with)?(?: code| status)?|returncode)\W{1,4}[1-9]|"
    r"status\W{1,4}(?![23]\d\d\b)[1-9]|killed by signal )\d{0,2}\b|"
    r"HTTP[ /\d.]*[45]\d\d\b)",
    re.IGNORECASE,
)
_LINE = pattern(
    r"^(?:[\w.]+\.)?\w*(?:Error|Exception)\b ?:.*|^E  +\S.*|^(?:npm|yarn|pnpm) (?:error|ERR!).*|^(?:FAILED|"
    r"FAIL|ERROR)\b.*|"
    r"^.{0,120}\berror(?:\[\w+\]| [A-Z]+\d+)?: .*|^.{0,60}\b[1-9]\d* (?:failed|errors?|failures?)\b.*|"
    r"^.{0,200}(?:command not found|No such file or directory|Permission denied|Segmentation fault|"
    r"Connection refused).*|"
    r"^\W{0,3}(?:exit (?:code|status)|returncode|exit_code)\W{1,5}[1-9]\d{0,2}\b.*|"
    r"^\W{0,3}killed by signal \d.*|^(?:panic|fatal): .*",
    re.MULTILINE,
)
_RAISED = pattern(r"^[\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b.*", re.MULTILINE)


@Remembered
def failure_in(result: str) -> str | None:
    """The line that says what went wrong, looked for in the head and the tail; None where nothing did.

    >>> failure_in("collected 3 items\\n1 failed, 2 passed")
    '1 failed, 2 passed'
    """
    seen = halves(result.lstrip(), MOST_CHARS)
    if _OPENING.match(seen):
        return _failure_line(seen)
    found = _LINE.search(seen)
    return _short(found.group()) if found else None


@Remembered
def opening_failure_in(result: str) -> str | None:
    """The same of a call that only looks at something: what it shows may speak of the failures of others.

    So a failure is only what the result begins with.

    >>> opening_failure_in("1: ok\\nKeyError: 'a'"), opening_failure_in("KeyError: 'a'")
    (None, "KeyError: 'a'")
    """
    seen = halves(result.lstrip(), MOST_CHARS)
    return _failure_line(seen) if _OPENING.match(seen) else None


def _failure_line(seen: str) -> str:
    """What it begins with; of a traceback what that ends with."""
    raised = _RAISED.findall(seen) if seen.startswith("Traceback") else []
    return _short(raised[-1] if raised else _first_lines(seen))


def _first_lines(text: str) -> str:
    """The first line, with the next one where it only says that there is an error."""
    lines = [line for line in text.splitlines() if line.strip()][:2]
    return lines[0] if len(lines[0]) > 20 or len(lines) < 2 else " ".join(lines)


def _short(line: str) -> str:
    return head(" ".join(line.split()), MOST_LINE_CHARS)


def few(names: Sequence[str], most: int = FEW) -> str:
    """The first of the names, and how many more there are.

    >>> few(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
