"""What could a perfect reader still know after many compactions?

    python -m tests.benchmarks.bench_recall [RECORDED_CONVERSATION…]

Plants things in sessions of about 60,000 tokens, lets them grow through windows of 5, 10 and 20 % of that,
and looks for each thing in what the model would be sent at the end: the share of them that is still there,
per kind, window and policy. Beside a digest that is computed again from the log at each fold stand a plain
list that is compacted again and again, and runners whose summaries nobody writes, or models of several kinds.
For these it prints how often they compacted, and what they sent in all, in sizes of the session. For a value
that was replaced the share counts where the old one is gone, or marked as older. With files of recorded
conversations as arguments, prints the digest of each at several lengths instead.

It takes some minutes, and says on standard error what it is at.
"""

import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from agentloop.compaction.digest import digest
from agentloop.compaction.plan import LEAST_RECORD, MOST_OF_WINDOW
from agentloop.context import (
    Budget,
    Context,
    Entry,
    clamped,
    count_message,
    count_request,
    counter_for,
    covered_ranges,
    safe_cover,
)
from agentloop.events import Compacted, MessageRecord, Record
from agentloop.messages import Message
from agentloop.prompts import summary_message
from agentloop.strategies import KeepRecentFraction
from tests.benchmarks.planting import WORDING, Plant, Planted, planted_session
from tests.benchmarks.repeating import SUMMARISERS, again_and_again, in_a_runner, last_sent
from tests.benchmarks.talking import talked_session
from tests.index_kit import index_of

COUNTER = counter_for("bench")
WINDOWS = (0.05, 0.1, 0.2)
FULL = 0.8
TAIL = KeepRecentFraction(0.27)
RECORD_SHARE = 0.25
SEEDS = range(1_000, 1_003)
OLDER = re.compile(r"\[(?:changed later|older, said at)")
LENGTHS = (300, 1_000, 4_000)

Writes = Callable[[Sequence[Entry], int], str]


def by_digest(covered: Sequence[Entry], max_tokens: int) -> str:
    """The record under test."""
    return digest(covered, max_tokens=max_tokens, counter=COUNTER)


def by_index(covered: Sequence[Entry], max_tokens: int) -> str:
    """An index of identifiers alone."""
    return index_of(covered, max_tokens=max_tokens, counter=COUNTER)


def by_user_lines(covered: Sequence[Entry], max_tokens: int) -> str:
    """Every user message, the newest first, while they fit."""
    kept: list[str] = []
    for entry in reversed(covered):
        if entry.is_user:
            max_tokens -= COUNTER(entry.original.text)
            if max_tokens < 0:
                break
            kept.append(entry.original.text)
    return "\n".join(reversed(kept))


@dataclass(slots=True)
class Folding:
    """A session that grows, and is folded when it fills its window; `writes` is what stands instead."""

    window: int
    writes: Writes
    context: Context = field(default_factory=Context)
    folds: int = 0

    def add(self, message: Message) -> None:
        """One message more."""
        self._record(MessageRecord(message=message, tokens=count_message(message, COUNTER)))
        if self.context.tokens > FULL * self.window:
            self._fold()

    def _fold(self) -> None:
        budget = Budget(window=self.window, fixed=0, model="bench", max_output_tokens=self.window // 8)
        cut = TAIL(self.context, budget)
        units = safe_cover(self.context, cut.positions, task_tokens=budget.task_tokens) if cut else ()
        if not units or cut is None:
            return
        covered = {seq for unit in units for seq in unit.seqs}
        left = {entry.seq for entry in self.context.visible if entry.seq not in covered}
        share = max(RECORD_SHARE, min(LEAST_RECORD / self.window, MOST_OF_WINDOW))
        text = self.writes(
            [entry for entry in self.context.said if entry.seq not in left], int(self.window * share)
        )
        replacement = summary_message(text, "transcript_0.jsonl")
        tokens = count_message(Message.user(replacement), COUNTER)
        at = clamped(self.context, cut.at, budget.task_tokens)
        ranges = covered_ranges(self.context, units)
        self._record(Compacted(covers=ranges, replacement=replacement, at=at, tokens=tokens))
        self.folds += 1

    def _record(self, event: MessageRecord | Compacted) -> None:
        self.context = self.context.add(Record(seq=self.context.length + 1, event=event))

    @property
    def sent(self) -> str:
        """What the model would be sent, as text."""
        return as_text(self.context.messages)


def as_text(messages: Sequence[Message]) -> str:
    """Messages with the arguments of their calls, as a reader sees them."""
    parts = ((message.text, *(call.arguments for call in message.tool_calls)) for message in messages)
    return "\n".join(text for part in parts for text in part)


def folded(writes: Writes) -> Callable[[Sequence[Message], int], str]:
    """The policy that keeps the newest part and lets `writes` stand for the rest."""

    def policy(messages: Sequence[Message], window: int) -> str:
        folding = Folding(window, writes)
        for message in messages:
            folding.add(message)
        return folding.sent

    return policy


def sliding(messages: Sequence[Message], window: int) -> str:
    """The newest messages that fit."""
    return as_text(_newest(messages, int(window * FULL)))


def masking(messages: Sequence[Message], window: int) -> str:
    """Results older than the newest six messages are cleared; of what is then there, the newest that fits."""
    old = [
        Message.tool(message.tool_call_id or "", "[cleared]") if message.role == "tool" else message
        for message in messages[:-6]
    ]
    return as_text(_newest([*old, *messages[-6:]], int(window * FULL)))


def _newest(messages: Sequence[Message], room: int) -> list[Message]:
    kept: list[Message] = []
    for message in reversed(messages):
        room -= count_message(message, COUNTER)
        if room < 0:
            break
        kept.append(message)
    return kept[::-1]


def as_a_list(messages: Sequence[Message], window: int) -> str:
    """The plain list that is compacted again and again."""
    return as_text(again_and_again(messages, window, COUNTER))


@dataclass(slots=True)
class Live:
    """Runners whose summaries are written so; `compactions` and `sent` are those of all that lived."""

    summariser: str
    compactions: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)

    def __call__(self, messages: Sequence[Message], window: int) -> str:
        model = in_a_runner(messages, window, self.summariser)
        requests = [one for one in model.requests if one.purpose == "agent"]
        openings = [str(one.messages[:3]) for one in requests]
        self.compactions.append(sum(one != other for one, other in pairwise(openings)))
        self.sent.append(sum(count_request(one, COUNTER) for one in model.requests))
        return as_text(last_sent(model))


