"""What does a fresh process cost until its first answered turn, against the plain openai client's?

    python -m tests.benchmarks.bench_cold_start [--rounds N]

Each figure is a median over fresh interpreters that take turns: bare Python, what is measured, and the same
with the openai client alone. Both sides find their byte code written, as installed packages do: it goes into
a folder of this run, in a first round that is not counted. Both ask one question of a server on this machine,
in a process of its own, and print the answer that they streamed. Time is a child's from its start to its end,
CPU its own (a busy machine moves it less), memory the peak of what it had resident (on Linux: from /proc).
Beside them stand the modules loaded at the end. Nothing is judged. Run as a file with another tree in
PYTHONPATH, it measures that one.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import agentloop
from tests.strict_process import provider_process

ROOT = Path(agentloop.__file__).parent.parent
BARE = "pass"
OPENAI = "import openai"
THREE_NAMES = "from agentloop import Agent, Runner, tool"
OUR_TURN = """
import asyncio, sys
from agentloop import Agent, OpenAIChat, Runner
from agentloop.stream import TextDelta

async def main():
    runner = Runner(Agent(OpenAIChat("strict", base_url=sys.argv[1], api_key="no-key")))
    async for event in runner.stream("Hello"):
        if isinstance(event, TextDelta):
            sys.stdout.write(event.text)

asyncio.run(main())
"""
PLAIN_TURN = """
import asyncio, sys
from openai import AsyncOpenAI

async def main():
    client = AsyncOpenAI(base_url=sys.argv[1], api_key="no-key")
    messages = [{"role": "user", "content": "Hello"}]
    stream = await client.chat.completions.create(model="strict", messages=messages, stream=True)
    async for chunk in stream:
        for choice in chunk.choices:
            sys.stdout.write(choice.delta.content or "")

asyncio.run(main())
"""
REPORT = """
import resource, sys
ours = sum(name.partition(".")[0] == "agentloop" for name in sys.modules)
used = resource.getrusage(resource.RUSAGE_SELF)
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM:"))
print(f"\\n{used.ru_utime + used.ru_stime} {peak} {len(sys.modules)} {ours}")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a fresh interpreter took: time, the peak of its memory, and the modules loaded at its end."""

    seconds: float
    cpu_seconds: float
    peak_kib: float
    modules: int
    ours: int


def environment(folder: str) -> dict[str, str]:
    """This process's environment, but that byte code is kept in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": folder}


def cost(code: str, *arguments: str, env: dict[str, str], answer: str = "") -> Cost:
    """What it costs to run this code, which must print this answer."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code + REPORT, *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - start
    said, report = done.stdout.rstrip("\n").rsplit("\n", 1)
    assert said == answer, f"it said {said!r}"
    cpu_seconds, peak_kib, modules, ours = report.split()
    return Cost(
        seconds=seconds,
        cpu_seconds=float(cpu_seconds),
        peak_kib=float(peak_kib),
        modules=int(modules),
        ours=int(ours),
    )


def medians(costs: list[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(
        seconds=median(each.seconds for each in costs),
        cpu_seconds=median(each.cpu_seconds for each in costs),
        peak_kib=median(each.peak_kib for each in costs),
        modules=costs[-1].modules,
        ours=costs[-1].ours,
    )


def compared(title: str, ours: str, plain: str, rounds: int, *arguments: str, answer: str = "") -> None:
    """Run both by turns with bare Python between them, and print one block."""
    sides: tuple[list[Cost], list[Cost], list[Cost]] = ([], [], [])
    runs = ((0, BARE, ()), (1, ours, arguments), (2, plain, arguments))
    with TemporaryDirectory() as folder:
        env = environment(folder)
        for number in range(rounds + 1):
            for side, code, given in runs if number % 2 else reversed(runs):
                spent = cost(code, *given, env=env, answer="" if code is BARE else answer)
                if number:
                    sides[side].append(spent)
    bare, us, them = map(medians, sides)
    print(f"{title} (medians of {rounds} rounds)")
    for name, one in (("bare Python", bare), ("agentloop", us), ("openai", them)):
        print(f"    {name:12}{one.seconds * 1000:6.0f} ms, {one.cpu_seconds * 1000:6.0f} ms of CPU,", end="")
        print(f"{one.peak_kib / 1024:6.1f} MiB, {one.modules:5} modules, {one.ours} of them ours")
    for name, least in (("whole process", None), ("over bare Python", bare)):
        span, cpu, memory = (over(us, them, least, of) for of in ("seconds", "cpu_seconds", "peak_kib"))
        print(f"    ratio, {name:18} time {span:.2f}   CPU {cpu:.2f}   memory {memory:.2f}", flush=True)


def over(ours: Cost, plain: Cost, least: Cost | None, figure: str) -> float:
    """How many times more of this figure one takes than the other, over the least where it is given."""
    base = getattr(least, figure) if least else 0.0
    return float((getattr(ours, figure) - base) / (getattr(plain, figure) - base))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="A fresh process to its first answer, ours against openai.")
    parser.add_argument("--rounds", type=int, default=9, help="how often each side is measured")
    rounds = parser.parse_args().rounds
    with provider_process() as url:
        compared("to the first answered turn", OUR_TURN, PLAIN_TURN, rounds, url, answer="ok")
    compared(f"`{THREE_NAMES}` against `{OPENAI}`", THREE_NAMES, OPENAI, rounds)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
