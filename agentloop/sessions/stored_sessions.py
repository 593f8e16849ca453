"""The stored sessions of a store, beside the runs: listed, read, taken in, given out, copied and deleted.

What `runner.sessions` does and what the command line does is this.
"""

import json
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import indent
from typing import Any, Literal, TypeAlias, get_args

from agentloop._plumbing.checks import shown, text, whole_or_none
from agentloop.context import answers, count_message, counter_for
from agentloop.errors import ConflictError, SessionNotFoundError, UsageError
from agentloop.events import (
    MAIN,
    ApprovalAnswered,
    ApprovalAsked,
    Described,
    Event,
    EventFilter,
    MessageRecord,
    Record,
    select,
)
from agentloop.media import bare
from agentloop.messages import Message
from agentloop.prompts import YES_ELSEWHERE
from agentloop.redaction import Redact, redacted
from agentloop.sessions.deletion import Deletion
from agentloop.sessions.export import arranged, heading, to_blocks, to_events, to_openai
from agentloop.sessions.importing import parse, records_of, redacted_events
from agentloop.sessions.media import SessionMedia
from agentloop.sessions.pages import PAGE_RECORDS, Pages, Tell, drop_dangling, read_pages, say_nothing
from agentloop.sessions.session import Conversation, Sessions, new_session_id, title_of
from agentloop.stores.base import (
    FindsWords,
    Found,
    SessionInfo,
    TellsLeases,
    check_trunk,
    checked_session_id,
)

