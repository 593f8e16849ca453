"""Is counting linear? Ten times the text must take about ten times as long, whatever the script.

    python -m tests.benchmarks.bench_tokens

Prints, for each kind of text, the seconds for 0.5 MB and 5 MB and the ratio of the time a character.
"""

import base64
import random
import time

from agentloop.context import TokenCounter, counter_for, estimate_tokens

SMALL, LARGE = 500_000, 5_000_000
UNITS = {
    "English": "Whatever fails before the append leaves the log exactly as it was. ",
    "base64": base64.b64encode(random.Random(7).randbytes(300_000)).decode(),
    "one letter": "a",
    "CJK": "漢字語",
    "emoji": "😀🎉",
    "blanks": " ",
    "newlines and slashes": "\n/",
    "signs": "^~",
    "lone surrogates": "\ud800",
}


def seconds(count: TokenCounter, text: str) -> float:
    """The best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        count(text)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    counter = counter_for("gpt-5-mini")
    start = time.perf_counter()
    counter("hello")
    print(f"first count, vocabulary loaded: {time.perf_counter() - start:.2f} s")
    for title, count in (("counted", counter), ("estimated", estimate_tokens)):
        print(f"{title:24}   0.5 MB     5 MB  time a character, 5 MB to 0.5 MB")
        for name, unit in UNITS.items():
            small, large = (
                seconds(count, (unit * (size // len(unit) + 1))[:size]) for size in (SMALL, LARGE)
            )
            print(f"  {name:22} {small:6.3f} s {large:6.3f} s  {large / LARGE / (small / SMALL):.2f}")


if __name__ == "__main__":
    main()
