"""What must hold after a fuzzed conversation, by what is stored and by what the tools did."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentloop.approvals import Approve
from agentloop.codec import decode, encode
from agentloop.context import Context
from agentloop.errors import OutputError
from agentloop.events import (
    ApprovalAnswered,
    Cleared,
    Compacted,
    MessageRecord,
    Record,
    Restored,
    RunEndRecord,
    holds,
)
from agentloop.media import label_of
from agentloop.messages import Message, ToolCall
from agentloop.prompts import fault_of_answer
from agentloop.run.model_step import OUTPUT_TRIES
from agentloop.sessions import load
from tests.fuzz_application import Application, Found
from tests.fuzz_sub_agents import NAMES
from tests.fuzz_world import Act, Story
from tests.strict_replies import MARKER
from tests.strict_rules import text_of

IDEMPOTENT = frozenset({"again"})
TOLD = re.compile(r"\bjob ([0-9a-f]{8}) ended: ")
CHANGED = re.compile(r"\A\[A .*?(\]\n|\Z)")
UNTOLD = frozenset({"odd", "fails", "stalls"})


def log_problems(story: Story) -> list[str]:
    """Everything that does not hold."""
    checks = (_effects, _results, _transcripts, _facts, _told_ends, _sub_agents, _approvals)
    found = [line for check in checks for line in check(story)]
    for act in story.acts:
        lines = (*_grows(act), *_said(act, story.application.offered), *_undone(act), *_folded(act.after))
        found += [f"{line} (act {act.number}, {act.kind})" for line in lines]
    return found


def _grows(act: Act) -> Iterator[str]:
    """L3: what was there stays, byte for byte, and what is there can be read back."""
    kept = act.after[: len(act.before)]
    if [encode(record.event) for record in kept] != [encode(record.event) for record in act.before]:
        yield "L3 the log was changed"
    yield from _unreadable(act.after[len(act.before) :])


def _unreadable(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        text = encode(record.event)
        if encode(decode(text)) != text:
            yield f"L3 record {record.seq} cannot be read back"


def _said(act: Act, offered: Sequence[Found]) -> Iterator[str]:
    """L3: a prompt and an answer stand in the log; one of a type is one that the model gave."""
    added = _messages(act.after[len(act.before) :])
    ended_well = act.error is None and not act.cut
    begun = [getattr(record.event, "prompt", None) for record in act.after[len(act.before) :]]
    said = [message for message in (*added, *begun) if message is not None and message.role == "user"]
    prompts = [said_in(message.to_openai()) for message in said]
    if act.kind == "say" and ended_well and act.prompt not in prompts:
        yield "L3 the prompt is not in the log"
    answered = ended_well and getattr(act.result, "status", "") == "answered"
    if answered and isinstance(act.result.output, Found):
        if act.result.output not in offered:
            yield f"the answer is {act.result.output}, which the model did not give"
    elif answered and act.result.output != _messages(act.after)[-1].text:
        yield "L3 the answer is not the last message of the log"
    refused = [message for message in added if fault_of_answer(message.text) is not None]
    if isinstance(act.error, OutputError) and len(refused) < OUTPUT_TRIES:
        yield f"the run failed after {len(refused)} answers that were not of the type"


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


def _folded(records: Sequence[Record]) -> Iterator[str]:
    """L13: the context grown record by record is the one folded from scratch."""
    grown = Context()
    for record in records:
        grown = grown.add(record)
    scratch = Context.of(records)
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
    called = _calls(_log(story))
    cut = any(act.cut or act.error for act in story.acts)
    for number, times in story.effects.did.items():
        name = story.offered.get(number, "")
        if times > 1 and not (name in IDEMPOTENT and cut) and called[number] < times:
            yield f"L7 call {number} of {name} ran {times} times"
        if number not in called:
            yield f"call {number} of {name} ran and stands in no message of the log"


def _calls(records: Sequence[Record]) -> Counter[int]:
    """How many calls have each number."""
    found: Counter[int] = Counter()
    for message in _messages(records):
        found.update(number for call in message.tool_calls if (number := _number(call)) is not None)
    return found


def _number(call: ToolCall) -> int | None:
    number = (call.decoded() or {}).get("number")
    return number if isinstance(number, int) else None


def _results(story: Story) -> Iterator[str]:
    """L3, L7: what a tool returned is its call's one stored result, at least its head."""
    messages = _messages(_log(story)[story.plan.history :])
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
    head = CHANGED.sub("", head)
    if told and not (returned.startswith(head[:3]) if cut else head.startswith(returned[:3])):
        yield f"L3 call {number} of {call.name} returned {returned[:3]!r} and its result is {said[:80]!r}"


def _told_ends(story: Story) -> Iterator[str]:
    """The end of each job in the background is told once."""
    messages = _messages(_log(story))
    texts = (message.text for message in messages if message.role == "tool")
    told = Counter(job for text in texts for job in TOLD.findall(text.rpartition("[Reminder: ")[2]))
    for job, times in told.items():
        if times > 1:
            yield f"the end of job {job} is told {times} times"


def _transcripts(story: Story) -> Iterator[str]:
    """L5: the transcript that a compaction names holds all that was said before it."""
    records = _log(story)
    for record in records:
        if isinstance(record.event, Compacted) and record.event.transcript:
            wanted = [_shown(message) for message in _messages(records[: record.seq - 1])]
            there = [
                _shown(message) for message in load(story.folder / "t" / record.event.transcript).messages
            ]
            if there[: len(wanted)] != wanted and wanted[: len(there)] != there:
                yield f"L5 the transcript of record {record.seq} is not what was said"
            elif len(there) < len(wanted) - 1:
                yield f"L5 the transcript of record {record.seq} lacks {len(wanted) - len(there)} messages"


