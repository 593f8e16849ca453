"""Whether a tool's result says that something went wrong, and in which words."""

import re

from agentloop.cutting import halves, head

MOST_CHARS = 1_200
"""So much of a result is searched for a failure, head and tail together."""

MOST_LINE_CHARS = 240

_OPENING = re.compile(
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
_LINE = re.compile(
    r"^(?:[\w.]+\.)?\w*(?:Error|Exception)\b ?:.*|^E  +\S.*|^(?:npm|yarn|pnpm) (?:error|ERR!).*|^(?:FAILED|"
    r"FAIL|ERROR)\b.*|"
    r"^.{0,120}\berror(?:\[\w+\]| [A-Z]+\d+)?: .*|^.{0,60}\b[1-9]\d* (?:failed|errors?|failures?)\b.*|"
    r"^.{0,200}(?:command not found|No such file or directory|Permission denied|Segmentation fault|"
    r"Connection refused).*|"
    r"^\W{0,3}(?:exit (?:code|status)|returncode|exit_code)\W{1,5}[1-9]\d{0,2}\b.*|"
    r"^\W{0,3}killed by signal \d.*|^(?:panic|fatal): .*",
    re.MULTILINE,
)
_RAISED = re.compile(r"^[\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b.*", re.MULTILINE)


def failure_in(result: str) -> str | None:
    """The line that says what went wrong, looked for in the head and the tail; None where nothing did.

    >>> failure_in("collected 3 items\\n1 failed, 2 passed")
    '1 failed, 2 passed'
    """
    seen = halves(result.lstrip(), MOST_CHARS)
    if _OPENING.match(seen):
        return _told(seen)
    found = _LINE.search(seen)
    return _short(found.group()) if found else None


def opening_failure_in(result: str) -> str | None:
    """The same of a call that only looks at something: what it shows may speak of the failures of others.

    So a failure is only what the result begins with.

    >>> opening_failure_in("1: ok\\nKeyError: 'a'"), opening_failure_in("KeyError: 'a'")
    (None, "KeyError: 'a'")
    """
    seen = halves(result.lstrip(), MOST_CHARS)
    return _told(seen) if _OPENING.match(seen) else None


def _told(seen: str) -> str:
    """What it begins with; of a traceback what that ends with."""
    raised = _RAISED.findall(seen) if seen.startswith("Traceback") else []
    return _short(raised[-1] if raised else _first_lines(seen))


def _first_lines(text: str) -> str:
    """The first line, with the next one where it only says that there is an error."""
    lines = [line for line in text.splitlines() if line.strip()][:2]
    return lines[0] if len(lines[0]) > 20 or len(lines) < 2 else " ".join(lines)


def _short(line: str) -> str:
    return head(" ".join(line.split()), MOST_LINE_CHARS)
