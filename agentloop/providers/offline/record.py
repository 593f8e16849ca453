"""The offline model's summaries: the state of its job, what speaks of the focus, and a digest of the rest."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentloop.compaction.digest import FILES, NAMED, digest, parse_records
from agentloop.context import Entry, TokenCounter, parse, prose_of
from agentloop.messages import Message, ToolCall
from agentloop.prompts import SUMMARY_FOCUS, summary_message
from agentloop.providers.offline.job import Job, is_note, job_in, notes_in, with_dashes
from agentloop.providers.offline.view import (
    ANY_FILE,
    FOCUS,
    LEFT_OUT,
    OWN,
    PLACES,
    READ,
    FileTask,
    View,
    file_task,
    is_ours,
    questions_in,
    sections,
)

_OWN_TOOLS = ("list_files", "read_file")
DIGEST_SHARE = 0.3
"""The digest has at least this share of the record, as far as it can fill it but for its index."""
FOCUS_SHARE = 0.25
"""What speaks of the focus takes at most this share."""
SHORTER = 0.6
"""A record that is asked for again takes at most this share of what it may."""
_CONVERSATION = re.compile(r"<conversation (\d{9})>\n(.*)\n</conversation \1>(.*)", re.DOTALL)
_FOCUS = re.compile(re.escape(SUMMARY_FOCUS).replace(r"\{focus\}", r"(.+)"))
_FACT = re.compile(
    r"\b(?:remember\b|(?:my|our) [\w' -]{1,40}? (?:is|are|was)\b|i prefer\b|i am called\b)", re.IGNORECASE
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+| … ")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What a question for a record holds: the conversation, what earlier records say, and the wishes.

    `earlier` is what the stand-in or a digest wrote, `prose` what others did.
    """

    said: Sequence[Message]
    earlier: str
    prose: str
    focus: str
    again: bool


def summary_of(view: View, *, most_tokens: int, counter: TokenCounter) -> str:
    """The record of the conversation that the question holds, or that it was asked behind.

    It has at most about `most_tokens`.

    It is the digest of what was said, with what speaks of the focus and with the state of the job before it.
    Of an earlier record the job is said again, and the digest takes in the rest: records do not nest.
    """
    asked = _read(view)
    most = int(most_tokens * (SHORTER if asked.again else 1))
    job, said = _job_of(asked.earlier, asked.said)
    focused = _focus_section(asked, int(most * FOCUS_SHARE), counter)
    rest = "\n\n".join(filter(None, _other_sections(asked.earlier, job)))
    entries = list(_entries(said, asked.prose, rest))
    left = most - counter(focused)
    least = digest(entries, max_tokens=max(1, int(left * DIGEST_SHARE)), counter=counter)
    least_tokens = counter(least.partition(NAMED)[0])
    own = job.text(most_tokens=left - least_tokens - 4, counter=counter, again=asked.again)
    body = digest(entries, max_tokens=max(1, left - counter(own) - 4), counter=counter)
    return "\n\n".join(part for part in (own, focused, body) if part) or "Nothing was asked yet."


def facts_of(view: View) -> list[str]:
    """The sentences of the user, and of earlier records, that ask to be remembered, each once."""
    asked = _read(view)
    return facts_in(asked.earlier, *(message.text for message in asked.said if message.role == "user"))


def facts_in(*texts: str) -> list[str]:
    """The sentences of the texts that ask to be remembered, each once."""
    sentences = (sentence.strip(" -") for text in texts for sentence in _SENTENCES.split(text))
    return list(dict.fromkeys(each for each in sentences if _FACT.search(each) and not each.endswith("?")))


def _read(view: View) -> _Question:
    instruction, records = view.asked, [prose_of(record)[0] for record in view.records]
    said = [message for message in view.before if message.role != "system"] or [Message.user(view.asked)]
    if found := _CONVERSATION.match(view.asked):
        instruction, (records, said) = found[3], parse(found[2], found[1])
    focus = _FOCUS.search(instruction)
    return _Question(
        said=said,
        earlier="\n\n".join(record for record in records if is_ours(record)),
        prose="\n\n".join(record for record in records if not is_ours(record)),
        focus=focus[1] if focus else "",
        again="shorter" in instruction,
    )


