"""How much memory does a session of 10,000 messages take? (On Linux: the peaks come from /proc.)

    python -m tests.benchmarks.bench_memory

Each case is a child process of its own, run twice: for the peak of its resident memory, held against bare
Python and against the same process with the runner imported, and under tracemalloc for what Python itself
allocated. The vocabulary that counts tokens is loaded once in a process, however many sessions it has: it
has a line of its own, and the sessions beside it are counted by estimate.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from agentloop.compaction import Compaction
from agentloop.context import TokenCounter, estimate_tokens
from agentloop.run import Agent
from agentloop.runner import Runner
from agentloop.sessions import Session
from agentloop.stores import SessionStore
from agentloop.testing import ScriptedModel
from tests.benchmarks.conversation import COUNTER, conversation, run_on, step

MESSAGES, BATCH = 10_000, 100
MOST_MB = 60.0
RESIDENT = """{
    line.split(':')[0]: int(line.split()[1]) / 1024 for line in open('/proc/self/status') if line[:2] == 'Vm'
}"""

Figures = dict[str, float]


def runners_store(url: str) -> SessionStore:
    """The store as a runner opens it."""
    return Runner(Agent(ScriptedModel([])), store=url).store


async def grown(url: str, counter: TokenCounter = estimate_tokens) -> Session:
    """A session that grows step by step, as runs make it grow."""
    run, messages = run_on(Compaction(), window=4_000_000, counter=counter), conversation()
    session = await Session.open("bench", runners_store(url))
    for _ in range(MESSAGES):
        session = await step(run, session, next(messages))
    return session


async def counted(url: str) -> Session:
    """The same, its tokens counted."""
    return await grown(url, COUNTER)


async def written(url: str) -> Session:
    """A session whose messages are appended a hundred at a time."""
    run, messages = run_on(Compaction(), window=4_000_000, counter=estimate_tokens), conversation()
    session = await Session.open("bench", runners_store(url))
    for _ in range(MESSAGES // BATCH):
        session = await session.append(*(run.record_of(next(messages)) for _ in range(BATCH)))
    return session


async def opened(url: str) -> Session:
    """A session that is read from the store."""
    return await Session.open("bench", runners_store(url))


async def vocabulary(url: str) -> Session:
    """No session: one text is counted."""
    COUNTER("hello")
    return await Session.open("bench", runners_store("memory:"))


CASES: dict[str, Callable[[str], Coroutine[Any, Any, Session]]] = {
    "in memory, grown step by step": grown,
    "SQLite, written": written,
    "SQLite, opened": opened,
    "the vocabulary, no session": vocabulary,
    "in memory, and the vocabulary": counted,
}


def child(case: str, url: str, tracing: bool) -> Figures:
    """The figures of this process, in MB."""
    before = resident()
    if tracing:
        tracemalloc.start()
    session = asyncio.run(CASES[case](url))
    traced, traced_peak = tracemalloc.get_traced_memory()
    return {
        "before": before["VmRSS"],
        "peak": resident()["VmHWM"],
        "end": resident()["VmRSS"],
        "traced": traced / 2**20,
        "traced_peak": traced_peak / 2**20,
        "messages": len(session.context.said),
        "tokens": session.context.tokens,
    }


def resident() -> Figures:
    """What the kernel says of this process's memory, in MB."""
    return dict(eval(RESIDENT))


def measured(case: str, url: str, *, tracing: bool) -> Figures:
    """The figures of a child process."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_memory", case, url, "traced" if tracing else ""]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def both(case: str, folder: Path) -> Figures:
    """The figures of two child processes, one of them traced, each with a file of its own on disc."""
    on_disc = "SQLite" in case
    urls = [f"sqlite:///{folder / name}.db" if on_disc else "memory:" for name in ("plain", "traced")]
    plain, traced = measured(case, urls[0], tracing=False), measured(case, urls[1], tracing=True)
    return plain | {name: traced[name] for name in ("traced", "traced_peak")}


def main() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", f"print({RESIDENT}['VmHWM'])"], capture_output=True, check=True
    )
    bare = float(ran.stdout)
    print(f"bare Python: {bare:.0f} MB; over it, and over the same process with the runner imported:")
    print(f"{'':32}{'peak':>8}{'over the runner':>18}{'held at the end':>18}{'traced by Python (peak)':>27}")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            seen = both(case, Path(folder))
            peak, over_runner = seen["peak"] - bare, seen["peak"] - seen["before"]
            held = seen["end"] - seen["before"]
            verdict = "   OVER 60 MB" if peak > MOST_MB and "vocabulary" not in case else ""
            print(
                f"{case:32}{peak:5.0f} MB{over_runner:15.0f} MB{held:15.0f} MB"
                f"{seen['traced']:15.1f} MB ({seen['traced_peak']:.1f} MB)"
                f"   {seen['messages']:,} messages, {seen['tokens'] / 1e6:.2f}M tokens{verdict}",
                flush=True,
            )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(child(sys.argv[1], sys.argv[2], bool(sys.argv[3]))))
    else:
        main()
