"""What does one step's context management cost, and does it grow with the session?

    python -m tests.benchmarks.bench_step

One step is all that the loop does for one message beside asking the model: decide what is next, make room
(micro check, trigger, guard), count the new message, append it to a session in memory, fold it in. Prints the
median around 1,000 and around 10,000 messages and the ratio of the two, then the mean over all steps, which
holds what is done once in a while: batches of clearing, compactions, the garbage collector.
"""

import asyncio
import time
from collections.abc import Iterator
from statistics import mean, median

from agentloop.compaction import Compaction
from agentloop.events import Compacted
from agentloop.messages import Message
from agentloop.run import Run
from agentloop.sessions import Session
from agentloop.stores import InMemoryStore
from agentloop.strategies import MicroCompact
from tests.benchmarks.conversation import COUNTER, conversation, run_on, step

SMALL, LARGE, AROUND = 1_000, 10_000, 250
MOST_SECONDS, MOST_GROWTH = 0.0005, 1.5
EAGER = MicroCompact(min_gain_tokens=0)
CASES = {
    "nothing is compacted (window 4M)": (Compaction(), 4_000_000),
    "default policy, clears in batches (window 1.2M)": (Compaction(), 1_200_000),
    "default policy, clears and compacts (window 128k)": (Compaction(), 128_000),
    "clears at every step, by choice (window 128k)": (Compaction(micro=EAGER), 128_000),
}


async def walked(
    run: Run, session: Session, messages: Iterator[Message], steps: int
) -> tuple[Session, list[float]]:
    """The session so many steps later, and the seconds of each step."""
    seconds = []
    for _ in range(steps):
        message = next(messages)
        start = time.perf_counter()
        session = await step(run, session, message)
        seconds.append(time.perf_counter() - start)
    return session, seconds


async def opened() -> Session:
    """A new session in memory."""
    return await Session.open("bench", InMemoryStore())


async def through(title: str, policy: Compaction, window: int) -> None:
    """One case: a session grown to beyond 10,000 messages under this policy."""
    run = run_on(policy, window=window)
    session, seconds = await walked(run, await opened(), conversation(), LARGE + AROUND)
    report(title, seconds[SMALL - AROUND : SMALL + AROUND], seconds[LARGE - AROUND :])
    context = session.context
    said = sum(entry.tokens for entry in context.said)
    print(
        f"    mean of all steps {mean(seconds) * 1000:.3f} ms, slowest {max(seconds) * 1000:.1f} ms; "
        f"{said / 1e6:.2f}M tokens said, {context.tokens / 1e6:.2f}M visible "
        f"in {len(context.visible):,} messages; {len(context.cleared):,} cleared, "
        f"{len(context.compactions)} compactions"
    )


async def compacted() -> None:
    """A long log of which little is visible, against a short one of which as much is."""
    medians = []
    for length in (SMALL, LARGE):
        run, messages = run_on(Compaction(), window=4_000_000), conversation()
        session, _ = await walked(run, await opened(), messages, length)
        seen = session.context.visible
        event = Compacted(covers=((1, seen[-100].seq),), replacement="a summary", at=seen[-99].seq, tokens=10)
        session = await session.append(event)
        medians.append((await walked(run, session, messages, AROUND))[1])
    report("99 messages visible, the rest compacted", *medians)


def report(title: str, small: list[float], large: list[float]) -> None:
    """One line of the table."""
    before, after = median(small), median(large)
    verdict = "" if after < MOST_SECONDS and after / before < MOST_GROWTH else "   TOO SLOW"
    print(
        f"{title:54} {before * 1000:7.3f} ms {after * 1000:7.3f} ms   {after / before:.2f}x{verdict}",
        flush=True,
    )


async def main() -> None:
    COUNTER("the vocabulary is loaded before the clock starts")
    print(f"{'one step at':54} {SMALL:8,} msg {LARGE:7,} msg   growth")
    for title, (policy, window) in CASES.items():
        await through(title, policy, window)
    await compacted()


if __name__ == "__main__":
    asyncio.run(main())
