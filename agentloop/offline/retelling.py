"""An earlier record taken apart: what was said becomes messages again, so that a digest can weigh it anew."""

from collections.abc import Iterator

from agentloop.index import LABELS
from agentloop.messages import Message
from agentloop.offline.notes import ASKED, READ, SAID, TO_READ, dashed, items, sections
from agentloop.tokens import TokenCounter

FOCUS = "Of the focus:"

_INDEX = tuple(f"{label}: " for label in LABELS.values())


def retold(record: str) -> Iterator[Message]:
    """What users and the assistant said by the record; its index as the result of no call."""
    if index := [line for line in record.splitlines() if line.startswith(_INDEX)]:
        yield Message.tool("index", "\n".join(index))
    for title, body in sections(record):
        if title in (ASKED, SAID):
            found = items(body)
            yield from map(Message.user, found) if title == ASKED else map(_assistant, found)


def _assistant(item: str) -> Message:
    return Message.assistant(dashed(item))


def kept_prose(record: str, *, max_tokens: int, counter: TokenCounter) -> str:
    """What else the record says: of each section, in a fair share, the last lines that fit."""
    own = (ASKED, SAID, READ, TO_READ, FOCUS)
    others = [(title, list(_lines(body))) for title, body in sections(record) if title not in own]
    others = [(title, lines) for title, lines in others if lines]
    share = max_tokens // max(1, len(others))
    kept = ((title, _last(lines, share - counter(title), counter)) for title, lines in others)
    return _text({title: dict.fromkeys(lines) for title, lines in kept})


def merged(record: str) -> str:
    """The record with each heading and each line below it once, what was said before all else."""
    found: dict[str, dict[str, None]] = {ASKED: {}, SAID: {}}
    for title, body in sections(record):
        found.setdefault(title, {}).update(dict.fromkeys(line for line in body.splitlines() if line.strip()))
    return _text(found)


def _lines(body: str) -> Iterator[str]:
    return (line for line in body.splitlines() if line.strip() and not line.startswith(_INDEX))


def _last(lines: list[str], room: int, counter: TokenCounter) -> list[str]:
    kept: list[str] = []
    for line in reversed(lines):
        room -= counter(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]


def _text(found: dict[str, dict[str, None]]) -> str:
    return "\n\n".join("\n".join((title, *lines)).strip() for title, lines in found.items() if lines)
