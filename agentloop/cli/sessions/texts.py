"""A stored session as the pieces of a text, read and redacted page by page."""

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from textwrap import indent
from typing import Any

from agentloop.cli.sessions.reading import PAGE_RECORDS, Pages, pages, warn, without_dangling
from agentloop.cli.sessions.work import Opened
from agentloop.events import EventFilter, MessageAdded, Record, select
from agentloop.redaction import redacted
from agentloop.sessions import export, heading, to_blocks
from agentloop.stores import SessionInfo

FORMATS = ("openai", "events", "markdown")


async def texts_of(
    opened: Opened,
    info: SessionInfo,
    shape: str,
    only: EventFilter | None = None,
    *,
    read: Pages = pages,
) -> AsyncGenerator[str]:
    """What an export in that format holds of the session, or of what the filter takes of it.

    Of a range, no other records are read; `read` is how.

    Events and Markdown hold one page in memory at a time. The list of messages holds the messages, since a
    result may stand anywhere behind its call.

    Raises:
        StoreError: the log cannot be read.
    """
    async with aclosing(_redacted(opened, read(opened.store, info, only))) as records:
        match shape:
            case "openai":
                said = [record async for page in records for record in page if _is_said(record)]
                for text in _list(export.to_openai(said, only=only)):
                    yield text
            case "events":
                async with aclosing(without_dangling(records, only, tell=warn)) as kept:
                    async for page in kept:
                        yield "".join(f"{line}\n" for line in export.to_events(page, only=only))
            case _:
                between = ""
                if info.title and (only is None or "described" in (only.kinds or ("described",))):
                    yield heading(redacted(info.title, opened.settings.redact))
                    between = "\n\n"
                async for page in records:
                    for block in to_blocks(select(page, only)):
                        yield between + block
                        between = "\n\n"
                yield "\n"


async def _redacted(opened: Opened, read: AsyncGenerator[Sequence[Record]]) -> AsyncGenerator[list[Record]]:
    async with aclosing(read):
        async for page in read:
            yield redacted(list(page), opened.settings.redact)


def _is_said(record: Record) -> bool:
    return isinstance(record.event, MessageAdded)


def _list(items: Sequence[Any]) -> Iterator[str]:
    """The items as one JSON list, indented, in pieces."""
    between = "[\n"
    for start in range(0, len(items), PAGE_RECORDS):
        yield between + ",\n".join(map(_item, items[start : start + PAGE_RECORDS]))
        between = ",\n"
    yield "\n]\n" if items else "[]\n"


def _item(data: Any) -> str:
    """Strict JSON: NaN and the infinities, which a model's server may have sent, become null."""
    try:
        text = json.dumps(data, indent=2, allow_nan=False)
    except ValueError:
        strict = json.loads(json.dumps(data), parse_constant=lambda _: None)
        text = json.dumps(strict, indent=2)
    return indent(text, "  ")
