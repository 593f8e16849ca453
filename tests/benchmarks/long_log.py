"""A long log, the same at every run: turns of calls and results, cleared in batches and compacted."""

import random
import string
from collections.abc import Iterator
from itertools import count

from agentloop.events import (
    Cleared,
    ClearedItem,
    Compacted,
    Event,
    MessageRecord,
    ModelCalled,
    RunEndRecord,
    RunStartRecord,
)
from agentloop.messages import Message, ToolCall, Usage
from agentloop.strategies.clearing import stub

ROOM_TOKENS = 100_000
"""What is in sight is compacted beyond so many tokens, down to about a third."""

BATCH, KEPT = 40, 6
"""So many results are cleared at once, but for the newest."""

MOST_SHOWN = 200


class LongLog:
    """Makes events one by one, and keeps in mind what is in sight."""

    def __init__(self) -> None:
        rng = random.Random(11)
        self._rng = rng
        words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(800)]
        self._text = " ".join(rng.choices(words, k=60_000))
        self._seq = 0
        self._in_sight: dict[int, int] = {}
        self._whole: list[tuple[int, Message]] = []

    def events(self) -> Iterator[Event]:
        """Events without end: runs of a request, five calls with their results, and an answer."""
        for turn in count():
            run_id = f"run-{turn:08x}"
            yield self._next(RunStartRecord(run_id=run_id, model="m"))
            yield self._said(Message.user(self._some(80)), run_id)
            for _ in range(5):
                call = ToolCall(id=self._call_id(), name="read_file", arguments=f'{{"path": "{turn}.py"}}')
                yield from self._asked(Message.assistant(self._some(40), [call]), run_id)
                yield self._said(Message.tool(call.id, self._some(2_600)), run_id)
                yield from self._cleared()
            yield from self._asked(Message.assistant(self._some(500)), run_id)
            yield self._next(RunEndRecord(run_id=run_id, status="answered"))
            yield from self._compacted()

    def _asked(self, message: Message, run_id: str) -> Iterator[Event]:
        tokens = sum(self._in_sight.values()) + 900
        used = Usage(input_tokens=tokens + tokens // 50, output_tokens=90)
        hashed = f"{self._rng.getrandbits(256):064x}"
        called = ModelCalled(purpose="agent", model="m", counted=tokens, usage=used, request_hash=hashed)
        yield self._next(called)
        yield self._said(message, run_id)

    def _said(self, message: Message, run_id: str) -> Event:
        tokens = len(message.text) // 4 + 8 + 20 * len(message.tool_calls)
        event = self._next(MessageRecord(message=message, tokens=tokens, run_id=run_id))
        self._in_sight[self._seq] = tokens
        if message.role == "tool":
            self._whole.append((self._seq, message))
        return event

    def _cleared(self) -> Iterator[Event]:
        if len(self._whole) >= BATCH + KEPT:
            batch, self._whole = self._whole[:-KEPT], self._whole[-KEPT:]
            items = tuple(ClearedItem(seq=seq, message=_short(message), tokens=75) for seq, message in batch)
            self._in_sight.update((item.seq, item.tokens) for item in items)
            yield self._next(Cleared(items=items))

    def _compacted(self) -> Iterator[Event]:
        if sum(self._in_sight.values()) <= ROOM_TOKENS:
            return
        seqs = sorted(self._in_sight)
        tail = seqs[len(seqs) * 3 // 4]
        event = Compacted(covers=((1, tail - 1),), at=tail, replacement=self._some(8_000), tokens=2_000)
        self._in_sight = {seq: self._in_sight[seq] for seq in seqs if seq >= tail}
        self._whole = [pair for pair in self._whole if pair[0] >= tail]
        yield self._next(event)
        self._in_sight[self._seq] = 2_000

    def _next(self, event: Event) -> Event:
        self._seq += 1
        return event

    def _some(self, chars: int) -> str:
        size = self._rng.randint(chars // 2, chars * 3 // 2)
        start = self._rng.randrange(len(self._text) - size)
        return self._text[start : start + size]

    def _call_id(self) -> str:
        return "call_" + "".join(self._rng.choices(string.ascii_letters + string.digits, k=24))


def _short(message: Message) -> Message:
    return Message.tool(message.tool_call_id or "", stub(message.text, MOST_SHOWN))
