"""The offline model's summaries: the state of its job, what speaks of the focus, and a digest of the rest."""

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentloop.compaction.digest import FILES, NAMED, digest, parse_records
from agentloop.context import Entry, TokenCounter, labelled, parse, render
from agentloop.messages import Message, ToolCall
from agentloop.prompts import SUMMARY_FOCUS, summary_message
from agentloop.providers.offline.reading import shorten
from agentloop.providers.offline.view import (
    FOCUS,
    LEFT_OUT,
    NO_PLACE,
    OWN,
    PLACES,
    READ,
    SAID,
    TO_READ,
    FileTask,
    Place,
    file_task,
    is_in_order,
    is_note,
    is_ours,
    is_record,
    listed_in,
    note_lines,
    notes_in,
    notes_in_record,
    own_places,
    path_lines,
    paths_in,
    place_lines,
    places_in,
    questions_in,
    said_in,
    sections,
    with_dashes,
)

_WIDTHS = (120, 80, 50, 30, 15)
_LEAST_WIDTH_WITH_LIST = 80
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The notes of the files that were read, and the paths of those that were not.

    `said` are files that were read whose notes there was no room for, `places` how far each list was gone
    through: where names went, too, these say that their files need not be read again.
    """

    notes: Mapping[str, str] = field(default_factory=dict)
    said: Sequence[str] = ()
    to_read: Sequence[str] = ()
    places: Mapping[str, Place] = field(default_factory=dict)

    def text(self, *, most_tokens: int, counter: TokenCounter, again: bool = False) -> str:
        """The job as sections of a record.

        What does not fit is told in fewer words; then of the oldest notes only the names are left, and then
        the oldest names go.
        """

        def is_too_long(job: Job) -> bool:
            return counter(job._as_text()) > most_tokens

        job = self
        for width in _WIDTHS[2 if again else 0 :]:
            notes = {path: shorten(what, width) for path, what in job.notes.items()}
            job = replace(job, notes=notes, to_read=job.to_read if width >= _LEAST_WIDTH_WITH_LIST else ())
            if not is_too_long(job):
                return job._as_text()
        while len(job.notes) > 1 and is_too_long(job):
            oldest = len(job.notes) // 8 + 1
            names, left = list(job.notes)[:oldest], list(job.notes.items())[oldest:]
            job = replace(job, notes=dict(left), said=(*job.said, *names))
        while job.said and is_too_long(job):
            job = replace(job, said=job.said[len(job.said) // 8 + 1 :])
        return job._as_text()

    def _as_text(self) -> str:
        parts = (
            (PLACES, place_lines(self.places)),
            (READ, note_lines(self.notes)),
            (SAID, path_lines(self.said)),
            (TO_READ, path_lines(self.to_read)),
        )
        return "\n\n".join("\n".join((title, *lines)) for title, lines in parts if lines)


def record_of(question: str, *, most_tokens: int, counter: TokenCounter) -> str:
    """The record of the conversation that the question holds, in at most about `most_tokens`.

    It is the digest of what was said, with what speaks of the focus and with the state of the job before it.
    Of an earlier record the job is said again, and the digest takes in the rest: records do not nest.
    """
    asked = _read(question)
    most = int(most_tokens * (SHORTER if asked.again else 1))
    job, said = job_of(asked.earlier, asked.said)
    focused = _focus_section(asked, int(most * FOCUS_SHARE), counter)
    entries = list(_entries(said, asked.prose, rest_of_record(asked.earlier, job)))
    left = most - counter(focused)
    least = digest(entries, max_tokens=max(1, int(left * DIGEST_SHARE)), counter=counter)
    least_tokens = counter(least.partition(NAMED)[0])
    own = job.text(most_tokens=left - least_tokens - 4, counter=counter, again=asked.again)
    body = digest(entries, max_tokens=max(1, left - counter(own) - 4), counter=counter)
    return "\n\n".join(part for part in (own, focused, body) if part) or "Nothing was asked yet."


def with_conversation(question: str, messages: Sequence[Message]) -> str:
    """The question with the conversation in it, where it was asked behind the messages themselves."""
    if _CONVERSATION.match(question):
        return question
    entries = [
        Entry(seq=at, message=each, tokens=0, original=each, kind="summary" if is_record(each) else "said")
        for at, each in enumerate(messages, 1)
        if each.role != "system"
    ]
    material = [part for parts in render(entries, max_result_chars=sys.maxsize) for part in parts]
    return f"{labelled(material, beside=question)}\n\n{question}"


def facts_of(question: str) -> list[str]:
    """The sentences of the user, and of earlier records, that ask to be remembered, each once."""
    asked = _read(question)
    return facts_in(asked.earlier, *(message.text for message in asked.said if message.role == "user"))


def facts_in(*texts: str) -> list[str]:
    """The sentences of the texts that ask to be remembered, each once."""
    sentences = (sentence.strip(" -") for text in texts for sentence in _SENTENCES.split(text))
    return list(dict.fromkeys(each for each in sentences if _FACT.search(each) and not each.endswith("?")))


def _read(question: str) -> _Question:
    found = _CONVERSATION.match(question)
    records, said = parse(found[2], found[1]) if found else ([], [Message.user(question)])
    instruction = found[3] if found else ""
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


def job_of(record: str, messages: Sequence[Message]) -> tuple[Job, list[Message]]:
    """The job by an earlier record and by what was said since, and what of that is no part of the job."""
    asked = [*questions_in(record), *(message.text for message in messages if message.role == "user")]
    is_own = any(map(_is_own, messages)) or any(map(file_task, asked))
    if asked and not is_own and not any(title in record for title in (PLACES, READ, SAID)):
        return Job(), list(messages)
    notes = notes_in_record(record)
    for message in messages:
        if message.role == "assistant":
            notes |= notes_in(message.text)
    task = file_task(asked[-1]) if asked else FileTask(patterns=("*",))
    said = [path for path in said_in(record) if task and task.takes_in(path) and path not in notes]
    to_read, lists = paths_in(record, TO_READ), _lists(messages)
    listed = dict.fromkeys((*to_read, *(path for paths in lists.values() for path in paths)))
    read = {*notes, *said}
    job = Job(
        notes=notes,
        said=said,
        to_read=[path for path in listed if task and task.takes_in(path) and path not in read],
        places=_gone_through(record, to_read, lists, read),
    )
    return job, list(_messages_beside(messages, task, read))


def _is_own(message: Message) -> bool:
    return any(call.name in _OWN_TOOLS for call in message.tool_calls)


def _lists(messages: Sequence[Message]) -> dict[str, list[str]]:
    """The paths that were listed, by the pattern asked for; empty where that is not known."""
    lists: dict[str, list[str]] = {}
    calls = {call.id: call for message in messages for call in message.tool_calls}
    for message in messages:
        call = calls.get(message.tool_call_id or "")
        if message.role == "tool" and "list_files" in (message.name, call and call.name):
            pattern = ((call and call.decoded()) or {}).get("pattern")
            lists.setdefault(pattern if isinstance(pattern, str) else "", []).extend(listed_in(message.text))
    return lists


def _gone_through(
    record: str, to_read: Sequence[str], lists: Mapping[str, Sequence[str]], read: Collection[str]
) -> dict[str, Place]:
    """How far each list is gone through now: from where it was, as long as the next file is read."""
    places: dict[str, Place] = {}
    patterns = dict.fromkeys(filter(None, (*own_places(record), *lists)))
    before = places_in([record], patterns)
    for pattern in patterns:
        place, listed = before.get(pattern, NO_PLACE), lists.get(pattern, ())
        if not is_in_order(listed):
            continue
        left = filter(FileTask(patterns=(pattern,)).takes_in, to_read)
        for path in sorted({*listed, *left}):
            if path > place.last:
                if path not in read:
                    break
                place = Place(count=place.count + 1, last=path)
        places |= {pattern: place} if place.count else {}
    return places


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
        text = _without_notes(message.text) if message.role == "assistant" else message.text
        if text.strip() or others or message.role == "tool":
            yield replace(message, content=text or None, tool_calls=others)


def _is_read(call: ToolCall, task: FileTask | None, read: Collection[str]) -> bool:
    path = (call.decoded() or {}).get("path") if call.name == "read_file" else None
    return isinstance(path, str) and (path in read or bool(task and task.takes_in(path)))


def _without_notes(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not is_note(line))


def rest_of_record(record: str, job: Job) -> str:
    """The record without what the job says of it: the stand-in's own sections, notes, and files read."""
    return "\n\n".join(part for part in _other_sections(record, job) if part)


def _other_sections(record: str, job: Job) -> Iterator[str]:
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
        files = parse_records([("digest", f"{title}\n{line}")]).files
        return any(path in job.said or path in job.notes for path, _ in files)
    return any(path in job.notes for path in notes_in(with_dashes(line.removeprefix("  "))))