POLICIES: dict[str, Callable[[Sequence[Message], int], str]] = {
    "sliding window": sliding,
    "old results masked": masking,
    "recent + index": folded(by_index),
    "recent + user lines": folded(by_user_lines),
    "recent + digest": folded(by_digest),
    "the same list again": as_a_list,
    **{name: Live(name) for name in SUMMARISERS},
}
SESSIONS: dict[str, Callable[[int], Planted]] = {
    "results": lambda seed: planted_session(seed, WORDING),
    "talk": talked_session,
}


def recall(session: Planted, sent: str) -> Iterator[tuple[str, bool]]:
    """Each plant by its kind, and whether it is as it should be."""
    for plant in session.plants:
        yield plant.kind, _is_right(plant, sent)


def _is_right(plant: Plant, sent: str) -> bool:
    if not plant.stale:
        return plant.value in sent
    return all(OLDER.search(line) for line in sent.splitlines() if plant.value in line)


def table(kind: str, seeds: Sequence[int]) -> None:
    """Print the shares of every policy in sessions of a kind."""
    sessions = [SESSIONS[kind](seed) for seed in seeds]
    sizes = [sum(count_message(message, COUNTER) for message in one.messages) for one in sessions]
    print(
        f"\n{len(sessions)} sessions of much {kind}, {sum(sizes) // len(sizes):,} tokens on average",
        flush=True,
    )
    for share in WINDOWS:
        scores = {name: _scores(name, sessions, sizes, share) for name in POLICIES}
        kinds = sorted({kind for by in scores.values() for kind in by})
        print(f"\nwindow {share:.0%}".ljust(32) + "".join(f"{name:>21}" for name in scores))
        for kind in kinds:
            print(f"{kind:31}" + "".join(f"{by.get(kind, 0):21.2f}" for by in scores.values()), flush=True)


def _scores(name: str, sessions: Sequence[Planted], sizes: Sequence[int], share: float) -> dict[str, float]:
    began, policy = time.monotonic(), POLICIES[name]
    print(f"window {share:.0%}, {name} …", end=" ", file=sys.stderr, flush=True)
    found: defaultdict[str, list[float]] = defaultdict(list)
    for session, size in zip(sessions, sizes, strict=True):
        for kind, right in recall(session, policy(session.messages, int(size * share))):
            found[kind].append(right)
        if isinstance(policy, Live):
            found["~ compactions"].append(policy.compactions[-1])
            found["~ sent in all"].append(policy.sent[-1] / size)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return {kind: sum(right) / len(right) for kind, right in found.items()}


def show(path: Path) -> None:
    """Print the digests of a recorded conversation: a JSON list of messages, or one message a line."""
    text = path.read_text(encoding="utf-8")
    found = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    messages = [Message.from_openai(message) for message in found if message.get("role") != "system"]
    context = Context()
    for message in messages:
        event = MessageRecord(message=message, tokens=count_message(message, COUNTER))
        context = context.add(Record(seq=context.length + 1, event=event))
    for most in LENGTHS:
        record = digest(context.said, max_tokens=most, counter=COUNTER)
        print(f"\n=== {path.name}: {context.tokens:,} tokens in {COUNTER(record):,} of {most:,}\n{record}")


def main(arguments: Sequence[str]) -> None:
    """The table, or digests of recorded conversations."""
    if arguments:
        for path in arguments:
            show(Path(path))
    else:
        for kind in SESSIONS:
            table(kind, SEEDS)


if __name__ == "__main__":
    main(sys.argv[1:])
