"""Compaction of any list of chat-completions messages: no runner, no session and no store is needed.

The list becomes a log, is compacted like one, and what is then in sight comes back. What comes out may be
given again: a summary message in it, a question with its summary as the answer, or a note is known for what
it is, stands for something, and is no turn of a user's (`as_log`).
"""

import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import wraps
from itertools import zip_longest
from typing import Any, ParamSpec, TypeVar

from agentloop._plumbing.aio import in_own_loop
from agentloop._plumbing.amounts import named_tokens
from agentloop._plumbing.checks import shown
from agentloop._plumbing.patterns import pattern
from agentloop.callbacks import Callbacks, checked_callbacks
from agentloop.compaction.compactor import Compactor
from agentloop.compaction.keeper import ContextKeeper
from agentloop.compaction.plan import Occasion, fired_by
from agentloop.compaction.policy import Compaction
from agentloop.context import (
    ACKNOWLEDGED,
    REQUEST_OVERHEAD,
    ROLES,
    SYSTEM_ROLES,
    TOLD_TO_GO_ON,
    Budget,
    TokenCounter,
    answers,
    chat_messages,
    count_message,
    count_tools,
    counter_for,
    for_chat,
    record_in,
    says_nothing,
    wire_messages,
)
from agentloop.emitter import CALLBACK_SECONDS, Emitter, drop_event
from agentloop.errors import UsageError
from agentloop.events import Compacted, Event, Made, MessageRecord, Noted
from agentloop.messages import Json, Message
from agentloop.models import ChatModel, check_model
from agentloop.prompts import COMPRESSED, NOTE, SHADOW, STANDS_FOR, question_message, summary_message
from agentloop.redaction import Redaction
from agentloop.sessions import Session
from agentloop.stores import InMemoryStore
from agentloop.strategies import (
    Chain,
    FirstOf,
    KeepRecentFraction,
    RecursiveSummary,
    Replaced,
    Strategy,
    Summary,
)
from agentloop.stream import CompactionResult
from agentloop.triggers import Trigger

P = ParamSpec("P")
T = TypeVar("T")

Count = Callable[[Message], int]
"""How long a message is, in tokens."""

SOURCE = "earlier record"
"""Where the `Noted` events say they come from whose positions such records cover."""


class CompactedMessages(list[Json]):
    """Chat-completions messages, valid for a strict provider; `results` says what was done to them.

    `notices` says which of the messages given no strict provider takes as they are, and what became of each
    that still stands here: left out, labelled or completed. Each is named by its index in what was given.
    """

    def __init__(
        self,
        messages: Iterable[Json],
        results: Iterable[CompactionResult] = (),
        notices: Iterable[str] = (),
    ) -> None:
        super().__init__(messages)
        self.results = tuple(results)
        self.notices = tuple(notices)


async def compact_messages_async(
    messages: Iterable[Mapping[str, Any]],
    strategy: Strategy | None = None,
    *,
    window: int | str,
    model: ChatModel | None = None,
    trigger: Trigger | None = None,
    focus: str | None = None,
    callbacks: Iterable[Callbacks] = (),
    tools: Iterable[Mapping[str, Any]] = (),
) -> CompactedMessages:
    """A list of chat-completions messages compacted by a strategy; the list given is left as it is.

    `window` is what the model takes, in tokens or as `"128k"`: what comes out fits it with room for an
    answer, whatever the strategy does. `model` writes summaries; without one a digest is computed. With a
    `trigger` nothing is done unless it fires. `tools` are the schemas that are sent with the messages, for
    which there must be room too. A system message at the head, the newest user message and
    whole exchanges stay. What comes out may grow and be given again: the record in it is then updated, and
    taken for nothing that a user said. `compact_messages` is the same without `await`; it may be called with
    and without a running event loop.

    Example:
        >>> from agentloop.strategies import SlidingWindow
        >>> chat = [{"role": "user", "content": f"question {n}"} for n in range(30)]
        >>> len(compact_messages(chat, SlidingWindow(4), window="8k")) < len(chat)
        True

    Raises:
        UsageError: the window is no size, a message is no message (its index is named), or a callback would
            never be called.
        ContextOverflowError: the messages cannot be made to fit.
    """
    if model is not None:
        check_model("model", model)
    budget = _budget(window, tools, model)
    policy = Compaction(micro=None, trigger=trigger, strategy=strategy or KeepRecentFraction())
    said, notices = _read(messages)
    session = await _session_of(said, budget.counter, _shadows(policy.strategy))
    emitter = Emitter(session.id, "", drop_event, Redaction(), checked_callbacks(callbacks), CALLBACK_SECONDS)
    compactor = Compactor(policy=policy, model=model, transcripts=None, emitter=emitter)
    keeper = ContextKeeper(policy=policy, budget=budget, compactor=compactor)
    with closing(emitter.callback_list):
        if trigger is None or fired_by(trigger, session.context, budget):
            session, _ = await keeper.compact_for_user(session, focus)
        if not budget.fits(session.context):
            occasion = Occasion(reason="threshold", why="it does not fit")
            session = await keeper.escalate(session, budget, occasion)
    seen = session.context.messages
    sent = for_chat(wire_messages(seen)) if seen else ()
    return CompactedMessages(sent, keeper.outcomes, notices)


