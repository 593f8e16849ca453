"""The strict provider in a process of its own.

`python -m tests.strict_process --help` starts one, which prints its port and ends when its input closes.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.strict_provider import StrictProvider
from tests.strict_replies import Brain, ExtractiveSummariser, tool_turn


@contextmanager
def provider_process(*arguments: str) -> Iterator[str]:
    """A provider in a process of its own, with these arguments of the command line; yields its base URL."""
    command = [sys.executable, "-m", "tests.strict_process", *arguments]
    root = Path(__file__).parent.parent
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.stdin.close()
            process.wait()


def main() -> None:
    """Serve until standard input closes."""
    parser = argparse.ArgumentParser(
        description="A strict provider. It prints its port and serves until its standard input closes, "
        "so give it one that stays open: a terminal, or a pipe held by whoever started it."
    )
    parser.add_argument("--brain", choices=["ok", "turn"], default="ok", help="what answers")
    parser.add_argument("--pieces", type=int, default=200, help="pieces of the text of a turn's answer")
    parser.add_argument("--window", type=int, help="in tokens")
    parser.add_argument("--whole", action="store_true", help="send a stream's events in one piece")
    given = parser.parse_args()
    inner: Brain = tool_turn(given.pieces) if given.brain == "turn" else lambda _: "ok"
    with StrictProvider(ExtractiveSummariser(inner), window=given.window, whole=given.whole) as provider:
        print(provider.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
