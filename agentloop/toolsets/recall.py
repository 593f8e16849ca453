"""Recall: tools by which a model finds what was said and it no longer sees.

A search is the store's, so an archive of any length is asked once and not read. What a user took back
(`rewind`) is found by nobody.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.checks import shown, whole
from agentloop._plumbing.patterns import pattern
from agentloop.context import Context, estimate_tokens, rewound
from agentloop.errors import DamagedError, RetryTool, UsageError
from agentloop.events import MessageRecord, Ranges, holds
from agentloop.messages import Message, labelled_part
from agentloop.prompts import FOUND_IN_SESSIONS, FOUND_SOME_WORDS, NOTHING_FOUND, RECALLED
from agentloop.sessions import Session
from agentloop.stores import Query, SessionStore, excerpt, searchable
from agentloop.stores.base import FindsWords, Found, trunk_of
from agentloop.tools import RunContext, Tool, ToolAnswer, tool

RECALL, SEARCH_SESSIONS = "recall", "search_sessions"
RECALL_TOOLS = (RECALL, SEARCH_SESSIONS)

ANSWER_TOKENS = 2_000
LEAST_ANSWER_TOKENS = 100
MOST_QUOTES = 20
LEAST_QUOTE_CHARS = 160
FIRST_LOOK = 100
"""So many records are asked for, beside those that may be in sight."""
MOST_SESSIONS = 200
"""So many sessions, the newest, are asked one by one where too much is found that may not be shown."""
MOST_WORDS = 6
"""So many words, the longest, are looked for one by one where nothing holds all of them."""

MOST_BEFORE_RESULT = 200
"""So many records before a result its call is looked for."""

_HEADINGS = (RECALLED, FOUND_IN_SESSIONS, FOUND_SOME_WORDS, NOTHING_FOUND)
_POSITION = pattern(r"\s*(?:at )?(?:position )?#?(\d{1,9})\s*", re.IGNORECASE)


@runtime_checkable
class HasStore(Protocol):
    """Who keeps its sessions in a store, as a `Runner` does."""

    @property
    def store(self) -> SessionStore: ...


def recall_tools(
    runner_or_store: HasStore | SessionStore, *, max_tokens: int = ANSWER_TOKENS
) -> tuple[Tool, Tool]:
    """The tools `recall(query)` and `search_sessions(query)`, for an agent that is always to have them.

    `Agent(recall=True)` offers them by itself, and only once something was hidden. `recall` finds what was
    said in the session that calls it and that its context holds no more, or only shortened, newest first;
    `search_sessions` what was said in others of the same owner, or of nobody where it has none. Both answer
    with positions and quotes of at most `max_tokens` tokens by our own estimate. Where nothing holds all the
    words, what holds the rarest of them is found.

    Example:
        >>> from agentloop import Agent, OfflineModel
        >>> from agentloop.stores import InMemoryStore
        >>> agent = Agent(OfflineModel(), tools=recall_tools(InMemoryStore()))
        >>> [tool.name for tool in agent.tools]
        ['recall', 'search_sessions']

    Raises:
        UsageError: no store that can search is given, and no runner with one, or `max_tokens` is no whole
            number of at least 100.
    """
    whole("max_tokens", max_tokens, LEAST_ANSWER_TOKENS)
    store = runner_or_store.store if isinstance(runner_or_store, HasStore) else runner_or_store
    if not hasattr(store, "read") or not isinstance(store, FindsWords):
        raise UsageError(f"recall takes a Runner or a store that can search, not {shown(runner_or_store)}")
    recall = _Recall(store=store, max_tokens=max_tokens)
    return Tool.of(recall.recall), Tool.of(recall.search_sessions)


_Look: TypeAlias = Callable[[str], Awaitable[Sequence[Found]]]
"""What holds all of these words and may be shown, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recall:
    store: SessionStore
    max_tokens: int

    @tool(idempotent=True)
    async def recall(self, context: RunContext[Any], query: str) -> str | ToolAnswer:
        """Find earlier words, names, numbers or results of this conversation that are no longer shown.

        Args:
            query: Words that all occur in it, a "phrase", or a position, for what was shown there.
        """
        own = (await Session.open(context.session_id, self.store)).context
        if (at := _POSITION.fullmatch(query)) and (media := await self._media_at(int(at[1]), own, context)):
            return media
        in_sight = {entry.seq for entry in own.visible if entry.kind == "said" and not entry.cleared}
        gone = rewound(own.compactions)
        most = FIRST_LOOK + len(own.visible) + own.compaction_count

        async def is_hidden(found: Found) -> bool:
            seq, event = found.record.seq, found.record.event
            is_main = isinstance(event, MessageRecord) and event.branch is None
            may_be = is_main and seq not in in_sight and not holds(gone, seq)
            return may_be and not await self._is_of_recall(found)

        async def look(words: str) -> Sequence[Found]:
            found = await self._search(words, most, session_id=context.session_id)
            return [each for each in found if await is_hidden(each)][:MOST_QUOTES]

        found, heading = await _find(query, look)
        places = [f"[position {each.record.seq}, {_who(each)}]" for each in found]
        return await self._answer(heading or RECALLED, query, found, places, context)

    async def _media_at(self, seq: int, own: Context, context: RunContext[Any]) -> ToolAnswer | None:
        """The images and files that were shown at that position; None where there were none."""
        for record in await self.store.read(context.session_id, after=seq - 1, most=1):
            event = record.event
            if isinstance(event, MessageRecord) and event.message.has_media and event.branch is None:
                if holds(rewound(own.compactions), seq):
                    return None
                media = tuple(part for part in event.message.parts if labelled_part(part))
                return ToolAnswer(f"{RECALLED}\n[position {seq}] {event.message.text}", "ok", media)
        return None

    @tool(idempotent=True)
    async def search_sessions(self, context: RunContext[Any], query: str) -> str:
        """Find what was said in the user's other conversations.

        Args:
            query: Words that all occur in it, or a "phrase".
        """
        here = trunk_of(context.session_id) or context.session_id
        own = await self.store.info(context.session_id)
        owner = own.owner if own else None
        taken_back = dict[str, Ranges | None]()

        async def may_be_seen(found: Found) -> bool:
            name = found.session_id
            if name == here or trunk_of(name) or await self._is_of_recall(found):
                return False
            if name not in taken_back:
                line = await self.store.info(name)
                is_theirs = line is not None and line.owner == owner
                taken_back[name] = await self._taken_back(name) if is_theirs else None
            gone = taken_back[name]
            return gone is not None and not holds(gone, found.record.seq)

        async def look(words: str) -> Sequence[Found]:
            found = await self._search(words, FIRST_LOOK, owner=owner)
            kept = [each for each in found if await may_be_seen(each)]
            if len(kept) < MOST_QUOTES and len(found) == FIRST_LOOK:
                kept = await each_by_itself(words)
            return kept[:MOST_QUOTES]

        async def each_by_itself(words: str) -> list[Found]:
            lines = [line for line in await self.store.list(owner=owner) if line.owner == owner]
            kept = list[Found]()
            for line in lines[:MOST_SESSIONS]:
                if line.id != here and len(kept) < MOST_QUOTES:
                    found = await self._search(words, FIRST_LOOK, session_id=line.id)
                    kept += [each for each in found if await may_be_seen(each)]
            return kept

        found, heading = await _find(query, look)
        places = [f"[session {each.session_id}, position {each.record.seq}, {_who(each)}]" for each in found]
        return await self._answer(heading or FOUND_IN_SESSIONS, query, found, places, context)

    async def _taken_back(self, session_id: str) -> Ranges | None:
        """What a user took back of that session; None where that is damaged, as then nobody knows."""
        try:
            return rewound((await Session.open(session_id, self.store)).context.compactions)
        except DamagedError:
            return None

    async def _is_of_recall(self, found: Found) -> bool:
        """Whether it is a call of recall alone, or its answer, which quotes what is found by itself."""
        if not isinstance(found.record.event, MessageRecord):
            return True
        message = _message(found)
        if message.role == "tool":
            return message.text.startswith(_HEADINGS) and await self._asked(found) in RECALL_TOOLS
        called = {call.name for call in message.tool_calls}
        return bool(called) and called <= set(RECALL_TOOLS) and not message.text.strip()

    async def _asked(self, found: Found) -> str:
        """The tool whose result it is, by the newest call of that id before it.

        Nothing where that is far, or something before it is damaged.
        """
        seq, call_id = found.record.seq, _message(found).tool_call_id
        first = max(0, seq - 1 - MOST_BEFORE_RESULT)
        try:
            records = await self.store.read(found.session_id, after=first, most=MOST_BEFORE_RESULT)
        except DamagedError:
            return ""
        events = (record.event for record in reversed(records) if record.seq < seq)
        said = (event.message for event in events if isinstance(event, MessageRecord))
        calls = (call.name for message in said for call in message.tool_calls if call.id == call_id)
        return next(calls, "")

    async def _search(
        self, text: str, most: int, *, session_id: str | None = None, owner: str | None = None
    ) -> Sequence[Found]:
        assert isinstance(self.store, FindsWords)
        return await self.store.search(text, session_id=session_id, owner=owner, most=most)

    async def _answer(
        self,
        heading: str,
        query: str,
        found: Sequence[Found],
        places: Sequence[str],
        context: RunContext[Any],
    ) -> str:
        if not found:
            return NOTHING_FOUND
        return await in_thread(self._quoted, heading, Query.of(query), found, places, context.redact)

    def _quoted(
        self,
        heading: str,
        query: Query,
        found: Sequence[Found],
        places: Sequence[str],
        redact: Callable[[str], str],
    ) -> str:
        """The quotes, as long as the room lets all of them be; of the shortest as many as have room."""
        texts = [redact(searchable(each.record.event)) for each in found]

        def quotes(chars: int) -> list[str]:
            quoted = (excerpt(text, query, chars=chars) for text in texts)
            return [f"{place} {text}" for place, text in zip(places, quoted, strict=True)]

        def tokens(lines: Sequence[str]) -> int:
            return estimate_tokens("\n".join((heading, *lines)))

        chars = max(LEAST_QUOTE_CHARS, 4 * self.max_tokens // len(found))
        lines = quotes(chars)
        while chars > LEAST_QUOTE_CHARS and tokens(lines) > self.max_tokens:
            chars = max(LEAST_QUOTE_CHARS, chars // 2)
            lines = quotes(chars)
        while len(lines) > 1 and tokens(lines) > self.max_tokens:
            lines.pop()
        return "\n".join((heading, *lines))


async def _find(query: str, look: _Look) -> tuple[Sequence[Found], str]:
    """What holds all the words; else what holds the rarest of them, and a heading that says so.

    Raises:
        RetryTool: the query holds no word.
    """
    try:
        phrases = Query.of(query).phrases
    except UsageError as error:
        raise RetryTool(str(error)) from error
    found = await look(query)
    if found or len(phrases) == 1:
        return found, ""
    weights, places = dict[tuple[str, int], float](), dict[tuple[str, int], Found]()
    for words in sorted((" ".join(phrase) for phrase in phrases), key=len, reverse=True)[:MOST_WORDS]:
        found = await look(f'"{words}"')
        for each in found:
            place = each.session_id, each.record.seq
            places[place] = each
            weights[place] = weights.get(place, 0.0) + 1 / len(found)
    best = sorted(weights, key=lambda place: -weights[place])
    return [places[place] for place in best[:MOST_QUOTES]], FOUND_SOME_WORDS


def _who(found: Found) -> str:
    message = _message(found)
    return "result" if message.role == "tool" else message.role


def _message(found: Found) -> Message:
    assert isinstance(found.record.event, MessageRecord)
    return found.record.event.message
