"""What an import stores: the events of a file, redacted, and counted again where that changed them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from agentloop.cli import readings, standard_input
from agentloop.errors import UsageError
from agentloop.events import Cleared, ClearedItem, Compacted, Event, MessageAdded
from agentloop.messages import Message
from agentloop.redaction import Redact, redacted


def read_text(path: str) -> str:
    """What the file of that name holds; `-` is standard input.

    Raises:
        UsageError: it cannot be read, or is not in UTF-8.
    """
    try:
        data = standard_input.read_bytes() if path == "-" else readings.path(path).read_bytes()
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        raise UsageError(f"{path!r} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        name = "standard input" if path == "-" else repr(path)
        raise UsageError(f"nothing imported: line {line} of {name} is not in UTF-8: convert it") from error


def redacted_events(
    events: Iterable[Event], redact: Redact | None, count: Callable[[Message], int]
) -> Iterator[Event]:
    """The events redacted; what changes is counted again."""
    for event in events:
        clean = redacted(event, redact)
        yield event if clean is event else _counted(clean, count)


def _counted(event: Event, count: Callable[[Message], int]) -> Event:
    match event:
        case MessageAdded():
            return replace(event, tokens=count(event.message))
        case Cleared():
            return replace(event, items=_counted_items(event.items, count))
        case Compacted():
            answer = count(Message.assistant(event.answer)) if event.answer else 0
            shown = count(Message.user(event.replacement)) if event.replacement else 0
            items = _counted_items(event.cleared, count)
            return replace(event, tokens=shown + answer, answer_tokens=answer, cleared=items)
    return event


def _counted_items(items: Iterable[ClearedItem], count: Callable[[Message], int]) -> tuple[ClearedItem, ...]:
    return tuple(replace(item, tokens=count(item.message)) for item in items)
