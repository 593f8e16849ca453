"""The lines of the index: which items find room, and how they are shown."""

from collections.abc import Iterable, Sequence

from agentloop.context import Entry, IdentifierKind, TokenCounter, identifiers, neutral
from agentloop.index.found import Item, Seen, in_results, told
from agentloop.strategies import asked_again

TOLD_SHARE = 0.75
"""What was said and called fills at most this share while results have something to add."""

MOST_MISSES = 20
"""After so many identifiers in a row that no longer fit, no more are tried."""

LABELS: dict[IdentifierKind, str] = {
    "path": "Paths",
    "url": "URLs",
    "error": "Errors",
    "number": "Numbers",
    "name": "Names",
}
"""What each line begins with."""


def index_of(entries: Sequence[Entry], *, max_tokens: int, counter: TokenCounter, known: str = "") -> str:
    """The identifiers of the entries as the log holds them, in labelled lines, newest first.

    At most `max_tokens` long by the counter; empty where there is nothing to list. What `known` holds is left
    out. What was said and what calls named comes before what only results hold, and no message is given a
    second turn before all others had their first. A named value that has a newer one is left out, and so is
    what only the result of a call holds that was made again. Of one message a stated number of characters is
    looked at.

    Example:
        >>> from agentloop.context.context.context import Context
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = MessageAdded(message=Message.user("The port is 8443, see docs/ports.md."), tokens=15)
        >>> entries = Context.of([Record(seq=1, event=said)]).visible
        >>> print(index_of(entries, max_tokens=100, counter=len))
        Paths: docs/ports.md
        Numbers: port = 8443
    """
    if max_tokens <= 0:
        return ""
    seen = Seen(set(identifiers(known)))
    first = told(entries, seen, most=max_tokens)
    outdated = asked_again(entries)
    current = [entry for entry in entries if entry.seq not in outdated]
    second = in_results(current, seen, most=max_tokens)
    chosen, rest, spent = _taken(first, int(max_tokens * TOLD_SHARE) if second else max_tokens, counter)
    more, _, _ = _taken([*second, *rest], max_tokens - spent, counter)
    return _fitting([*chosen, *more], max_tokens, counter)


def _taken(items: Sequence[Item], room: int, counter: TokenCounter) -> tuple[list[Item], list[Item], int]:
    """The items that the room holds, those it does not, and the tokens of the former with their labels."""
    taken: list[Item] = []
    rest: list[Item] = []
    labelled: set[IdentifierKind] = set()
    spent = misses = 0
    for at, item in enumerate(items):
        label = "" if item.kind in labelled else f"{LABELS[item.kind]}:\n"
        cost = counter(f"{label} {item.text},")
        if spent + cost <= room:
            spent += cost
            taken.append(item)
            labelled.add(item.kind)
            misses = 0
            continue
        rest.append(item)
        misses += 1
        if misses >= MOST_MISSES:
            return taken, [*rest, *items[at + 1 :]], spent
    return taken, rest, spent


def _fitting(items: list[Item], max_tokens: int, counter: TokenCounter) -> str:
    """The lines of the items, the last ones dropped until they surely fit."""
    text = _lines(items)
    while items and counter(text) > max_tokens:
        items = items[: len(items) - len(items) // 10 - 1]
        text = _lines(items)
    return text


def _lines(items: Iterable[Item]) -> str:
    shown: dict[IdentifierKind, list[str]] = {}
    for item in sorted(items, key=lambda item: (-item.message, item.place)):
        shown.setdefault(item.kind, []).append(item.text)
    lines = (f"{label}: {', '.join(shown[kind])}" for kind, label in LABELS.items() if kind in shown)
    return neutral("\n".join(lines))
