"""Where the job stands: which files were read, what each says of itself, and which are still to be read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentloop.context import TokenCounter
from agentloop.messages import Message, ToolCall
from agentloop.offline.describe import shortened
from agentloop.offline.notes import (
    READ,
    TO_READ,
    asked_in,
    is_note,
    note_lines,
    notes_in,
    notes_in_record,
    to_read_in,
    to_read_lines,
)
from agentloop.offline.task import FileTask, file_task

_WIDTHS = (120, 80, 50, 30, 15)
_LEAST_WIDTH_WITH_LIST = 80
_OWN_TOOLS = ("list_files", "read_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The notes of the files that were read, and the paths of those that were not."""

    notes: Mapping[str, str] = field(default_factory=dict)
    to_read: tuple[str, ...] = ()

    def text(self, *, most_tokens: int, counter: TokenCounter, again: bool = False) -> str:
        """The job as sections of a record; what does not fit is told in fewer words, then the oldest goes."""
        job = self
        for width in _WIDTHS[2 if again else 0 :]:
            notes = {path: shortened(what, width) for path, what in job.notes.items()}
            job = Job(notes=notes, to_read=job.to_read if width >= _LEAST_WIDTH_WITH_LIST else ())
            if counter(job._written()) <= most_tokens:
                return job._written()
        left = list(job.notes.items())
        while left and counter(job._written()) > most_tokens:
            left = left[len(left) // 8 + 1 :]
            job = replace(job, notes=dict(left))
        return job._written()

    def _written(self) -> str:
        parts = ((READ, note_lines(self.notes)), (TO_READ, to_read_lines(list(self.to_read))))
        return "\n\n".join("\n".join((title, *lines)) for title, lines in parts if lines)


def job_of(record: str, messages: Sequence[Message]) -> tuple[Job, list[Message]]:
    """The job by an earlier record and by what was said since, and what of that is no part of the job."""
    asked = [*asked_in(record), *(message.text for message in messages if message.role == "user")]
    is_own = any(map(_is_own, messages)) or any(map(file_task, asked))
    if asked and READ not in record and not is_own:
        return Job(), list(messages)
    notes = notes_in_record(record)
    for message in messages:
        if message.role == "assistant":
            notes |= notes_in(message.text)
    task = file_task(asked[-1]) if asked else FileTask(patterns=("*",))
    listed = [*to_read_in(record), *_listed(messages)]
    pending = [path for path in dict.fromkeys(listed) if task and task.takes_in(path) and path not in notes]
    return Job(notes=notes, to_read=tuple(pending)), list(_beside(messages, task, notes))


def _is_own(message: Message) -> bool:
    return any(call.name in _OWN_TOOLS for call in message.tool_calls)


def _listed(messages: Sequence[Message]) -> Iterator[str]:
    lists = {call.id for message in messages for call in message.tool_calls if call.name == "list_files"}
    for message in messages:
        if message.role == "tool" and (message.name == "list_files" or message.tool_call_id in lists):
            yield from _whole_lines(message.text)


def _beside(
    messages: Sequence[Message], task: FileTask | None, notes: Mapping[str, str]
) -> Iterator[Message]:
    """The messages without notes, and without the calls and results that lead to them."""
    calls = [call for message in messages for call in message.tool_calls]
    own = {call.id for call in calls if call.name == "list_files" or _is_read(call, task, notes)}
    for message in messages:
        if message.role == "tool" and (message.name == "list_files" or message.tool_call_id in own):
            continue
        others = tuple(call for call in message.tool_calls if call.id not in own)
        text = _without_notes(message.text) if message.role == "assistant" else message.text
        if text.strip() or others or message.role == "tool":
            yield replace(message, content=text or None, tool_calls=others)


def _is_read(call: ToolCall, task: FileTask | None, notes: Mapping[str, str]) -> bool:
    path = (call.decoded() or {}).get("path") if call.name == "read_file" else None
    return isinstance(path, str) and (path in notes or bool(task and task.takes_in(path)))


def _without_notes(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not is_note(line))


def _whole_lines(text: str) -> list[str]:
    """The lines before a cut, or all, without remarks."""
    whole, cut, _ = text.partition("... [")
    lines = whole.strip().split("\n")
    return [line for line in (lines[:-1] if cut else lines) if line and not line.startswith("[")]
