"""The stand-in as a summariser: the digest of the conversation, and beside it where its own job stands."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentloop.compaction.digest import NAMED, digest
from agentloop.context import Entry, TokenCounter, neutral, summary_in, unlabelled
from agentloop.messages import Message
from agentloop.offline.job import job_of
from agentloop.offline.notes import FOCUS
from agentloop.offline.retelling import beside_the_job
from agentloop.offline.view import is_record
from agentloop.prompts import SUMMARY_FOCUS, summary_message

DIGEST_SHARE = 0.3
"""The digest has at least this share of the record, as far as it can fill it but for its index."""

FOCUS_SHARE = 0.25
"""What speaks of the focus takes at most this share."""

SHORTER = 0.6
"""A record that is asked for again takes at most this share of what it may."""

_CONVERSATION = re.compile(r"<conversation>(.*)</conversation>(.*)", re.DOTALL)
_FOCUS = re.compile(re.escape(SUMMARY_FOCUS).replace(r"\{focus\}", r"(.+)"))
_FACT = re.compile(
    r"\b(?:remember\b|(?:my|our) [\w' -]{1,40}? (?:is|are|was)\b|i prefer\b|i am called\b)", re.IGNORECASE
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+| … ")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What a question for a record holds: the conversation, what an earlier record says, and the wishes."""

    said: Sequence[Message]
    earlier: str
    focus: str
    again: bool


def record_of(question: str, *, most_tokens: int, counter: TokenCounter) -> str:
    """The record of the conversation that the question holds, in at most about `most_tokens`.

    It is the digest of what was said, with what speaks of the focus and with the state of the job before it.
    Of an earlier record the job is said again, and the digest takes in the rest: records do not nest.
    """
    asked = _read(question)
    most = int(most_tokens * (SHORTER if asked.again else 1))
    job, said = job_of(asked.earlier, asked.said)
    focused = _focused(asked, int(most * FOCUS_SHARE), counter)
    entries = _entries(said, beside_the_job(asked.earlier, job.notes))
    left = most - counter(focused)
    least = digest(entries, max_tokens=max(1, int(left * DIGEST_SHARE)), counter=counter)
    least_tokens = counter(least.partition(NAMED)[0])
    own = job.text(most_tokens=left - least_tokens - 4, counter=counter, again=asked.again)
    body = digest(entries, max_tokens=max(1, left - counter(own) - 4), counter=counter)
    return "\n\n".join(part for part in (own, focused, body) if part) or "Nothing was asked yet."


def facts_of(question: str) -> list[str]:
    """The sentences of the user, and of earlier records, that ask to be remembered, each once."""
    asked = _read(question)
    texts = [asked.earlier, *(message.text for message in asked.said if message.role == "user")]
    sentences = (sentence.strip(" -") for text in texts for sentence in _SENTENCES.split(text))
    return list(dict.fromkeys(each for each in sentences if _FACT.search(each) and not each.endswith("?")))


def _read(question: str) -> _Question:
    found = _CONVERSATION.search(question)
    conversation, instruction = found.groups() if found else (question, "")
    messages = unlabelled(conversation.strip())
    records = [summary_in(message.text) for message in messages if is_record(message)]
    focus = _FOCUS.search(instruction)
    return _Question(
        said=[message for message in messages if not is_record(message)],
        earlier="\n\n".join(records),
        focus=focus[1] if focus else "",
        again="shorter" in instruction,
    )


def _entries(said: Iterable[Message], rest: str) -> list[Entry]:
    entries = [
        Entry(seq=seq, at=seq, message=message, original=message, tokens=0)
        for seq, message in enumerate(said, 1)
    ]
    if not rest:
        return entries
    summary = Message.user(summary_message(rest, None))
    return [Entry(seq=0, message=summary, original=summary, tokens=0, kind="summary"), *entries]


def _focused(asked: _Question, most_tokens: int, counter: TokenCounter) -> str:
    """The sentences that have a word of the focus, the newest that fit."""
    wanted = set(re.findall(r"\w{4,}|\d+", asked.focus.lower()))
    if not wanted:
        return ""
    texts = [asked.earlier, *(text for message in asked.said for text in _texts(message))]
    sentences = dict.fromkeys(each.strip(" -") for text in texts for each in _SENTENCES.split(text))
    kept: list[str] = []
    for each in reversed(sentences):
        if len(each) <= 400 and wanted.intersection(re.findall(r"\w+", each.lower())):
            most_tokens -= counter(each) + 3
            if most_tokens < 3:
                break
            kept.append(f"- {neutral(each)}")
    return "\n".join((FOCUS, *reversed(kept))) if kept else ""


def _texts(message: Message) -> tuple[str, ...]:
    return (message.text, *(f"{call.name}({call.arguments})" for call in message.tool_calls))
