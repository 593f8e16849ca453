"""Images and files of a session: kept beside its log once, by their hash, and in the log as a reference.

Each lies in a log of its own that belongs to the session, as that of a sub-agent does: every store keeps it,
it goes where the session goes, and one session reads nothing of another. Who opens a session reads none of
them. What leaves it (requests, transcripts, exports) holds them whole again; an import keeps them anew.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from agentloop.errors import ConflictError
from agentloop.events import Event, MediaRecord, MessageRecord, RunStartRecord
from agentloop.media import (
    MOST_INLINE_CHARS,
    bare,
    blob_url,
    held_by,
    is_media_url,
    label_of,
    media_url,
    named_url,
    with_url,
)
from agentloop.messages import Json, Message
from agentloop.prompts import MEDIA_GONE
from agentloop.stores.base import SessionStore, media_log

_Change = Callable[[str, Json], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class SessionMedia:
    """The images and files of one session, those of its sub-agents among them.

    What the last request held is remembered, since the next one holds it again.
    """

    store: SessionStore
    session_id: str
    _last: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    async def keep(self, message: Message) -> Message:
        """The message with references to its images and files, which are stored; the small ones stay in it.

        Raises:
            StoreError: one could not be stored.
        """
        return await _changed(message, self._kept)

    async def whole(self, message: Message) -> Message:
        """The message with its images and files in place of references to them.

        Raises:
            StoreError: one could not be read.
        """
        return await _changed(message, self._filled)

    async def fill(self, messages: Sequence[Json]) -> tuple[Json, ...]:
        """The messages of a request with images and files in place of references to them.

        What is not there any more is said so in a text.

        Raises:
            StoreError: one could not be read.
        """
        before = dict(self._last)
        self._last.clear()

        async def filled(url: str, part: Json) -> Json:
            found = self._last.get(url) or before.get(url)
            part = bare(await self._filled(url, part)) if found is None else with_url(part, found)
            if found := media_url(part):
                self._last[url] = found
            return part

        sent = []
        for message in messages:
            content = message.get("content")
            parts = await _each(content, filled) if isinstance(content, list) else content
            sent.append(message if parts is content else {**message, "content": parts})
        return tuple(sent)

    async def keep_in(self, event: Event) -> Event:
        """The record as a log holds it: see `keep`."""
        return await _in_event(event, self.keep)

    async def whole_in(self, event: Event) -> Event:
        """The record as it leaves the session: see `whole`."""
        return await _in_event(event, self.whole)

    async def _kept(self, url: str, part: Json) -> Json:
        if not url.startswith("data:") or len(url) <= MOST_INLINE_CHARS or not is_media_url(url):
            return part
        sha256 = hashlib.sha256(url.partition(",")[2].encode()).hexdigest()
        log = media_log(self.session_id, sha256)
        if await self.store.info(log) is None:
            with suppress(ConflictError):  # another run has just stored the same
                kept = media_url(bare(part)) or url
                await self.store.append(log, [MediaRecord(url=kept)], expect=0)
        return with_url(part, blob_url(url, sha256))

    async def _filled(self, url: str, part: Json) -> Json:
        held = held_by(url)
        if held.sha256 is None:
            return part
        for record in await self.store.read(media_log(self.session_id, held.sha256), most=1):
            if isinstance(record.event, MediaRecord):
                return with_url(part, named_url(record.event.url, held.name))
        return {"type": "text", "text": MEDIA_GONE.format(what=label_of(part))}


async def _in_event(event: Event, change: Callable[[Message], Awaitable[Message]]) -> Event:
    match event:
        case MessageRecord(message=message):
            changed = await change(message)
            return event if changed is message else replace(event, message=changed)
        case RunStartRecord(prompt=Message() as prompt):
            changed = await change(prompt)
            return event if changed is prompt else replace(event, prompt=changed)
    return event


async def _changed(message: Message, change: _Change) -> Message:
    if not isinstance(message.content, tuple):
        return message
    parts = await _each(message.content, change)
    return message if parts is message.content else replace(message, content=tuple(parts))


async def _each(parts: Sequence[Any], change: _Change) -> Sequence[Any]:
    """The parts with those changed that hold an image or a file; the sequence itself where none does."""
    changed = []
    for part in parts:
        url = media_url(part) if isinstance(part, Mapping) else None
        changed.append(part if url is None else await change(url, part))
    return parts if all(one is other for one, other in zip(parts, changed, strict=True)) else changed
