"""Are identifiers and the index linear? Twice the text must take about twice as long, whatever it is.

    python -m tests.benchmarks.bench_index

Prints, for each kind of text, the seconds for 0.5 MB and 1 MB and their ratio; then the seconds for 5 MB of
prose and for the index of a conversation of 10,000 messages.
"""

import base64
import random
import time
from collections.abc import Callable
from functools import partial
from itertools import chain

from agentloop.context import Entry, counter_for, identifiers, missing, named_values
from agentloop.messages import Message, ToolCall
from agentloop.strategies.superseded import newer_results
from tests.index_kit import index_of

SMALL = 500_000
PROSE = "Whatever fails before the append leaves the log as it was, says src/app/main.py:12 after 20 ms. "
UNITS = {
    "prose": PROSE,
    "base64": base64.b64encode(random.Random(7).randbytes(400_000)).decode(),
    **{
        unit: unit
        for unit in ("a", "a.", "/", "-", "a@", "1", "1,", "a ", "\\", "a_", "://", "HTTP ", "the a is ")
    },
}
FUNCTIONS: tuple[Callable[[str], object], ...] = (identifiers, lambda text: list(named_values(text)))


def seconds(work: Callable[[], object]) -> float:
    """The best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def entries(count: int) -> list[Entry]:
    """A conversation of so many messages, each result of about 5,000 characters."""
    turns = (
        (
            Message.user(f"See src/m{at}.py, the limit is {at} MB."),
            Message.assistant(
                "", [ToolCall(id=f"c{at}", name="read", arguments=f'{{"path": "src/m{at}.py"}}')]
            ),
            Message.tool(f"c{at}", f"CODE-{at:05x} {'words and words go here. ' * 200} END_{at}"),
            Message.assistant(f"Done with part_{at}."),
        )
        for at in range(count // 4)
    )
    said = enumerate(chain.from_iterable(turns), 1)
    return [Entry(seq=seq, at=seq, message=each, original=each, tokens=1) for seq, each in said]


def main() -> None:
    print("text            identifiers: 0.5 MB, 1 MB, ratio      named values: 0.5 MB, 1 MB, ratio")
    for name, unit in UNITS.items():
        shown = []
        for function in FUNCTIONS:
            texts = ((unit * (size // len(unit) + 1))[:size] for size in (SMALL, 2 * SMALL))
            small, large = (seconds(partial(function, text)) for text in texts)
            shown.append(f"{small:7.3f} s {large:7.3f} s {large / small:5.1f}")
        print(f"{name!r:14}", *shown, sep="      ")
    counter = counter_for("gpt-5-mini")
    prose = (PROSE * (5_000_000 // len(PROSE) + 1))[:5_000_000]
    print(f"missing, 5 MB of prose: {seconds(lambda: missing([prose], PROSE, most=100)):.2f} s")
    said = entries(10_000)
    print(f"newer results, 10,000 messages: {seconds(lambda: newer_results(said)):.3f} s")
    for most in (100, 500, 2_000):
        taken = seconds(partial(index_of, said, max_tokens=most, counter=counter))
        print(f"index of {most:5} tokens, 10,000 messages: {taken:.2f} s")


if __name__ == "__main__":
    main()
