"""The sections of a digest, and what each may take."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from agentloop.digest.calls import Call, calls_of
from agentloop.digest.failures import failure_lines
from agentloop.digest.files import changed, grouped, last_done
from agentloop.digest.filling import Filling, Section
from agentloop.digest.outcomes import newest_of_each, outcome_line
from agentloop.digest.spoken import Spoken, as_lines, by_weight, spoken, tells, weigh
from agentloop.digest.stale import Stated, forget_superseded
from agentloop.entries import Entry
from agentloop.fitting import fitted
from agentloop.index import index_of
from agentloop.labelled import neutral, summary_in
from agentloop.tokens import TokenCounter

Sections: TypeAlias = dict[str, Section[Any]]

PROSE_SHARE = 0.45
"""The share of the budget that a model's earlier prose may take."""

FIRST_ROUND = (("asked", 0.52), ("files", 0.28), ("decided", 0.09), ("failed", 0.03), ("done", 0.03))
SECOND_ROUND = (("asked", 0.66), ("decided", 0.2), ("files", 0.3), ("failed", 0.08), ("done", 0.12))
"""What each section may take at first, in this order, and then of what others left."""

INDEX_SHARE = 0.05
"""The least that is left for the index."""

DONE_SHARE_OF_REST = 0.5

LIGHT = 0.0
"""Sentences that weigh less come last of all: greetings, and what a user pasted."""


def digest(
    covered: Sequence[Entry], *, max_tokens: int, counter: TokenCounter, kept: Sequence[Entry] = ()
) -> str:
    """What users asked for, what was decided and done, as a record of at most `max_tokens`.

    `covered` is everything that the record stands for, oldest first, as the log holds it; of an entry of
    kind "summary" the prose is taken in. The same entries give the same text, in time linear in theirs.
    Rules, goals and facts that users stated come first, then files with the last thing done to each,
    decisions of the assistant, errors, one line for each call, and an index of what must be exact.
    A newer value of the same thing takes the place of the older one, also where it stands in `kept`: what
    stays in sight beside the record. Nothing said gives "".
    """
    said = [entry for entry in covered if entry.kind == "said"]
    prose = next((entry for entry in reversed(covered) if entry.kind == "summary"), None)
    head = _prose(prose, int(max_tokens * PROSE_SHARE), counter) if prose else ""
    filling = Filling(counter=counter, left=max_tokens - (counter(head) + 2 if head else 0))
    sections, gone = _sections(said, kept)
    _fill(filling, sections)
    text = _written(head, sections)
    while filling.taken and (over := counter(text) - max_tokens) > 0:
        filling.give_back(over)
        text = _written(head, sections)
    text = _with_index(text, said, gone, max_tokens=max_tokens, counter=counter)
    return _strict(text or _newest_words(said, max_tokens, counter))


def _prose(entry: Entry, max_tokens: int, counter: TokenCounter) -> str:
    text = summary_in(entry.original.text).strip()
    return neutral(fitted(text, max_tokens=max_tokens, counter=counter)) if text else ""


def _sections(said: Sequence[Entry], kept: Sequence[Entry]) -> tuple[Sections, list[str]]:
    messages = [entry.original for entry in said]
    found = spoken(messages)
    gone = forget_superseded([*(one.stated for one in found), *_in_sight(said, kept)])
    found = [one for one in found if one.text]
    users = [one for one in found if one.stated.role == "user"]
    others = [one for one in found if one.stated.role == "assistant" and tells(one)]
    weigh(users, task=next((one.at for one in users), None))
    weigh(others, task=None)
    calls = list(calls_of(messages))
    return {
        "asked": _spoken("What users said", users),
        "decided": _spoken("What the assistant decided and said", others),
        "files": _files(calls),
        "failed": _lines("Errors met", list(failure_lines(calls))),
        "done": Section(
            title="What was done",
            wanted=newest_of_each(calls),
            text_of=outcome_line,
            written=lambda kept: [outcome_line(call) for call in sorted(kept, key=lambda call: call.at)],
        ),
    }, gone


def _in_sight(said: Sequence[Entry], kept: Sequence[Entry]) -> list[Stated]:
    """What is said in messages newer than the record, and so may replace what it holds."""
    behind = said[-1].seq if said else 0
    newer = [entry.original for entry in kept if entry.kind == "said" and entry.seq > behind]
    return [one.stated for one in spoken(newer, first=len(said))]


def _spoken(title: str, found: Sequence[Spoken]) -> Section[Spoken]:
    heavy = [one for one in found if one.weight >= LIGHT]
    light = [one for one in found if one.weight < LIGHT]
    return Section(
        title=title,
        wanted=by_weight(heavy),
        later=by_weight(light),
        text_of=lambda one: one.text,
        written=as_lines,
    )


def _lines(title: str, lines: list[str]) -> Section[str]:
    return Section(title=title, wanted=lines, text_of=str, written=list)


def _files(calls: Sequence[Call]) -> Section[tuple[str, str]]:
    newest = list(reversed(last_done(calls).items()))
    return Section(
        title="Files, by the last thing done to each",
        wanted=sorted(newest, key=lambda pair: not changed(pair[1])),
        text_of=lambda pair: pair[0],
        written=grouped,
    )


def _fill(filling: Filling, sections: Sections) -> None:
    whole = filling.left
    filling.left -= int(whole * INDEX_SHARE)
    for name, share in (*FIRST_ROUND, *SECOND_ROUND):
        filling.fill(sections[name], int(whole * share))
    for name in ("asked", "files", "failed"):
        filling.fill(sections[name], whole)
    filling.fill(sections["done"], sections["done"].used + int(filling.left * DONE_SHARE_OF_REST))
    for name in ("asked", "decided"):
        sections[name].wanted += sections[name].later
        filling.fill(sections[name], sections[name].used + filling.left // 2)


def _written(head: str, sections: Sections) -> str:
    return "\n\n".join(part for part in (head, *(neutral(str(one)) for one in sections.values())) if part)


def _newest_words(said: Sequence[Entry], max_tokens: int, counter: TokenCounter) -> str:
    """The newest thing a user said, else anybody, as far as it fits a budget too small for a section."""
    spoken_last = sorted(said, key=lambda entry: (entry.is_user, entry.seq), reverse=True)
    text = next((entry.original.text[:1_000] for entry in spoken_last if entry.original.text.strip()), "")
    while text and counter(neutral(text)) > max_tokens:
        text = text[: len(text) * 3 // 4]
    return neutral(text).strip()


def _strict(text: str) -> str:
    """The text as strict UTF-8 can hold it: halves of characters become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _with_index(
    text: str, said: Sequence[Entry], gone: Sequence[str], *, max_tokens: int, counter: TokenCounter
) -> str:
    title = "\n\nNames and numbers to keep exact:\n"
    room = max_tokens - counter(text) - counter(title)
    if room < 5:
        return text
    known = "\n".join((text, *gone))
    index = neutral(index_of(said, max_tokens=room, counter=counter, known=known)).strip()
    whole = text + title + index if text else (title + index).strip()
    return whole if index and counter(whole) <= max_tokens else text
