"""Records of earlier compactions that come back as messages of a plain list, known again for what they are.

A list that was compacted holds a summary message, a question with its summary as the answer, or a note. Where
such a list becomes a log, these become what stands instead of something, and no turn of a user's.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import zip_longest

from agentloop.context import ACKNOWLEDGED, TOLD_TO_GO_ON
from agentloop.events import Compacted, Event, MessageAdded, Noted
from agentloop.messages import Message
from agentloop.prompts import COMPRESSED, NOTE, SHADOW, question_message, summary_message

Count = Callable[[Message], int]
"""How long a message is, in tokens."""

SOURCE = "earlier record"
"""Where the `Noted` events say they come from whose positions such records cover."""


def _exactly(text: str, /, **parts: str) -> re.Pattern[str]:
    """The pattern of a text of ours; `parts` are the patterns of what is filled in."""
    pattern = re.escape(text)
    for name, part in parts.items():
        pattern = pattern.replace(re.escape(f"{{{name}}}"), part)
    return re.compile(pattern, re.DOTALL)


_HEADER = {"transcript": r"[^\]\n]{1,255}"}
_SUMMARY = _exactly(summary_message("{text}", "{transcript}"), text="(.*)", **_HEADER)
_NOTE = _exactly(question_message(NOTE, "{transcript}"), count=r"\d{1,9}", **_HEADER)
_QUESTION = _exactly(question_message("{asked}", "{transcript}"), asked="(.*)", **_HEADER)
_DELIMITER = re.compile(r"</?summary>")


def as_log(said: Sequence[Message], count: Count, *, shadows: Collection[str] = ()) -> Iterator[Event]:
    """The events of a log that begins with these messages, earlier records standing for what is gone.

    Only a user's whole message of exactly our shape is such a record; one that quotes it stays a user's. Each
    covers a position of its own, where the log holds nothing but a `Noted`. `shadows` are questions that an
    earlier record may answer, beside our own. What a request of ours held that nobody said is left out, since
    the next one holds it again. Positions are those of a new log.

    Example:
        >>> said = [Message.user(summary_message("They chose tabs.", None)), Message.user("Go on.")]
        >>> [type(event).__name__ for event in as_log(said, lambda message: len(message.text))]
        ['Noted', 'Compacted', 'MessageAdded']
    """
    asked = {SHADOW, *shadows}
    said = list(_without_acknowledgements(said))
    position, at = 1, 0
    while at < len(said):
        answer = said[at + 1] if at + 1 < len(said) else None
        record = _record(said[at], answer, position, asked, count)
        if record is None:
            yield MessageAdded(message=said[at], tokens=count(said[at]))
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
    if (found := _SUMMARY.fullmatch(text)) and not _DELIMITER.search(found[1]):
        return Compacted(covers=covers, replacement=text, at=position, tokens=count(message))
    question = _QUESTION.fullmatch(text)
    if not question or question[1] not in asked or not answer or not _answers(answer):
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


def _answers(message: Message) -> bool:
    """Whether an assistant says nothing but a text."""
    return bool(message.text.strip()) and message == Message.assistant(message.text)
