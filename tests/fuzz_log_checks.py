"""What must hold after a fuzzed conversation, by what is stored and by what the tools did."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from agentloop.codec import decode, encode
from agentloop.context import Context
from agentloop.events import Cleared, Compacted, MessageRecord, Record, Restored, holds
from agentloop.messages import Message, ToolCall
from agentloop.sessions import load
from tests.fuzz_world import Act, Story
from tests.strict_replies import MARKER
from tests.strict_rules import text_of

IDEMPOTENT = frozenset({"again"})
TOLD = re.compile(r"\bjob ([0-9a-f]{8}) ended: ")
UNTOLD = frozenset({"odd", "fails", "stalls"})


def log_problems(story: Story) -> list[str]:
    """Everything that does not hold."""
    found = [*_effects(story), *_results(story), *_transcripts(story), *_facts(story), *_told_ends(story)]
    for act in story.acts:
        checks = (*_grows(act), *_said(act), *_undone(act), *_folded(act))
        found += [f"{line} (act {act.number}, {act.kind})" for line in checks]
    return found


def _grows(act: Act) -> Iterator[str]:
    """L3: what was there stays, byte for byte, and what is there can be read back."""
    kept = act.after[: len(act.before)]
    if [encode(record.event) for record in kept] != [encode(record.event) for record in act.before]:
        yield "L3 the log was changed"
    for record in act.after[len(act.before) :]:
        text = encode(record.event)
        if encode(decode(text)) != text:
            yield f"L3 record {record.seq} cannot be read back"


def _said(act: Act) -> Iterator[str]:
    """L3: a prompt and an answer stand in the log."""
    added = _messages(act.after[len(act.before) :])
    ended_well = act.error is None and not act.cut
    prompts = [message.content for message in added if message.role == "user"]
    if act.kind == "say" and ended_well and act.prompt not in prompts:
        yield "L3 the prompt is not in the log"
    answered = ended_well and getattr(act.result, "status", "") == "answered"
    if answered and act.result.output != _messages(act.after)[-1].text:
        yield "L3 the answer is not the last message of the log"


def _undone(act: Act) -> Iterator[str]:
    """L8: undo gives back the context from before, byte for byte, with what was said since."""
    taken = {
        record.event.seq for record in act.after[len(act.before) :] if isinstance(record.event, Restored)
    }
    if act.kind not in ("undo", "compact-undo") or not taken:
        return
    first = min(taken)
    since = [record for record in act.after if record.seq > first and not isinstance(record.event, Restored)]
    if any(isinstance(record.event, Cleared | Compacted) and record.seq not in taken for record in since):
        return
    before = Context.of(act.after[: first - 1])
    wanted = [(entry.seq, entry.message) for entry in before.visible]
    wanted += [
        (record.seq, record.event.message) for record in since if isinstance(record.event, MessageRecord)
    ]
    if [(entry.seq, entry.message) for entry in Context.of(act.after).visible] != wanted:
        yield "L8 undo did not give back the context from before"


def _folded(act: Act) -> Iterator[str]:
    """L13: the context grown record by record is the one folded from scratch."""
    grown = Context()
    for record in act.after:
        grown = grown.add(record)
    scratch = Context.of(act.after)
    if list(grown.visible) != list(scratch.visible) or list(grown.said) != list(scratch.said):
        yield "L13 the context grown is not the one from scratch"
    if (grown.tokens, grown.filler, grown.rewritten_at) != (
        scratch.tokens,
        scratch.filler,
        scratch.rewritten_at,
    ):
        yield "L13 the sizes grown are not those from scratch"


def _effects(story: Story) -> Iterator[str]:
    """Each call's effect happens once; nothing runs that no stored message asks for."""
    if not story.acts:
        return
    called = _calls(story)
    cut = any(act.cut or act.error for act in story.acts)
    for number, times in story.effects.did.items():
        name = story.offered.get(number, "")
        if times > 1 and not (name in IDEMPOTENT and cut) and called[number] < times:
            yield f"L7 call {number} of {name} ran {times} times"
        if number not in called:
            yield f"call {number} of {name} ran and stands in no message of the log"