def _without_await(call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        return in_own_loop(call(*args, **kwargs))

    called.__name__ = called.__qualname__ = call.__name__.removesuffix("_async")
    return called


compact_messages = _without_await(compact_messages_async)


def _budget(window: int | str, tools: Iterable[Mapping[str, Any]], model: ChatModel | None) -> Budget:
    name = model.name if model else ""
    counter = counter_for(name)
    return Budget(
        window=named_tokens("window", window),
        fixed=REQUEST_OVERHEAD + count_tools(list(tools), counter),
        model=name,
        max_output_tokens=model.max_output_tokens if model else None,
        counter=counter,
    )


def _read(messages: Iterable[Mapping[str, Any]]) -> tuple[list[Message], list[str]]:
    """The messages, and a notice of each that cannot be sent as it is."""
    if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable):
        raise UsageError(f"messages must be a list of messages, not {shown(messages)}")
    given = list(messages)
    index_of = {id(message): at for at, message in enumerate(given)}
    read, places = list[Message](), list[str]()
    for message in chat_messages(given):
        at = index_of.get(id(message))
        places.append("one of several in one" if at is None else f"message {at}")
        try:
            read.append(Message.from_openai(message))
        except UsageError as error:
            raise UsageError(f"{places[-1]}: {error}") from error
    return read, [f"{places[at]}: {notice}" for at, notice in _notices(read)]


def _notices(said: Sequence[Message]) -> Iterator[tuple[int, str]]:
    """Which messages are sent otherwise than they stand, and how."""
    answered = answers(said)
    placed = {place for places in answered.values() for place in places}
    for at, message in enumerate(said):
        if message.role == "tool" and at not in placed:
            yield at, f"a result of no call before it ({message.tool_call_id or 'no id'!r}) is left out"
        elif message.role not in ROLES or (at and message.role in SYSTEM_ROLES):
            yield at, f"what {message.role!r} says here is shown as a user's, with a label"
        elif says_nothing(message):
            yield at, "an assistant's that says nothing is left out"
        for call, place in zip(message.tool_calls, answered.get(at, ()), strict=False):
            if place is None:
                yield at, f"its call {call.id!r} has no result and is answered as interrupted"


async def _session_of(said: Sequence[Message], counter: TokenCounter, shadows: Iterable[str]) -> Session:
    session = await Session.open("messages", InMemoryStore())
    events = as_log(said, lambda message: count_message(message, counter), shadows=frozenset(shadows))
    return await session.append(*events)


def _shadows(strategy: Strategy) -> Iterator[str]:
    """The questions of its own that this strategy shows a user to have asked."""
    match strategy:
        case RecursiveSummary(shadow=str(shadow)) | Replaced(instead=Summary(shadow=str(shadow))):
            yield shadow
        case Chain(steps=steps) | FirstOf(choices=steps):
            for step in steps:
                yield from _shadows(step)


