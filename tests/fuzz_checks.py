"""What must hold after a fuzzed conversation, by what the server received and by what was shown."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

from agentloop._plumbing.strict_json import cleaned
from agentloop.context import count_request, counter_for
from agentloop.errors import AgentLoopError, StoreError, UsageError
from agentloop.messages import Message
from agentloop.models import ModelRequest
from agentloop.prompts import MEDIA_NOT_TAKEN, MEDIA_OF_RESULTS
from agentloop.stream import (
    CompactionEnded,
    CompactionStarted,
    MessageAdded,
    Retrying,
    RunEnded,
    RunStarted,
    StreamEvent,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from tests.fuzz_application import has_images
from tests.fuzz_brain import Seen
from tests.fuzz_log_checks import log_problems, said_in
from tests.fuzz_world import Act, Story
from tests.strict_bodies import Body
from tests.strict_replies import Fault, Reply
from tests.strict_rules import output_limit

SMALLER_TRIES = 2
ENDS = frozenset(
    {"answered", "limit", "failed", "try_later", "too_large", "interrupted", "usage", "needs_approval"}
)


def problems(story: Story) -> list[str]:
    """Everything that does not hold, each with its kind first."""
    found = [
        *_strict(story),
        *_once(story),
        *_overflows(story),
        *_windows(story),
        *_refusals(story),
        *_openings(story),
        *_prefixes(story),
    ]
    for act in story.acts:
        found += [
            f"{line} (act {act.number}, {act.kind})"
            for line in (*_ended(act), *_waits(act), *_pairs(act), *_joined(act))
        ]
    found += [f"L16 a task is left: {task}" for task in story.tasks_left]
    found += [f"the server failed: {error!r}" for error in story.failures]
    return [*found, *log_problems(story)]


def _strict(story: Story) -> Iterator[str]:
    for at, seen in enumerate(story.seen):
        for line in seen.violations:
            if not line.startswith("V10"):
                purpose = "summary" if seen.for_summary else "agent"
                yield f"L1 request {at} ({purpose}) breaks {line}"


def _once(story: Story) -> Iterator[str]:
    """L17: a 4xx other than 408, 409 and 429 is sent once; so is what is to come back much later."""
    for at, seen in enumerate(story.seen):
        if not _is_final(seen):
            continue
        later = story.seen[at + 1 : at + 2] if seen.for_summary else story.seen[at + 1 :]
        if any(other.act == seen.act and other.raw == seen.raw for other in later):
            yield f"L17 request {at} was refused for good and sent again as it was: {seen.reply!r:.120}"


def _is_final(seen: Seen) -> bool:
    if not isinstance(seen.reply, Fault):
        return False
    status = seen.reply.status
    waits = float(seen.reply.headers.get("retry-after", 0)) > 60
    return waits or (400 <= status < 500 and status not in (408, 409, 429))


def _overflows(story: Story) -> Iterator[str]:
    """L9, L17: a request that is too long leads to at most two smaller ones."""
    silent = story.plan.overflow == "bare-500"
    most = (1 + SMALLER_TRIES) * (story.plan.attempts if silent else 1)
    for purpose in ("agent", "summary"):
        row, act = 0, -1
        for at, seen in enumerate(story.seen):
            if seen.for_summary == (purpose == "summary"):
                row = row + 1 if seen.too_long and seen.act == act else int(seen.too_long)
                act = seen.act
                if row > most:
                    yield f"L17 request {at} ({purpose}) is the {row}th in a row that is too long"


def _windows(story: Story) -> Iterator[str]:
    """L9: until the server reports, no request is larger than a known window by our own count."""
    plan, answered = story.plan, False
    window = plan.told or (plan.window if plan.listed else None)
    for at, seen in enumerate(story.seen):
        if seen.body and window is not None and seen.path.endswith("completions"):
            tokens = _own_count(seen)
            if tokens > window and (not answered or plan.usage in ("absent", "zeros")):
                yield f"L9 request {at} has {tokens} tokens by our own count, and the window is {window}"
        answered = answered or (not seen.for_summary and not seen.too_long and isinstance(seen.reply, Reply))


def _own_count(seen: Seen) -> int:
    """The request by our own count, with the answer that it leaves room for."""
    request = ModelRequest(messages=tuple(seen.body["messages"]), tools=tuple(seen.body.get("tools", ())))
    return count_request(request, counter_for("fuzzed")) + output_limit(seen.body)


def _refusals(story: Story) -> Iterator[str]:
    """L9: where the window is known and usage reported, one request too long teaches enough."""
    for act in story.acts:
        refused = [seen for seen in story.seen if seen.act == act.number and seen.too_long]
        # A server that says nothing but 500 is asked the same once more, as after an outage.
        told = {json.dumps(seen.body) for seen in refused if not seen.for_summary}
        if story.plan.is_plain and len(told) > 1:
            yield f"L9 {len(told)} requests of act {act.number} were larger than the known window"


def _openings(story: Story) -> Iterator[str]:
    """L4: the system prompt is first and identical, the newest prompt verbatim and last of the users."""
    prompts = _prompts(story.acts)
    for at, seen in enumerate(story.seen):
        if seen.for_summary or not seen.body:
            continue
        messages: list[Body] = seen.body["messages"]
        told = story.plan.instructions
        if told is not None and messages[0] != {"role": "system", "content": told}:
            yield f"L4 request {at} does not begin with the instructions: {messages[0]!r:.100}"
        prompt = prompts[seen.act]
        users = [said_in(message) for message in messages if message["role"] == "user"]
        users = [said for said in users if said != MEDIA_OF_RESULTS]
        last = users[-1] if users else ""
        if prompt is not None and not (last == cleaned(prompt) or _is_named(story, last, cleaned(prompt))):
            yield f"L4 request {at}: the last user message is not the prompt {prompt[:40]!r}: {last[:80]!r}"


def _is_named(story: Story, said: str, prompt: str) -> bool:
    """Whether it is the prompt with its image named, as servers of texts alone have it."""
    images = MEDIA_NOT_TAKEN.partition("}")[2]
    return bool(story.plan.wants.refusal) and said.startswith(prompt) and said.endswith(images)


def _prompts(acts: Sequence[Act]) -> list[str | None]:
    """The newest prompt that the log holds, at each act; None where there is none."""
    newest: str | None = None
    prompts = []
    for act in acts:
        prompts.append(act.prompt if act.kind == "say" else newest)
        if act.kind == "say" and any(
            _holds(record.event, act.prompt) for record in act.after[len(act.before) :]
        ):
            newest = act.prompt
    return prompts


def _holds(event: object, prompt: str | None) -> bool:
    """Whether it is the prompt's message, or the start of a run whose prompt waits for answers to calls."""
    message = getattr(event, "message", getattr(event, "prompt", None))
    return isinstance(message, Message) and message.role == "user" and said_in(message.to_openai()) == prompt


