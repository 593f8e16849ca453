"""A record of what is covered, computed without a model: the rung of the ladder that always works."""

from collections.abc import Iterable, Iterator, Sequence

from agentloop.entries import Entry
from agentloop.labelled import neutral, summary_in
from agentloop.pairing import answers
from agentloop.tokens import TokenCounter
from agentloop.tool_results import shortened

EARLIER_SHARE = 0.7
"""The share of the digest that an earlier record may take."""


def digest(covered: Sequence[Entry], *, max_tokens: int, counter: TokenCounter) -> str:
    """What was asked, said and done, one line each, newest kept first, in at most about `max_tokens`."""
    earlier = [summary_in(entry.original.text) for entry in covered if entry.kind == "summary"]
    said = [entry for entry in covered if entry.kind == "said"]
    left = max_tokens
    sections: list[str] = []
    if earlier:
        record = shortened(earlier[-1], max_chars=int(max_tokens * EARLIER_SHARE) * 3)
        sections.append(record)
        left -= counter(record)
    for title, lines in (
        ("Asked", _asked(said)),
        ("Said", _answered(said)),
        ("Done", _done(said)),
    ):
        kept = list(_fitting(reversed(list(lines)), left - counter(title) - 2, counter))
        if kept:
            sections.append("\n".join((f"{title}:", *reversed(kept))))
            left -= counter(sections[-1])
    return neutral("\n\n".join(sections))


def _fitting(lines: Iterable[str], room: int, counter: TokenCounter) -> Iterator[str]:
    for line in lines:
        room -= counter(line) + 1
        if room < 0:
            return
        yield line


def _asked(said: Sequence[Entry]) -> Iterator[str]:
    return (_line(entry.original.text, 600) for entry in said if entry.is_user)


def _answered(said: Sequence[Entry]) -> Iterator[str]:
    texts = (entry.original.text for entry in said if entry.original.role == "assistant")
    return (_line(text, 600) for text in texts if text.strip())


def _done(said: Sequence[Entry]) -> Iterator[str]:
    messages = [entry.original for entry in said]
    for at, places in answers(messages).items():
        for call, place in zip(messages[at].tool_calls, places, strict=True):
            outcome = "no result" if place is None else messages[place].text
            yield f"{_line(f'{call.name}({call.arguments}', 100)}) → {_line(outcome, 60)[2:]}"


def _line(text: str, max_chars: int) -> str:
    words = " ".join(text[: max_chars * 4].split())
    return "- " + (words if len(words) <= max_chars else words[: max_chars - 1] + "…")
