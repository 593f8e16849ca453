"""One line for an exchange: the tool, its arguments in brief, and the telling part of its result."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentloop._plumbing.truncate import beginning, head
from agentloop.digest.calls import Call
from agentloop.digest.cues import is_keyed
from agentloop.digest.sentences import Sentence, sentences
from agentloop.digest.words import is_hard, words

ARROW = " → "
"""Between what was called and what came of it."""

MOST_CHARS = 200
"""The outcome of one call takes at most so many characters."""

_SUMS_UP = re.compile(
    r"\b(?:total|sum|result|status|summary|passed|failed|success\w*|done|created|updated|deleted|saved|found|"
    r"id|code|key|version|reference|error|warning|count|count\w*|ok)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The line of a call in an earlier record, at its place before all calls made since."""

    at: int
    line: str

    @property
    def asked(self) -> str:
        """What was called, with the arguments in brief."""
        return self.line.partition(ARROW)[0]


def told_before(lines: Sequence[str], calls: Sequence[Call]) -> list[Told]:
    """The lines of an earlier record, newest first, without those of calls that were made again since.

    A call without arguments asks for what comes next, and one that failed says nothing of the one before.
    """
    again = {_asked(call) for call in calls if call.arguments and not call.error} if lines else set()
    told = [Told(at=at, line=line) for at, line in enumerate(lines, -len(lines))]
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


def outcome_line(call: Call | Told) -> str:
    """The tool, its arguments in brief, and what came of it."""
    return f"- {call.line if isinstance(call, Told) else f'{_asked(call)}{ARROW}{outcome(call)}'}"


def _asked(call: Call) -> str:
    return f"{call.name}({_arguments(call)})"


def _arguments(call: Call) -> str:
    """The arguments with each path by its last part: the whole stands among the files."""
    text = call.arguments
    for path in call.paths[:4]:
        text = text.replace(path, path.rstrip("/").rsplit("/", 1)[-1] or path)
    return beginning(text, 100)


def outcome(call: Call) -> str:
    """What came of a call: its error, its few words, or the sentences that tell most of it."""
    if call.result is None:
        return "no result"
    if call.error:
        return f"failed: {head(call.error, MOST_CHARS)}"
    text = call.result
    if len(text) <= MOST_CHARS // 2:
        return " ".join(text.split()) or "nothing"
    return telling(sentences(text, most_chars=len(text)))


def telling(found: Sequence[Sentence], most_chars: int = MOST_CHARS) -> str:
    """The sentences with the most to say in so many characters, in their order."""
    ranked = sorted(range(len(found)), key=lambda at: (-_weight(found, at), at))
    room = most_chars
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
    return " … ".join(beginning(text, most_chars) for text in texts) or "nothing"


def _weight(found: Sequence[Sentence], at: int) -> float:
    text = found[at].text[:400]
    hard = [word for word in words(text) if is_hard(word)]
    mixed = sum(bool(re.search(r"\d", word) and re.search(r"[A-Za-z_-]", word)) for word in hard)
    edge = 1.0 if at == 0 or at == len(found) - 1 else 0.0
    return min(2, mixed) + min(1, len(hard)) * 0.5 + is_keyed(text) + bool(_SUMS_UP.search(text)) * 0.5 + edge
