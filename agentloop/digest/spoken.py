"""What users and assistants said, sentence by sentence, with how much each sentence matters."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentloop.digest.cues import binds, changes, decides, is_keyed, is_narration, is_pleasant
from agentloop.digest.earlier import Earlier
from agentloop.digest.sentences import Sentence, sentences
from agentloop.digest.stale import Stated
from agentloop.digest.words import content_words, is_hard, novelty, words
from agentloop.messages import Message

MOST_CHARS_IN_ALL = 20_000_000
"""So much of all messages together is looked at."""

LEAST_CHARS, MOST_CHARS = 2_000, 100_000
"""Of one message at least and at most so much is looked at, head and tail together."""


_CODE = re.compile(r"=|[({\[,]$|^[#>+|-]")
"""In a long message, what may be a line of code, though it looks like words."""

GAP = " … "
"""Stands in a line for sentences of the same message that were left out."""

HEAD = 5

SHORT = 6
"""A message with more sentences holds more than what its user wanted to say: a text pasted, a report."""


@dataclass(slots=True, kw_only=True, eq=False)
class Spoken:
    """One sentence of a message; `at` and `number` are its place, `weight` how much it matters."""

    at: int
    number: int
    sentence: Sentence
    stated: Stated
    weight: float = 0.0
    long: bool = False
    first: bool = False
    last: bool = False

    @property
    def text(self) -> str:
        """What is left of it once newer sentences were heard."""
        return self.stated.text


def spoken(messages: Sequence[Message], *, first: int = 0, before: Iterable[Spoken] = ()) -> list[Spoken]:
    """Every sentence of users and assistants in order, those said again later left out.

    `first` is the place of the first message, `before` what was said before it.
    """
    most = max(LEAST_CHARS, min(MOST_CHARS, MOST_CHARS_IN_ALL // max(1, len(messages))))
    found = [
        one
        for at, message in enumerate(messages, first)
        if message.role in ("user", "assistant")
        for one in _of(at, message, most)
    ]
    return _once([*before, *found])


def retold(earlier: Earlier) -> Iterator[Spoken]:
    """The sentences of an earlier record: each text a message, in places before all that was said since."""
    texts = [("user", text) for text in earlier.asked]
    texts += [("assistant", text) for text in earlier.decided]
    for at, (role, text) in enumerate(texts, -len(texts)):
        yield from _numbered(at, role, list(_with_gaps(text)))


def _with_gaps(text: str) -> Iterator[tuple[int, Sentence]]:
    """The sentences of a text with their numbers, which leave one out where sentences were left out."""
    number = 0
    for part in text.split(GAP):
        for sentence in sentences(part, most_chars=MOST_CHARS):
            yield number, sentence
            number += 1
        number += 1


def _of(at: int, message: Message, most: int) -> Iterator[Spoken]:
    return _numbered(at, message.role, list(enumerate(sentences(message.text, most_chars=most))))


def _numbered(at: int, role: str, parts: Sequence[tuple[int, Sentence]]) -> Iterator[Spoken]:
    is_long = sum(not sentence.pasted for _, sentence in parts) > SHORT
    for number, sentence in parts:
        yield Spoken(
            long=is_long,
            at=at,
            number=number,
            sentence=sentence,
            stated=Stated(
                text=sentence.text,
                role=role,
                at=at,
                firm=not sentence.pasted and not (is_long and _CODE.search(sentence.text)),
            ),
            first=number == 0,
            last=number == parts[-1][0],
        )


def _once(found: Sequence[Spoken]) -> list[Spoken]:
    """Of sentences that say the same, letter for letter, the newest; the task where it stood first."""
    newest: dict[tuple[str, str], Spoken] = {}
    for one in found:
        newest[one.stated.role, one.text.casefold()] = one
    kept = {id(one) for one in newest.values()}
    return [one for one in found if id(one) in kept]


def weigh(found: Sequence[Spoken], *, task: int | None) -> None:
    """Give each sentence its weight: what binds, decides or gives a value, and what was said but once."""
    parts = [set(content_words(words(one.text))) for one in found]
    uses = Counter(word for part in parts for word in part)
    for one in found:
        found_words = words(one.text)
        rare = novelty(found_words, uses)
        hard = any(is_hard(word) for word in found_words)
        own = _of_user(one, hard, task) if one.stated.role == "user" else _of_assistant(one, hard)
        one.weight = own + 2 * rare


def _of_user(one: Spoken, hard: bool, task: int | None) -> float:
    if one.sentence.pasted:
        return -3.0
    if is_pleasant(one.text) and not hard:
        return -4.0
    named = any(word[0].isupper() for word in one.text.split()[1:])
    told = 1.5 * hard + is_keyed(one.text) + 0.5 * named
    place = 1.0 if one.first or one.last else -1.0 if one.long else 0.0
    changed = 1.0 * changes(one.text)
    return 2.0 * binds(one.text) + told + changed + place + _of_task(one, task)


def _of_task(one: Spoken, task: int | None) -> float:
    """What the first message of all asks for stands mostly in its first sentences."""
    return 0.0 if one.at != task else 3.0 if one.number < HEAD else 1.0


def _of_assistant(one: Spoken, hard: bool) -> float:
    if one.sentence.pasted:
        return -3.0
    own = 2.0 * decides(one.text) + 0.5 * hard + 1.5 * is_keyed(one.text)
    if is_narration(one.text):
        own -= 2.0
    return own + (0.5 if one.first or one.last else 0.0)


def tells(one: Spoken) -> bool:
    """Whether an assistant's sentence says more than that it goes on."""
    if is_pleasant(one.text) or one.text.rstrip("*_ ").endswith((":", "：")):
        return False
    if decides(one.text) > 1:
        return True
    return not is_narration(one.text) and len(set(content_words(words(one.text)))) > 2


def by_weight(found: Iterable[Spoken]) -> list[Spoken]:
    """The heaviest first, those of about one weight newest first; within a message in its order."""
    return sorted(found, key=lambda one: (-round(one.weight), -one.at, one.number))


def as_lines(kept: Iterable[Spoken]) -> list[str]:
    """The sentences in the order in which they were said, one item a message."""
    lines: list[str] = []
    before: Spoken | None = None
    for one in sorted(kept, key=lambda one: (one.at, one.number)):
        if before is None or before.at != one.at:
            lines.append(f"- {one.text}")
        elif one.number == before.number + 1:
            lines[-1] += (" " if one.sentence.before == " " else "\n  ") + one.text
        else:
            lines[-1] += GAP + one.text
        before = one
    return lines
