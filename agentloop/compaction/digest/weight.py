"""What was said, weighed: which sentences matter most, and how those kept are written.

`Look` is what a sentence says of itself. `weigh` holds those of one side against each other, `by_weight` puts
them in the order in which they are wanted, `as_lines` writes those kept.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeAlias

from agentloop.compaction.digest.language import binds, changes, decides, is_keyed, is_narration, is_pleasant
from agentloop.compaction.digest.sentences import Sentence, content_words, is_hard, is_proper, words

MOST_OF_NOTHING = 2
"""An assistant's sentence of so few words that mean something only says that it goes on; a user's question
too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a sentence looks like by itself.

    `content` are its words that mean something, `around` those without what is exact; `hard` says that one of
    them must be exact, `cue` how much it seems to bind or decide. What a question led to says more than it.
    """

    content: tuple[str, ...]
    around: tuple[str, ...]
    hard: bool
    cue: float
    says_nothing: bool
    asks: bool


def look_at(text: str, *, by_user: bool) -> Look:
    """How a sentence of a user's, or of an assistant's, looks."""
    found = words(text)
    content = tuple(dict.fromkeys(content_words(found)))
    hard = any(is_hard(word) for word in found)
    exact = hard or (by_user and any(map(is_proper, found[1:])))
    asks = text.endswith(("?", "？"))
    if not by_user and (is_narration(text) or text.rstrip("*_ ").endswith((":", "："))):
        says_nothing = True
    elif is_pleasant(text):
        says_nothing = not exact
    else:
        says_nothing = (asks or not by_user) and not exact and len(content) <= MOST_OF_NOTHING
    return Look(
        content=content,
        around=tuple(content_words(word for word in found if not is_hard(word))) if hard else content,
        hard=exact,
        cue=_cue_of_user(text) if by_user else _cue_of_assistant(text),
        says_nothing=says_nothing,
        asks=asks,
    )


def _cue_of_user(text: str) -> float:
    return 2.0 * binds(text) + is_keyed(text) + changes(text)


def _cue_of_assistant(text: str) -> float:
    return 2.0 * decides(text) + 1.5 * is_keyed(text)


@dataclass(slots=True, kw_only=True, eq=False)
class Spoken:
    """What is left of one sentence; `at` and `number` are its place, `weight` is how much it matters.

    One that is `doubted` may no longer hold. One that is not `telling` comes last of all. One that is `alone`
    can be understood without those before it. The first and the last of a message are its edges.
    """

    at: int
    number: int
    role: str
    text: str
    sentence: Sentence
    look: Look
    doubted: bool
    weight: float = 0.0
    telling: bool = False
    alone: bool = False
    long: bool = False
    is_edge: bool = False

    @property
    def is_of_short_message(self) -> bool:
        """Whether a user said it in a few words, which are to be kept together."""
        return self.role == "user" and not self.long and not self.sentence.pasted


Said: TypeAlias = tuple[Spoken, ...]
"""Sentences that stand or fall together."""

LEAST_ALONE = 4
"""With so many words that mean something, one that is exact or a question says of what it speaks."""

EXACT = 2.5
"""So much weighs what must be exact; what weighs less is light."""

AGAIN = 4
"""So much less weighs what was said again with another number or name, or may have been."""

LEAST_CHARS_WEIGHED = 40
"""What is shorter weighs no more for its length."""


def weigh(found: Sequence[Spoken], *, task: int | None) -> None:
    """Give each sentence its weight: what binds, decides or gives a value, and what was said but once.

    One that says nothing, a nod or what is about to be done, has none. Of those that differ in nothing but
    what is exact the newest weighs most; one whose value may no longer hold weighs less than it.
    """
    uses = Counter(chain.from_iterable(one.look.content for one in found))
    newer: set[tuple[str, ...]] = set()
    for one in reversed(found):
        look = one.look
        one.telling = not one.sentence.pasted and (look.cue > 0 or look.hard or one.role == "user")
        one.alone = (look.hard or look.asks) and len(look.content) >= LEAST_ALONE
        if look.cue > 0 or not look.says_nothing:
            place = one.is_edge + _of_task(one, task)
            said_once = sum([1 / uses[word] for word in look.content]) / max(1, len(look.content))
            one.weight = EXACT * look.hard + look.cue + place + 2 * said_once
            one.weight /= 2 if look.asks else 1
        again = one.doubted
        if look.hard and len(look.around) >= LEAST_ALONE:
            again = again or look.around in newer
            newer.add(look.around)
        one.weight /= AGAIN if again else 1


HEAD = 5


def _of_task(one: Spoken, task: int | None) -> float:
    """What the first message of all asks for stands mostly in its first sentences."""
    return 0.0 if one.at != task else 3.0 if one.number < HEAD else 1.0


def said_together(found: Sequence[Spoken], *, most_chars: float) -> list[Said]:
    """The sentences of each short message of a user together, all others one by one; none of no weight.

    Such a message is parted before each sentence that can be understood by itself: "Go on. Ann Quist owns it
    now."
    """
    said: list[Said] = [(one,) for one in found if one.weight > 0 and not one.is_of_short_message]
    together: defaultdict[int, list[Spoken]] = defaultdict(list)
    for one in found:
        if one.is_of_short_message:
            together[one.at].append(one)
    for group in together.values():
        short = sum(len(one.text) for one in group) <= most_chars
        begins = [at for at, one in enumerate(group) if at == 0 or one.alone or not short]
        parts = (tuple(group[at:end]) for at, end in pairwise([*begins, len(group)]))
        said += (part for part in parts if any(one.weight > 0 for one in part))
    return said


def by_weight(found: Iterable[Said]) -> tuple[list[Said], list[Said], list[Said]]:
    """The heaviest for their length first, of equal ones the newest.

    Those that tell and weigh as much as what is exact, the other ones that tell, and what is left.
    """
    heavy: list[Said] = []
    light: list[Said] = []
    rest: list[Said] = []
    for said in sorted(found, key=lambda said: (-_density(said), -said[0].at, said[0].number)):
        most = max((one.weight for one in said if one.telling), default=-1)
        (rest if most < 0 else light if most < EXACT else heavy).append(said)
    return heavy, light, rest


def _density(said: Said) -> float:
    return sum([one.weight for one in said]) / (LEAST_CHARS_WEIGHED + sum([len(one.text) for one in said]))


GAP = " … "
"""Stands in a line for sentences of the same message that were left out."""


def as_lines(kept: Iterable[Spoken]) -> list[str]:
    """The sentences in the order in which they were said, one item a message."""
    lines: list[str] = []
    before: Spoken | None = None
    for one in sorted(kept, key=lambda one: (one.at, one.number)):
        text = f"> {one.text}" if one.sentence.quoted else one.text
        if before is None or before.at != one.at:
            lines.append(f"- {text}")
        else:
            lines[-1] += _between(before, one) + text
        before = one
    return lines


def _between(before: Spoken, one: Spoken) -> str:
    """What parts two sentences of one message; a quote has lines of its own."""
    joined = one.sentence.before == " " and one.sentence.quoted is before.sentence.quoted
    if one.number == before.number + 1:
        return " " if joined else "\n"
    return f"{GAP.rstrip()}\n" if one.sentence.quoted or before.sentence.quoted else GAP