def _prefixes(story: Story) -> Iterator[str]:
    """L12: between two rewrites each request begins with the one before."""
    asked = [(at, seen) for at, seen in enumerate(story.seen) if seen.body and not seen.for_summary]
    for (_, before), (at, after) in pairwise(asked):
        earlier, later = before.body["messages"], after.body["messages"]
        same = (before.rewrites, before.path) == (after.rewrites, after.path)
        if story.plan.wants.refusal and (has_images(before.body) or has_images(after.body)):
            continue
        if same and later[: len(earlier)] != earlier:
            place = next(n for n, message in enumerate(earlier) if later[n : n + 1] != [message])
            yield f"L12 request {at} differs from the one before at message {place} of {len(earlier)}"


def _ended(act: Act) -> Iterator[str]:
    cancelled = act.cut and isinstance(act.error, asyncio.CancelledError)
    if act.error is not None and not cancelled and not isinstance(act.error, AgentLoopError):
        yield f"the run ended with {act.error!r:.200}"
    ends = [event for event in act.shown if isinstance(event, RunEnded)]
    starts = [event for event in act.shown if isinstance(event, RunStarted)]
    if act.kind in ("say", "resume") and len(ends) != len(starts):
        yield f"{len(starts)} runs started, {len(ends)} ended"
    yield from (f"the run ended as {end.status}" for end in ends if end.status not in ENDS)
    if starts and ends and act.shown and act.shown[-1] is not ends[-1]:
        yield f"{type(act.shown[-1]).__name__} was shown after the run's end"
    if act.read and not act.cut and _kinds(act.read) != _kinds(act.shown):
        yield "the stream and the callback were shown different events"


def _waits(act: Act) -> Iterator[str]:
    """Who waits for a yes says for which, and no answer to what does not wait leaves a trace."""
    ended = [event.status for event in act.shown if isinstance(event, RunEnded)]
    if act.kind in ("say", "resume") and (result := act.result) is not None:
        is_waiting = result.status == "needs_approval"
        if is_waiting != bool(result.pending) or ended != [result.status]:
            yield f"the run ended as {ended}, its result as {result.status} with {result.pending}"
    is_refused = isinstance(act.error, UsageError) and act.after == act.before
    if "nobody" in act.answers and not act.cut and not is_refused:
        yield f"an answer to nobody's call came to {act.error!r}"


def _kinds(events: Sequence[StreamEvent]) -> list[type]:
    """What events are of; what tools and sub-agents tell beside the run's own events has no fixed place."""
    return [type(event) for event in events if not isinstance(event, ToolProgress)]


def _pairs(act: Act) -> Iterator[str]:
    yield from _nested(act.shown, CompactionStarted, CompactionEnded)
    started = [event.call_id for event in act.shown if isinstance(event, ToolStarted)]
    ended = [event.call_id for event in act.shown if isinstance(event, ToolEnded)]
    if sorted(started) != sorted(ended) and not isinstance(act.error, StoreError):
        yield f"tools started {started}, ended {ended}"


def _nested(shown: Sequence[StreamEvent], start: type, end: type) -> Iterator[str]:
    is_open = False
    for event in shown:
        if isinstance(event, start | end):
            if is_open == isinstance(event, start):
                yield f"{start.__name__} and its end do not alternate"
            is_open = isinstance(event, start)
    if is_open:
        yield f"{start.__name__} has no end"


def _joined(act: Act) -> Iterator[str]:
    """The text shown since the last retry is the message's."""
    said = ""
    for event in act.shown:
        if isinstance(event, TextDelta):
            said += event.text
        elif isinstance(event, Retrying):
            said = ""
        elif isinstance(event, MessageAdded) and event.message.role == "assistant":
            if said != event.message.text:
                yield f"the text shown is not the message's: {said[:60]!r}, {event.message.text[:60]!r}"
            said = ""
