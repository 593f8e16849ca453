"""What does importing agentloop cost over bare Python?

    python -m tests.benchmarks.bench_import

Each figure is the median over pairs of child processes, bare Python and the import, one after the other.
Prints which of the heavy packages each one loads: `import agentloop` and `--help` must not load openai.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent.parent
PAIRS = 9
MOST_SECONDS = 0.150
HEAVY = (
    "openai",
    "pydantic",
    "tiktoken",
    "tenacity",
    "httpx2",
    "structlog",
    "rich",
    "prompt_toolkit",
    "asyncio",
)
HELP = """
from agentloop.cli.app import program
program(["--help"], standalone_mode=False)
"""
CASES = {
    "import agentloop": "import agentloop",
    "from agentloop import Agent, Runner, tool": "from agentloop import Agent, Runner, tool",
    "the same and OpenAIChat": "from agentloop import Agent, OpenAIChat, Runner, tool",
    "import openai": "import openai",
    "python -m agentloop --help": HELP,
}


def ran(code: str) -> tuple[float, str]:
    """The seconds of a child process that runs this code, and the last line that it wrote."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - start, done.stdout.rpartition("\n")[2]


def over_bare(code: str) -> float:
    """The seconds that the code takes more than bare Python, by the median of pairs."""
    ran(code)
    return median(ran(code)[0] - ran("pass")[0] for _ in range(PAIRS))


def loaded(code: str) -> str:
    """Which of the heavy packages the code loads."""
    report = f"\nimport sys; sys.stdout.write('\\n' + ' '.join(n for n in {HEAVY!r} if n in sys.modules))"
    return ran(code + report)[1]


def main() -> None:
    bare = median(ran("pass")[0] for _ in range(PAIRS))
    print(f"bare Python takes {bare * 1000:.0f} ms; over it, by the median of {PAIRS} pairs:")
    for title, code in CASES.items():
        seconds = over_bare(code)
        verdict = "   TOO SLOW" if title == "import agentloop" and seconds > MOST_SECONDS else ""
        print(
            f"{title:42} {seconds * 1000:6.0f} ms   loads {loaded(code) or 'none of them'}{verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main()