def _shown(message: Message) -> Any:
    """The message, with the name and size of each image in place of it: it is kept beside the log."""
    said = message.to_openai()
    if isinstance(said.get("content"), list):
        said["content"] = [label_of(part) or part for part in said["content"]]
    return said


def said_in(message: Mapping[str, Any]) -> Any:
    """What is said in a message: its content, or the first of its parts where images follow."""
    content = message["content"]
    return content[0].get("text") if isinstance(content, list) and content else content


def _facts(story: Story) -> Iterator[str]:
    """L4: what a summary stands for was read by a summariser, or the result says that it was not."""
    read = "\n".join(
        text_of(message) for seen in story.seen if seen.for_summary for message in seen.body["messages"]
    )
    facts_read = set(MARKER.findall(read))
    context = Context()
    for record in _log(story):
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


def _sub_agents(story: Story) -> Iterator[str]:
    """L1, L3, L7 and L13 of each log of a sub-agent, and that its answer is the result of its call."""
    if story.subs is None:
        return
    yield from (f"L1 a sub-agent's request is not valid: {error}" for error in story.subs.failures)
    called = set().union(*map(_calls, story.branches.values()))
    for number, times in story.subs.did.items():
        if times > 1:
            yield f"L7 call {number} of a sub-agent ran {times} times"
        if times and number not in called:
            yield f"call {number} of a sub-agent ran and stands in no message of its log"
    for name, records in story.branches.items():
        checks = (*_unreadable(records), *_folded(records), *_asked_on(records))
        yield from (f"{line} ({name})" for line in checks)
    yield from _answers(story.branches, _messages(_log(story)))


def _asked_on(records: Sequence[Record]) -> Iterator[str]:
    results = Counter(each.tool_call_id for each in _messages(records) if each.role == "tool")
    yield from (f"call {call_id} has {count} results" for call_id, count in results.items() if count > 1)
    ends = [each for each in records if isinstance(each.event, RunEndRecord)]
    answered = next(
        (each.seq for each in ends if getattr(each.event, "status", "") == "answered"), len(records)
    )
    if any(message.role == "assistant" for message in _messages(records[answered:])):
        yield "L7 it was asked again once it had answered"


def _answers(branches: Mapping[str, Sequence[Record]], main: Sequence[Message]) -> Iterator[str]:
    results = {message.tool_call_id: message.text for message in main if message.role == "tool"}
    ended: dict[str, str] = {}
    for records in branches.values():
        ends = [record.event for record in records if isinstance(record.event, RunEndRecord)]
        if ends and ends[-1].status == "answered":
            said = _messages(records)
            ended[said[0].text] = said[-1].text
    for call in (call for message in main for call in message.tool_calls if call.name in NAMES):
        answer = ended.get(str((call.decoded() or {}).get("task")))
        told = results.get(call.id)
        if answer is None or told is None or told.startswith(("interrupted", "stopped", "failed")):
            continue
        if not told.startswith(answer.strip()[:8]):
            yield f"a sub-agent answered {answer[:40]!r} and the result of its call is {told[:80]!r}"


def _approvals(story: Story) -> Iterator[str]:
    """L24: what ran had its yes with these arguments, and nothing runs that was denied."""
    yield from _unasked(story, [_log(story)], story.offered, story.effects.ran)
    if story.subs:
        yield from _unasked(story, story.branches.values(), story.subs.offered, story.subs.ran)


def _unasked(
    story: Story,
    logs: Iterable[Sequence[Record]],
    offered: Mapping[int, str],
    ran: Iterable[tuple[int, int]],
) -> Iterator[str]:
    first: dict[int | None, ApprovalAnswered] = {}
    for log in logs:
        asked = {call.id: _number(call) for message in _messages(log) for call in message.tool_calls}
        for record in log:
            if isinstance(event := record.event, ApprovalAnswered):
                number = asked.get(event.call_id)
                if number in first:
                    yield f"L24 call {number} was answered twice"
                first[number] = event
    for number, words in ran:
        name = offered.get(number, "")
        for line in _without_yes(story.application, name, number, words, first.get(number)):
            yield f"L24 call {number} of {name} ran {line}"


def _without_yes(
    application: Application, name: str, number: int, words: int, answered: ApprovalAnswered | None
) -> Iterator[str]:
    rules = application.wants.rules
    verdict = rules.verdict(name, {}) if rules else None
    if verdict == "deny":
        yield "and the rules deny it"
    if answered is None:
        needs = name in ("shred", "_bury") or (name == "maybe" and number % 3 != 1)
        if verdict == "ask" or (needs and verdict != "allow"):
            yield "without an answer"
        return
    if answered.verdict != "approved":
        yield f"and was {answered.verdict}"
    elif json.loads(answered.arguments)["words"] != words:
        yield f"with {words} words, and the yes was to {answered.arguments}"
    replies = application.said.get(number, [])
    if not any(isinstance(reply, Approve) and _words(reply, words) == words for reply in replies):
        yield f"with {words} words, and a person said {replies}"


def _words(reply: Approve, words: int) -> Any:
    return words if reply.arguments is None else reply.arguments["words"]


def _log(story: Story) -> Sequence[Record]:
    """The log in the end."""
    return story.acts[-1].after if story.acts else ()


def _messages(records: Sequence[Record]) -> list[Message]:
    return [record.event.message for record in records if isinstance(record.event, MessageRecord)]