def _focus_section(asked: _Question, most_tokens: int, counter: TokenCounter) -> str:
    """The sentences that have a word of the focus, the newest that fit."""
    wanted = set(re.findall(r"\w{4,}|\d+", asked.focus.lower()))
    if not wanted:
        return ""
    texts = [asked.prose, asked.earlier, *(text for message in asked.said for text in _texts(message))]
    sentences = dict.fromkeys(each.strip(" -") for text in texts for each in _SENTENCES.split(text))
    kept: list[str] = []
    for each in reversed(sentences):
        if len(each) <= 400 and wanted.intersection(re.findall(r"\w+", each.lower())):
            most_tokens -= counter(each) + 3
            if most_tokens < 3:
                break
            kept.append(f"- {' '.join(each.split())}")
    return "\n".join((FOCUS, *reversed(kept))) if kept else ""


def _texts(message: Message) -> tuple[str, ...]:
    return (message.text, *(f"{call.name}({call.arguments})" for call in message.tool_calls))


def _entries(said: Iterable[Message], prose: str, rest: str) -> Iterator[Entry]:
    for made, text in (("summary", prose), ("digest", rest)):
        if text:
            summary = Message.user(summary_message(text, None, made=made))
            yield Entry(seq=0, message=summary, original=summary, tokens=0, kind="summary")
    for seq, message in enumerate(said, 1):
        yield Entry(seq=seq, at=seq, message=message, original=message, tokens=0)


def _job_of(record: str, messages: Sequence[Message]) -> tuple[Job, list[Message]]:
    """The job by an earlier record and by what was said since, and what of that is no part of the job."""
    asked = [*questions_in(record), *(message.text for message in messages if message.role == "user")]
    own_calls = any(call.name in _OWN_TOOLS for message in messages for call in message.tool_calls)
    is_own = own_calls or any(map(file_task, asked)) or any(title in record for title in (PLACES, READ))
    if asked and not is_own:
        return Job(), list(messages)
    task = file_task(asked[-1]) if asked else ANY_FILE
    job = job_in([record], messages, task)
    return job, list(_messages_beside(messages, task, job.notes))


def _messages_beside(
    messages: Sequence[Message], task: FileTask | None, read: Collection[str]
) -> Iterator[Message]:
    """The messages without notes, and without the calls and results that lead to them."""
    calls = [call for message in messages for call in message.tool_calls]
    own = {call.id for call in calls if call.name == "list_files" or _is_read(call, task, read)}
    for message in messages:
        if message.role == "tool" and (message.name == "list_files" or message.tool_call_id in own):
            continue
        others = tuple(call for call in message.tool_calls if call.id not in own)
        is_said = message.role == "assistant"
        text = "\n".join(line for line in message.text.split("\n") if not (is_said and is_note(line)))
        if text.strip() or others or message.role == "tool":
            yield replace(message, content=text or None, tool_calls=others)


def _is_read(call: ToolCall, task: FileTask | None, read: Collection[str]) -> bool:
    path = (call.decoded() or {}).get("path") if call.name == "read_file" else None
    return isinstance(path, str) and (path in read or bool(task and task.takes_in(path)))


def _other_sections(record: str, job: Job) -> Iterator[str]:
    """The sections of a record without what the job says: the stand-in's own, notes, and files read."""
    is_own = False
    for title, body in sections(record):
        is_own = title in OWN or (is_own and title == LEFT_OUT)
        if not is_own:
            lines = [line for line in body.strip("\n").split("\n") if not _is_told(line, title, job)]
            text = "\n".join(lines).rstrip()
            yield f"{title}\n{text}" if title and text else text


def _is_told(line: str, title: str, job: Job) -> bool:
    """Whether the job says it: a note, with or without its dash, or the files that a digest says are read."""
    if title == FILES:
        told = parse_records([("digest", f"{title}\n{line}")])
        return any(path in job.notes for path, _ in told.files) or bool(told.more_files and job.notes)
    return any(path in job.notes for path in notes_in(with_dashes(line.removeprefix("  "))))
