"""What does a digest of a long session cost, and how long does a compaction hold the event loop?

    python -m tests.benchmarks.bench_compaction [TOKENS]

Prints for a session of about so many tokens (400,000 by default) the milliseconds of a digest made for the
first time, of the same again, and of one with ten messages more. Then, for what a runner does, the longest
time for which nothing else had its turn on the loop, and the whole.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from agentloop import Agent, Compaction, Runner
from agentloop.compaction.digest import digest
from agentloop.context import Context, count_message
from agentloop.events import MessageRecord, Record
from agentloop.messages import Message
from agentloop.models import Answer, ModelPart, ModelRequest
from agentloop.sessions import Session
from agentloop.stores import InMemoryStore
from agentloop.strategies import Digest, KeepRecentFraction, replaced_by
from tests.benchmarks.conversation import COUNTER, MODEL
from tests.benchmarks.talking import talked_session

TOKENS, MORE, RECORD_TOKENS = 400_000, 10, 3_000
TICK_SECONDS = 0.002
ANSWER = "The garden plan of row 4,711 was talked over, and what else there was to be done. " * 20


@dataclass(frozen=True, kw_only=True)
class Answering:
    """A model that says the same to everything, and counts nothing, as if it were on another machine."""

    window: int
    max_output_tokens: int
    name: str = MODEL

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """The answer."""
        yield Answer(message=Message.assistant(ANSWER), finish="stop")


def session_of(tokens: int) -> list[MessageRecord]:
    """A session of at least so many tokens: turns with calls, long results, and people who talk."""
    said: list[MessageRecord] = []
    seed = 0
    while sum(event.tokens for event in said) < tokens:
        messages = talked_session(seed, turns=50, exchanges=2).messages
        said += [MessageRecord(message=one, tokens=count_message(one, COUNTER)) for one in messages]
        seed += 1
    return said


def digests(said: Sequence[MessageRecord]) -> None:
    """A digest for the first time, the same again, and with more."""
    entries = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(said, 1)).said
    for title, count in (("first", -MORE), ("again", -MORE), (f"{MORE} messages more", len(said))):
        start = time.perf_counter()
        digest(list(entries)[:count], max_tokens=RECORD_TOKENS, counter=COUNTER)
        print(f"digest, {title:32} {(time.perf_counter() - start) * 1_000:8.1f} ms")


async def held(title: str, work: Callable[[], Awaitable[object]]) -> None:
    """The longest gaps between two turns of another task of the loop meanwhile, and the most work in one."""
    gaps, works = [0.0], [0.0]

    async def ticks() -> None:
        while True:
            start, began = time.perf_counter(), time.thread_time()
            await asyncio.sleep(TICK_SECONDS)
            gaps.append(time.perf_counter() - start - TICK_SECONDS)
            works.append(time.thread_time() - began)

    ticking = asyncio.create_task(ticks())
    await asyncio.sleep(0)
    start = time.perf_counter()
    await work()
    whole = time.perf_counter() - start
    await asyncio.sleep(0)
    ticking.cancel()
    longest, most = (" ".join(f"{each * 1_000:.0f}" for each in sorted(part)[-3:]) for part in (gaps, works))
    print(
        f"{title:40} {whole * 1_000:8.1f} ms; the loop stood still for {longest} ms, {most} ms of it its own"
    )


async def compactions(said: Sequence[MessageRecord]) -> None:
    """What a runner does with the session: foresee a compaction, and do it in each of the two ways."""
    by_digest = Compaction(strategy=replaced_by(KeepRecentFraction(), Digest()))
    for title, policy in (("by a digest", by_digest), ("by a model", Compaction())):
        store = InMemoryStore()
        await (await Session.open("s", store)).append(*said)
        model = Answering(window=450_000, max_output_tokens=1_000)
        async with Runner(Agent(model, compaction=policy), store=store, transcripts=None) as runner:
            await held(f"preview, {title}", lambda: runner.preview("s"))
            await held(f"compaction, {title}", lambda: runner.compact("s"))
            await held(f"a prompt behind it, {title}", lambda: runner.run("So?", session_id="s"))


def main() -> None:
    COUNTER("the vocabulary is loaded before the clock starts")
    said = session_of(int(sys.argv[1]) if len(sys.argv) > 1 else TOKENS)
    print(f"{len(said):,} messages, {sum(event.tokens for event in said):,} tokens")
    digests(said)
    asyncio.run(compactions(said))


if __name__ == "__main__":
    main()
