"""Seconds of the processor a megabyte that a redaction takes for ordinary and for nasty texts.

python -m tests.benchmarks.bench_redaction [characters of each text]
"""

import sys
from time import process_time

from agentloop import Secrets
from tests.benchmarks.nasty_texts import NASTY


def main(chars: int) -> None:
    """Print a line for each text."""
    secrets = Secrets(["correct horse battery", "ab1, "])
    for name, piece in NASTY.items():
        text = piece * (chars // len(piece))
        secrets(text[:2_000])
        start = process_time()
        secrets(text)
        seconds = (process_time() - start) * 1_000_000 / len(text)
        print(f"{name:>24} {seconds:6.2f} s/MB {1 / seconds:8.1f} MB/s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
