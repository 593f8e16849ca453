"""Long texts shown in part: their beginning, their last lines, or head and tail around a marker."""

import unicodedata

from agentloop.prompts import EARLIER_LINES, LEFT_OUT

_MOST_BACK = 64


def beginning(text: str, max_chars: int) -> str:
    """The text itself if it has at most `max_chars` characters, else its beginning and an ellipsis in them.

    >>> beginning("one two three", 8)
    'one two…'
    """
    return text if len(text) <= max_chars else text[: max(0, max_chars - 1)] + "…"


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
    half = max_chars // 2
    return f"{text[:half]}\n{text[len(text) - half :]}"


def ends(text: str, *, max_chars: int, rest: str = "") -> str:
    """The text itself if it has at most `max_chars` characters, else its head and tail around a marker.

    Head and tail stand about two to one and are cut between whole characters, never inside one that is
    made of several code points. `rest` says how to get what was left out. The text that comes back has at
    most `max_chars` characters as long as the marker alone (about 100) fits into it.
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
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    joined = before == "\u200d" or after == "\u200d" or "\U0001f3fb" <= after <= "\U0001f3ff"
    return joined or (before == "\r" and after == "\n") or unicodedata.category(after) in ("Mn", "Mc", "Me")