def _exactly(text: str, filled_in: Mapping[str, str]) -> re.Pattern[str]:
    """The pattern of a text of ours, with the patterns of what is filled in."""
    exact = re.escape(text)
    for part, filling in filled_in.items():
        exact = exact.replace(re.escape(part), filling)
    return pattern(exact, re.DOTALL)


_NAMED = ("{transcript}", "{positions}")
_HEADER = {
    "{transcript}": r"(?P<transcript>[^\]\n]{1,255})",
    STANDS_FOR: r"(?: positions (?P<positions>[0-9–, ]{1,100}(?:in part)?))?",
}

_BEGINS = _exactly(COMPRESSED + STANDS_FOR, _HEADER)

_NOTE = _exactly(question_message(NOTE, *_NAMED), {"{count}": r"\d{1,9}", **_HEADER})

_QUESTION = _exactly(question_message("{asked}", *_NAMED), {"{asked}": "(?P<asked>.*)", **_HEADER})


def as_log(said: Sequence[Message], count: Count, *, shadows: Collection[str] = ()) -> Iterator[Event]:
    """The events of a log that begins with these messages, earlier records standing for what is gone.

    Only a user's whole message of exactly our shape is such a record; one that quotes it stays a user's. Each
    covers a position of its own, where the log holds nothing but a `Noted`. `shadows` are questions that an
    earlier record may answer, beside our own. What a request of ours held that nobody said is left out, since
    the next one holds it again. Positions are those of a new log.

    Example:
        >>> said = [Message.user(summary_message("They chose tabs.", None)), Message.user("Go on.")]
        >>> [type(event).__name__ for event in as_log(said, lambda message: len(message.text))]
        ['Noted', 'Compacted', 'MessageRecord']
    """
    asked = {SHADOW, *shadows}
    said = list(_without_acknowledgements(said))
    position, at = 1, 0
    while at < len(said):
        answer = said[at + 1] if at + 1 < len(said) else None
        record = _record(said[at], answer, position, asked, count)
        if record is None:
            yield MessageRecord(message=said[at], tokens=count(said[at]))
            position, at = position + 1, at + 1
        else:
            yield Noted(source=SOURCE)
            yield record
            position, at = position + 2, at + (_length_of_pair(said, at) if record.answer else 1)


def _without_acknowledgements(said: Sequence[Message]) -> Iterator[Message]:
    for message, following in zip_longest(said, said[1:]):
        if message != ACKNOWLEDGED or following is None or following.role != "user":
            yield message


def _length_of_pair(said: Sequence[Message], at: int) -> int:
    """How many messages are a question, its answer, and the word to go on that stands behind these."""
    behind = said[at + 2 : at + 4]
    told = len(behind) == 2 and behind[0] == TOLD_TO_GO_ON and behind[1].role == "assistant"
    return 3 if told else 2


def _record(
    message: Message, answer: Message | None, position: int, asked: Collection[str], count: Count
) -> Compacted | None:
    """The record that this message, or the pair, is; None where it is none."""
    text = message.text
    if not text.startswith(COMPRESSED[:10]) or message != Message.user(text):
        return None
    covers = ((position, position),)
    if _NOTE.fullmatch(text):
        return Compacted(covers=covers, replacement=text, at=position, tokens=count(message), made="note")
    if made := _made(message):
        return Compacted(covers=covers, replacement=text, at=position, tokens=count(message), made=made)
    question = _QUESTION.fullmatch(text)
    if not question or question["asked"] not in asked or not answer or not _answers(answer):
        return None
    answer_tokens = count(answer)
    return Compacted(
        covers=covers,
        replacement=text,
        at=position,
        tokens=count(message) + answer_tokens,
        answer=answer.text,
        answer_tokens=answer_tokens,
    )


def _made(message: Message) -> Made | None:
    """Who made the record that the message is, letter for letter; None for none."""
    made, text = record_in(message)
    begins = _BEGINS.match(message.text)
    if begins is None:
        return None
    ours = summary_message(text, begins["transcript"], begins["positions"] or "", made=made)
    return made if message.text == ours else None


def _answers(message: Message) -> bool:
    """Whether an assistant says nothing but a text."""
    return bool(message.text.strip()) and message == Message.assistant(message.text)