ExportFormat: TypeAlias = Literal["openai", "events", "markdown"]
_MOST_TRIES = 20
"""So often a log that grows meanwhile is written to: the steps of a run take longer than a try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSessions:
    """The sessions of a store as one owner sees them; what they hold is shown without secrets.

    `transcripts` is where their files lie, `model` the name of the one whose tokens are counted.
    """

    sessions: Sessions
    redact: Redact | None = None
    transcripts: Path | None = None
    model: str = ""

    async def list(self, *, folder: str | None = None) -> Sequence[SessionInfo]:
        """The sessions, newest update first; with `folder` those of that folder.

        Raises:
            StoreError: the store could not be read.
        """
        stored = await self.sessions.store.list(folder=folder, owner=self.sessions.owner)
        return redacted(stored, self.redact)

    async def info(self, session_id: str) -> SessionInfo:
        """The session's line in that list.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        return redacted(await self._line(session_id), self.redact)

    async def messages(self, session_id: str, *, shown: bool = False) -> Sequence[Message]:
        """All that was ever said in the session, whole, also what was taken back.

        With `shown` what the model sees of it now: old results shortened, summaries in place of what they
        stand for. Either may be the `history` of a new session.

        Raises:
            SessionNotFoundError: there is no such session.
            StoreError: the log could not be read.
        """
        info = await self._line(session_id)
        if shown:
            said = (await self.sessions.open(info.id)).context.messages
        else:
            records = _said(await self.sessions.store.read(info.id))
            said = list(arranged([message for _, message in records]))
        media = SessionMedia(self.sessions.store, info.id)
        return redacted([await media.whole(message) for message in said], self.redact)

    async def export(
        self, session_id: str, *, format: ExportFormat = "openai", only: EventFilter | None = None
    ) -> str:
        """The session as text: a JSON list of messages, its events as JSON Lines, or Markdown.

        With `only` what the filter takes of it.

        Raises:
            SessionNotFoundError: there is no such session.
            UsageError: there is no such format.
            StoreError: the log could not be read.
        """
        if format not in get_args(ExportFormat):
            raise UsageError(
                f"format must be one of {', '.join(get_args(ExportFormat))}, not {shown(format)}"
            )
        info = await self._line(session_id)
        async with aclosing(self.texts(info, format, only)) as texts:
            return "".join([piece async for piece in texts])

    async def import_(self, conversation: Conversation, *, session_id: str | None = None) -> str:
        """Begin a session with a conversation from elsewhere; its id, a new one where none is given.

        It is the text of an export (messages or events of ours, or another program's, as for
        `agentloop sessions import`), or a list of messages.

        Raises:
            UsageError: it is none or empty, the id is not allowed, or there is such a session.
        """
        session_id = new_session_id() if session_id is None else check_trunk(session_id)
        events = self.events_of(conversation)
        if not events:
            raise UsageError("nothing to import: it holds no message")
        return await self.begin(session_id, events)

    def events_of(
        self, conversation: Conversation, tell: Callable[[int], object] = lambda records: None
    ) -> Sequence[Event]:
        """The events with which it begins a session; none for a list of no messages.

        Of a text it is told how many records are read.

        Raises:
            UsageError: it is no such conversation.
        """
        counter = counter_for(self.model)

        def count(message: Message) -> int:
            return count_message(message, counter)

        said: Iterable[Event] = (
            parse(conversation, count=count, tell=tell)
            if isinstance(conversation, str)
            else records_of(conversation, count)
        )
        events = _without_open_yes([*redacted_events(said, self.redact, count)])
        return [*events, self.sessions.description(_title(events))] if events else []

    async def begin(self, session_id: str, events: Sequence[Event]) -> str:
        """Begin the session of that id with these events, its images and files beside it; the id.

        Raises:
            UsageError: there is such a session.
        """
        store = self.sessions.store
        media = SessionMedia(store, session_id)
        exists = UsageError(f"session {session_id!r} exists already: choose another id")
        if await store.info(session_id):
            raise exists
        try:
            await store.append(session_id, [await media.keep_in(event) for event in events], expect=0)
        except ConflictError as error:
            raise exists from error
        return session_id

    async def rename(self, session_id: str, title: str) -> None:
        """Give the session a title; it stays as new as it was.

        Raises:
            SessionNotFoundError: there is no such session.
            UsageError: the title is empty.
        """
        text("title", title)
        if not title.strip():
            raise UsageError("the title is empty: say what the session is about")
        info = await self._line(session_id)
        said = Described(title=redacted(title.strip(), self.redact), time=info.updated)
        await self.describe(info, said)

    async def describe(self, info: SessionInfo, said: Described) -> None:
        """Append it, behind what others append meanwhile.

        Raises:
            ConflictError: they never stop.
            SessionNotFoundError: the session was deleted meanwhile.
        """
        store, length = self.sessions.store, info.length
        for _ in range(_MOST_TRIES - 1):
            try:
                await store.append(info.id, [said], expect=length)
                return
            except ConflictError as conflict:
                length = conflict.actual
            if not length:
                raise SessionNotFoundError(f"session {info.id!r} was deleted meanwhile")
        await store.append(info.id, [said], expect=length)

    async def fork(self, session_id: str, *, at: int | None = None, new_id: str | None = None) -> str:
        """Begin another session with the log of this one, up to position `at`, the whole for None; its id.

        The two know nothing of each other from there on. What tools did stays done. The files that the log
        names are those of both, and the logs of sub-agents stay with the first.

        Raises:
            SessionNotFoundError: there is no such session.
            UsageError: `at` is no position of its log, or stands between a call and its results; or the new
                id is not allowed or taken.
        """
        new_id = new_session_id() if new_id is None else check_trunk(new_id)
        info = await self._line(check_trunk(session_id))
        whole_or_none("at", at, 1, most=info.length)
        records = await self.sessions.store.read(info.id)
        if at is not None:
            _check_cut(records, at)
        here = Described(title=info.title, folder=info.folder, owner=info.owner, ttl_seconds=info.ttl_seconds)
        media = SessionMedia(self.sessions.store, info.id)
        copied = [await media.whole_in(each.event) for each in records[:at]]
        return await self.begin(new_id, [*_without_open_yes(copied), here])

    async def search(
        self, words: str, *, session_id: str | None = None, folder: str | None = None, most: int = 50
    ) -> Sequence[Found]:
        """The records that hold all the words, newest first, at most `most`; also those compacted away.

        What stands in double quotes is found as it stands.

        Raises:
            UsageError: there are no words, or the store cannot be searched.
            SessionNotFoundError: there is no such session.
        """
        store = self.sessions.store
        if not isinstance(store, FindsWords):
            raise UsageError(
                f"a {type(store).__name__} cannot be searched: export the session and search that"
            )
        if session_id is not None:
            await self._line(session_id)
        found = await store.search(
            words, session_id=session_id, folder=folder, owner=self.sessions.owner, most=most
        )
        return [replace(each, record=redacted(each.record, self.redact)) for each in _once(found)]

    async def delete(self, session_id: str, *, force: bool = False, keep_files: bool = False) -> None:
        """Delete the session, its log and those of its sub-agents, and the files that they alone name.

        With `force` also where a run works on it, which then fails.

        Raises:
            SessionNotFoundError: there is no such session.
            SessionBusyError: a run works on it.
            StoreError: a file or the log could not be removed.
        """
        info, deletion = await self._line(check_trunk(session_id)), self.deletion()
        infos = [*await self.sessions.store.list(branches_of=info.id), info]
        going = [await deletion.history_of(each) for each in infos]
        keep_files = keep_files or self.transcripts is None
        marked = going if keep_files else await deletion.mark_shared(going)
        await deletion.delete(marked, lambda *_: None, force=force, keep_files=keep_files)

    def deletion(self) -> Deletion:
        """What deletes sessions, and the files in the folder of transcripts."""
        folder = self.transcripts or Path()
        return Deletion(store=self.sessions.store, transcripts=folder, redact=self.redact)

    async def sweep(self, *, now: float | None = None) -> Sequence[SessionInfo]:
        """Delete the sessions whose time to live is over, but for those that a run works on; those that went.

        `now` is the time to hold them against, in seconds since the epoch; None is the clock's.

        Raises:
            StoreError: nothing could be deleted.
        """
        return redacted(await self.sessions.store.sweep(owner=self.sessions.owner, now=now), self.redact)

    async def expired(self, now: float | None = None) -> Sequence[SessionInfo]:
        """What `sweep` would take at that time, None for now. Nothing is written.

        Of a store that does not tell who holds a session, it is all that has expired.
        """
        now, store = time.time() if now is None else now, self.sessions.store
        stored = await store.list(owner=self.sessions.owner)
        due = [info for info in stored if info.expires is not None and info.expires <= now]
        if isinstance(store, TellsLeases):
            due = [info for info in due if await store.lease(info.id) is None]
        return redacted(due, self.redact)

    async def texts(
        self,
        info: SessionInfo,
        format: ExportFormat,
        only: EventFilter | None = None,
        *,
        read: Pages = read_pages,
        tell: Tell = say_nothing,
    ) -> AsyncGenerator[str]:
        """What an export in that format holds of the session, or of what the filter takes, in pieces.

        Of a range, no other records are read; `read` is how. Events and Markdown hold one page in memory at
        a time. The list of messages holds the messages, since a result may stand anywhere behind its call.

        Raises:
            StoreError: the log cannot be read.
        """
        media = None if format == "markdown" else SessionMedia(self.sessions.store, info.id)
        async with aclosing(self._redacted(read(self.sessions.store, info, only), media)) as records:
            match format:
                case "openai":
                    said = [
                        record
                        async for page in records
                        for record in page
                        if isinstance(record.event, MessageRecord)
                    ]
                    for piece in _list([_bare(message) for message in to_openai(said, only=only)]):
                        yield piece
                case "events":
                    async with aclosing(drop_dangling(records, only, tell=tell)) as kept:
                        async for page in kept:
                            yield "".join(f"{line}\n" for line in to_events(page, only=only))
                case "markdown":
                    between = ""
                    if info.title and (only is None or "described" in (only.kinds or ("described",))):
                        yield heading(redacted(info.title, self.redact))
                        between = "\n\n"
                    async for page in records:
                        for block in to_blocks(select(page, only)):
                            yield between + block
                            between = "\n\n"
                    yield "\n"

    async def _redacted(
        self, read: AsyncGenerator[Sequence[Record]], media: SessionMedia | None
    ) -> AsyncGenerator[Sequence[Record]]:
        """The pages without secrets, with the images and files in place of references to them."""
        async with aclosing(read):
            async for page in read:
                whole = (
                    [replace(each, event=await media.whole_in(each.event)) for each in page]
                    if media
                    else page
                )
                yield redacted(whole, self.redact)

    async def _line(self, session_id: str) -> SessionInfo:
        await self.sessions.check_seen(session_id)
        if info := await self.sessions.store.info(checked_session_id(session_id)):
            return info
        raise SessionNotFoundError(f"there is no session {session_id!r}")


