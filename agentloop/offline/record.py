"""The stand-in as a summariser: what was asked, what was learnt of each file, what is still to do."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentloop.offline.describe import first_sentence, shortened
from agentloop.offline.notes import (
    ASKED,
    READ,
    SAID,
    TO_READ,
    asked_in,
    note_lines,
    notes_in,
    notes_in_record,
    said_in,
    to_read_in,
    to_read_lines,
)
from agentloop.offline.task import FileTask, file_task
from agentloop.tokens import TokenCounter

_LABEL = re.compile(
    r"^\W{0,3}(?:(?P<who>User|Assistant|System|Developer|Earlier record): ?"
    r"|Tool result of (?P<tool>[^:\n]+): ?|Assistant calls (?P<call>\w+)\()",
    re.MULTILINE,
)
_CONVERSATION = re.compile(r"<conversation>(.*)</conversation>(.*)", re.DOTALL)
_FACT = re.compile(
    r"\b(?:remember\b|(?:my|our) [\w' -]{1,40}? (?:is|are|was)\b|i prefer\b|i am called\b)", re.IGNORECASE
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
_MOST_ASKED = 20
_MOST_SAID = 5
_WIDTHS = (120, 80, 50, 30, 15)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    asked: tuple[str, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)
    to_read: tuple[str, ...] = ()
    said: tuple[str, ...] = ()

    def text(self) -> str:
        parts = (
            (ASKED, [f"- {line}" for line in self.asked]),
            (READ, note_lines(self.notes)),
            (TO_READ, to_read_lines(list(self.to_read))),
            (SAID, [f"- {line}" for line in self.said]),
        )
        return "\n\n".join("\n".join((title, *lines)) for title, lines in parts if lines)


def record_of(question: str, *, most_tokens: int, counter: TokenCounter) -> str:
    """The record of the conversation that the question holds, in at most about `most_tokens`.

    An earlier record in it is merged in, each file once, what is newer winning. What does not fit is told
    with fewer words; only where that is not enough do the oldest notes go.
    """
    found = _CONVERSATION.search(question)
    conversation, instruction = found.groups() if found else (question, "")
    record = _gathered(conversation)
    tighter = 2 if "shorter" in instruction else 0
    for width in _WIDTHS[tighter:]:
        shorter = {path: shortened(what, width) for path, what in record.notes.items()}
        record = replace(record, notes=shorter, to_read=record.to_read if width >= 80 else ())
        if counter(record.text()) <= most_tokens:
            break
    return _trimmed(record, most_tokens, counter) or "Nothing was asked yet."


def facts_of(question: str) -> list[str]:
    """The sentences of the user, and of earlier records, that ask to be remembered, each once."""
    found = _CONVERSATION.search(question)
    blocks = list(_blocks(found.group(1) if found else question))
    texts = [text for who, text in blocks if who in ("User", "Earlier record", "")]
    sentences = (sentence.strip(" -") for text in texts for sentence in _SENTENCES.split(text))
    return list(dict.fromkeys(each for each in sentences if _FACT.search(each) and not each.endswith("?")))


def _trimmed(record: _Record, most_tokens: int, counter: TokenCounter) -> str:
    if counter(record.text()) > most_tokens:
        record = replace(record, said=())
    notes = list(record.notes.items())
    while counter(record.text()) > most_tokens and notes:
        notes = notes[len(notes) // 8 + 1 :]
        record = replace(record, notes=dict(notes))
    return record.text()


def _gathered(conversation: str) -> _Record:
    asked: list[str] = []
    said: list[str] = []
    listed: list[str] = []
    notes: dict[str, str] = {}
    for who, text in _blocks(conversation):
        match who:
            case "Earlier record":
                asked += asked_in(text)
                said += said_in(text)
                listed += to_read_in(text)
                notes |= notes_in_record(text)
            case "User":
                asked.append(_request(text))
            case "Assistant":
                notes |= notes_in(text)
                said += _told(text)
            case "list_files":
                listed += _whole_lines(text)
    task = file_task(asked[-1]) if asked else FileTask(patterns=("*",))
    pending = [path for path in dict.fromkeys(listed) if task and task.takes_in(path) and path not in notes]
    return _Record(
        asked=_newest(asked, _MOST_ASKED), notes=notes, to_read=tuple(pending), said=_newest(said, _MOST_SAID)
    )


def _blocks(conversation: str) -> Iterator[tuple[str, str]]:
    """Each block with who said it; a text without any label is the user's."""
    labels = list(_LABEL.finditer(conversation))
    if not labels:
        yield "User", conversation.strip()
        return
    for label, following in zip(labels, [*labels[1:], None], strict=True):
        who = label["who"] or label["tool"] or "call"
        yield who, conversation[label.end() : following.start() if following else None].strip()


def _request(text: str) -> str:
    return " ".join(text.split()) if file_task(text) and len(text) <= 400 else first_sentence(text, 200)


def _told(text: str) -> list[str]:
    own = "\n".join(line for line in text.split("\n") if not line.startswith("- "))
    return [first_sentence(own, 160)] if own.strip() else []


def _newest(lines: Sequence[str], most: int) -> tuple[str, ...]:
    """Each line once where it stood last, the first of all and the newest of the others."""
    once = list(dict.fromkeys(line for line in reversed(lines) if line))[::-1]
    return tuple(once if len(once) <= most else [once[0], *once[1 - most :]])


def _whole_lines(text: str) -> list[str]:
    """The lines before a cut, or all, without remarks."""
    whole, cut, _ = text.partition("... [")
    lines = whole.strip().split("\n")
    return [line for line in (lines[:-1] if cut else lines) if line and not line.startswith("[")]