def _calls(story: Story) -> Counter[int]:
    found: Counter[int] = Counter()
    for message in _messages(story.acts[-1].after):
        found.update(number for call in message.tool_calls if (number := _number(call)) is not None)
    return found


def _number(call: ToolCall) -> int | None:
    number = (call.decoded() or {}).get("number")
    return number if isinstance(number, int) else None


def _results(story: Story) -> Iterator[str]:
    """L3, L7: what a tool returned is its call's one stored result, at least its head."""
    if not story.acts:
        return
    messages = _messages(story.acts[-1].after[story.plan.history :])
    results: dict[str, list[str]] = {}
    for message in messages:
        if message.role == "tool":
            results.setdefault(message.tool_call_id or "", []).append(message.text)
    for message in messages:
        for call in message.tool_calls:
            yield from _result(story, call, results.get(call.id, []))


def _result(story: Story, call: ToolCall, told: Sequence[str]) -> Iterator[str]:
    number = _number(call)
    if number is None or story.offered.get(number) != call.name or call.name in UNTOLD:
        return
    returned, said = story.effects.returned.get(number), told[0] if told else ""
    if len(told) > 1:
        yield f"call {number} has {len(told)} results"
    if returned is None or (said.startswith("interrupted") and any(act.cut for act in story.acts)):
        return
    head, cut, _ = said.partition("\n... [")
    if told and not (returned.startswith(head[:3]) if cut else said.startswith(returned[:3])):
        yield f"L3 call {number} of {call.name} returned {returned[:3]!r} and its result is {said[:80]!r}"


def _told_ends(story: Story) -> Iterator[str]:
    """The end of each job in the background is told once."""
    messages = _messages(story.acts[-1].after) if story.acts else []
    texts = (message.text for message in messages if message.role == "tool")
    told = Counter(job for text in texts for job in TOLD.findall(text.rpartition("[Reminder: ")[2]))
    for job, times in told.items():
        if times > 1:
            yield f"the end of job {job} is told {times} times"


def _transcripts(story: Story) -> Iterator[str]:
    """L5: the transcript that a compaction names holds all that was said before it."""
    if not story.acts:
        return
    records = story.acts[-1].after
    for record in records:
        if isinstance(record.event, Compacted) and record.event.transcript:
            wanted = [message.to_openai() for message in _messages(records[: record.seq - 1])]
            there = [
                message.to_openai() for message in load(story.folder / "t" / record.event.transcript).messages
            ]
            if there[: len(wanted)] != wanted and wanted[: len(there)] != there:
                yield f"L5 the transcript of record {record.seq} is not what was said"
            elif len(there) < len(wanted) - 1:
                yield f"L5 the transcript of record {record.seq} lacks {len(wanted) - len(there)} messages"


def _facts(story: Story) -> Iterator[str]:
    """L4: what a summary stands for was read by a summariser, or the result says that it was not."""
    read = "\n".join(
        text_of(message) for seen in story.seen if seen.for_summary for message in seen.body["messages"]
    )
    facts_read = set(MARKER.findall(read))
    context = Context()
    for record in story.acts[-1].after if story.acts else ():
        if isinstance(event := record.event, Compacted) and event.made == "summary":
            yield from _unread(story, context, record.seq, event, facts_read)
        context = context.add(record)


def _unread(
    story: Story, context: Context, seq: int, event: Compacted, facts_read: set[str]
) -> Iterator[str]:
    result = story.compacted.get(event.id)
    if "REPLACED" in event.replacement + event.answer:
        return
    for entry in context.visible:
        if entry.kind != "said" or not holds(event.covers, entry.seq):
            continue
        lost = set(MARKER.findall(entry.original.text)) - facts_read
        if lost and result is not None and entry.seq not in result.unread:
            role = entry.original.role
            yield f"L4 record {seq} stands for position {entry.seq} ({role}), and nobody read {sorted(lost)}"


def _messages(records: Sequence[Record]) -> list[Message]:
    return [record.event.message for record in records if isinstance(record.event, MessageRecord)]
