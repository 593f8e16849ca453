"""Long texts shown in part: the beginning, the last lines, both around a marker, or the line that failed.

Texts are cut between whole characters, never inside one that is made of several code points: a base and its
marks, an emoji joined to another, a flag, a syllable of Hangul in parts, the two halves of a surrogate pair.
Only what goes on for more than 64 code points as one character is cut inside. The rules are those of
Unicode's annex 29 (https://unicode.org/reports/tr29/) but for what comes before its base: the signs of the
class Prepend (its rule GB9b) and the consonants that some scripts join by a virama (GB9c).
"""

import re
import unicodedata
from collections.abc import Sequence

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.remembered import Remembered
from agentloop.prompts import EARLIER_LINES, LEFT_OUT

_MOST_BACK = 64
_JOINING = "\u200c\u200d\u0e33\u0eb3\uff9e\uff9f"
"""Joiners, and the marks of Thai, of Lao and of narrow katakana that Unicode counts among the letters."""
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
    for candidate in range(index, max(0, index - _MOST_BACK), -1):
        if not _inside_character(text, candidate):
            return candidate
    return 0 if index <= _MOST_BACK else index


def _boundary_after(text: str, index: int) -> int:
    for candidate in range(index, min(len(text), index + _MOST_BACK)):
        if not _inside_character(text, candidate):
            return candidate
    return len(text) if index + _MOST_BACK >= len(text) else index


def _inside_character(text: str, index: int) -> bool:
    """Whether a cut before `index` would part what is shown as one character."""
    if index <= 0 or index >= len(text):
        return False
    before, after = text[index - 1], text[index]
    if before.isascii() and after.isascii():
        return before == "\r" and after == "\n"
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if before in _FLAGS and after in _FLAGS:
        flags = text[:index]
        return (index - len(flags.rstrip(_FLAGS))) % 2 == 1
    return before == "\u200d" or _extends(after) or _goes_on(before, after)


def _extends(char: str) -> bool:
    """Whether it belongs to the character before it: a mark, also one counted as a letter, a joiner, a skin
    tone, a tag."""
    joins = char in _JOINING or "\U0001f3fb" <= char <= "\U0001f3ff"
    return joins or "\U000e0020" <= char <= "\U000e007f" or unicodedata.category(char) in ("Mn", "Mc", "Me")


def _goes_on(before: str, after: str) -> bool:
    """Whether two parts of a Hangul syllable stand side by side."""
    if "\u1160" <= after <= "\u11ff" or "\ud7b0" <= after <= "\ud7fb":
        return _is_hangul(before)
    return _is_leading(before) and (_is_leading(after) or "\uac00" <= after <= "\ud7a3")


def _is_hangul(char: str) -> bool:
    return "\u1100" <= char <= "\u11ff" or "\uac00" <= char <= "\ud7fb" or _is_leading(char)


def _is_leading(char: str) -> bool:
    return "\u1100" <= char <= "\u115f" or "\ua960" <= char <= "\ua97c"


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


def failure_in(result: str) -> str | None:
    """The line that says what went wrong, looked for in the head and the tail; None where nothing did.

    >>> failure_in("collected 3 items\\n1 failed, 2 passed")
    '1 failed, 2 passed'
    """
    return _failure_in(result)


def opening_failure_in(result: str) -> str | None:
    """The same of a call that only looks at something: what it shows may speak of the failures of others.

    So a failure is only what the result begins with.

    >>> opening_failure_in("1: ok\\nKeyError: 'a'"), opening_failure_in("KeyError: 'a'")
    (None, "KeyError: 'a'")
    """
    return _opening_failure_in(result)


@Remembered
def _opening_failure_in(result: str) -> str | None:
    seen = halves(result.lstrip(), MOST_CHARS)
    return _failure_line(seen) if _OPENING.match(seen) else None


@Remembered
def _failure_in(result: str) -> str | None:
    seen = halves(result.lstrip(), MOST_CHARS)
    if _OPENING.match(seen):
        return _failure_line(seen)
    found = _LINE.search(seen)
    return _short(found.group()) if found else None


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


def few(names: Sequence[str]) -> str:
    """The first five of the names, and how many more there are.

    >>> few(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more
