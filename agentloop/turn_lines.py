"""One line for each turn: what was asked, what was called for it, and what was answered."""

from collections.abc import Sequence

from agentloop._plumbing.truncate import beginning, head
from agentloop.context import Entry, TokenCounter, neutral, summary_in, turns_of

ASKED_CHARS, ANSWERED_CHARS = 120, 160
"""So much is shown of what a user asked, and of the last thing the assistant said to it."""


def turn_lines(covered: Sequence[Entry], *, max_tokens: int, counter: TokenCounter) -> str:
    """The turns, one line each, the newest that fit into `max_tokens`, oldest first.

    Of an entry of kind "summary", which no log is behind, the lines stay as they are.
    """
    earlier = (summary_in(entry.original.text) for entry in covered if entry.kind == "summary")
    lines = [line for text in earlier for line in text.split("\n") if line.strip()]
    lines += [_line(turn) for turn in turns_of(entry for entry in covered if entry.kind == "said")]
    kept: list[str] = []
    for line in reversed(lines):
        max_tokens -= counter(line) + 1
        if max_tokens < 0:
            break
        kept.append(line)
    return neutral("\n".join(reversed(kept)))


def _line(turn: Sequence[Entry]) -> str:
    asked = next((entry.original.text for entry in turn if entry.is_user), "")
    said = [entry.original for entry in turn if entry.original.role == "assistant"]
    names = dict.fromkeys(call.name for message in said for call in message.tool_calls)
    answered = next((message.text for message in reversed(said) if message.text.strip()), "")
    parts = (_short(asked, ASKED_CHARS), ", ".join(names), _short(answered, ANSWERED_CHARS))
    return "- " + " → ".join(part for part in parts if part)


def _short(text: str, max_chars: int) -> str:
    return beginning(" ".join(head(text, max_chars * 4).split()), max_chars)
