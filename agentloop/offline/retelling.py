"""What an earlier record says beside the job, for a digest to take apart and merge with what is new."""

from collections.abc import Collection, Iterator

from agentloop.offline.notes import FOCUS, READ, TO_READ, dashed, notes_in, sections


def beside_the_job(record: str, notes: Collection[str]) -> str:
    """The record without the stand-in's own sections, and without the notes of these paths."""
    return "\n\n".join(part for part in _others(record, notes) if part)


def _others(record: str, notes: Collection[str]) -> Iterator[str]:
    for title, body in sections(record):
        if title not in (READ, TO_READ, FOCUS):
            lines = [line for line in body.strip("\n").split("\n") if not _is_note_of(line, notes)]
            text = "\n".join(lines).rstrip()
            yield f"{title}\n{text}" if title and text else text


def _is_note_of(line: str, notes: Collection[str]) -> bool:
    """Whether a line is a note of one of these paths, with or without its dash."""
    return any(path in notes for path in notes_in(dashed(line.removeprefix("  "))))
