"""Whether a result says that something went wrong, and in which words."""

import re

MOST_CHARS = 1_200
"""So much of a result is searched for an error, head and tail together."""

MOST_LINE_CHARS = 240

_OPENING = re.compile(
    r"\W{0,12}(?:\w+ )?(?:error|err|fatal|exception|failed|failure|traceback|cannot|could not|unable to|"
    r"invalid|"
    r"permission denied|access denied|not found|timed? ?out|aborted|fehler|erreur|ошибка|错误|失败|エラー)\b|"
    r"[\w.]*(?:Error|Exception)\b|\S{1,120}: [^\n]{0,120}(?:no such file|not found|denied|refused|cannot |"
    r"failed)|"
    r"\W{0,4}[\"']?(?:error|is_error|stderr)[\"']?\s*[:=]\s*(?!null|false|none|0\b|\"\"|'')\S|"
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|returncode|status)\W{1,4}[1-9]\d{0,2}\b|"
    r"HTTP[ /\d.]*[45]\d\d\b",
    re.IGNORECASE,
)
_LINE = re.compile(
    r"^(?:[\w.]+\.)?\w*(?:Error|Exception)\b ?:.*|^E  +\S.*|^(?:npm|yarn|pnpm) (?:error|ERR!).*|^(?:FAILED|"
    r"FAIL|ERROR)\b.*|"
    r"^.{0,120}\berror(?:\[\w+\]| [A-Z]+\d+)?: .*|^.{0,60}\b[1-9]\d* (?:failed|errors?|failures?)\b.*|"
    r"^.{0,200}(?:command not found|No such file or directory|Permission denied|Segmentation fault|"
    r"Connection refused).*|"
    r"^\W{0,3}(?:exit (?:code|status)|returncode|exit_code)\W{1,5}[1-9]\d{0,2}\b.*|^(?:panic|fatal): .*",
    re.MULTILINE,
)
_RAISED = re.compile(r"^[\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b.*", re.MULTILINE)


def ends_of(text: str, most_chars: int) -> str:
    """The text, or its head and its tail on lines of their own."""
    if len(text) <= most_chars:
        return text
    half = most_chars // 2
    return f"{text[:half]}\n{text[len(text) - half :]}"


def error_in(result: str, *, looks: bool) -> str | None:
    """The line that says what went wrong; None where nothing did.

    The result of a call that only `looks` at something is an error only where it begins like one.
    """
    seen = ends_of(result.lstrip(), MOST_CHARS)
    opens = _OPENING.match(seen)
    if opens is None and looks:
        return None
    raised = _RAISED.findall(seen)
    if raised and seen.startswith("Traceback"):
        return _short(raised[-1])
    found = None if opens else _LINE.search(seen)
    if opens or found:
        return _short(found.group() if found else _first_lines(seen))
    return None


def _first_lines(text: str) -> str:
    """The first line, with the next one where it only says that there is an error."""
    lines = [line for line in text.splitlines() if line.strip()][:2]
    return lines[0] if len(lines[0]) > 20 or len(lines) < 2 else " ".join(lines)


def _short(line: str) -> str:
    return " ".join(line.split())[:MOST_LINE_CHARS]