def _said(records: Iterable[Record]) -> Sequence[tuple[int, Message]]:
    """What was said in no branch, with its positions."""
    taken = select(records, EventFilter(branch=MAIN))
    return [(each.seq, each.event.message) for each in taken if isinstance(each.event, MessageRecord)]


def _check_cut(records: Iterable[Record], at: int) -> None:
    """Refuse a cut between a call and its results: who went on would run what has run."""
    said = _said(records)
    for call, places in answers([message for _, message in said]).items():
        first, last = said[call][0], said[max(place or 0 for place in (call, *places))][0]
        if first <= at < last:
            raise UsageError(
                f"position {at} stands between a call and its results: name one before {first}, or {last}"
            )


def _without_open_yes(events: Sequence[Event]) -> Sequence[Event]:
    """The events of a copy, in which no call runs for a yes that was given, or is given, elsewhere."""
    done = {each.message.tool_call_id for each in events if isinstance(each, MessageRecord)}
    answered = {each.call_id for each in events if isinstance(each, ApprovalAnswered)}

    def copied(event: Event) -> Event:
        match event:
            case ApprovalAnswered(verdict="approved", call_id=call_id) if call_id not in done:
                return replace(event, verdict="rejected", arguments="", text=YES_ELSEWHERE)
            case ApprovalAsked(call_id=call_id) if call_id not in answered:
                return replace(event, id=uuid.uuid4().hex)
        return event

    return [copied(each) for each in events]


def _title(events: Sequence[Event]) -> str | None:
    """What a session of these messages would be called; None where they name a title themselves."""
    if any(isinstance(event, Described) for event in events):
        return None
    said = (event.message for event in events if isinstance(event, MessageRecord))
    return next((title_of(message) for message in said if message.role == "user"), None) or None


def _once(found: Sequence[Found]) -> list[Found]:
    """What was found without the titles that are the first words of a message found beside them."""
    said = [
        (each.session_id, " ".join(each.record.event.message.text.split()))
        for each in found
        if isinstance(each.record.event, MessageRecord)
    ]

    def repeats(each: Found) -> bool:
        event = each.record.event
        words = (event.title or "").removesuffix("…") if isinstance(event, Described) else ""
        return any(words and name == each.session_id and text.startswith(words) for name, text in said)

    return [each for each in found if not repeats(each)]


def _bare(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its images and files as servers take them."""
    parts = message.get("content")
    return {**message, "content": [bare(part) for part in parts]} if isinstance(parts, list) else message


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
