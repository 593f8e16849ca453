"""A program of its own: the lines of texts that match a regular expression.

The first line on standard input is `{"query": …, "limit": …}`, each further line `{"path": …, "text": …}`.
On standard output comes `{"lines": […]}` or `{"error": …}`. It imports the standard library alone, so that
it starts in a few milliseconds.
"""

import json
import os
import re
import resource
import sys
from collections.abc import Iterable, Iterator
from itertools import islice

MOST_CPU_SECONDS = 60
"""It ends by itself then: whoever started it may have been killed before it could stop it."""
_MOST_SHOWN_CHARS = 300


def main() -> None:
    """Answer standard input on standard output."""
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_SECONDS, MOST_CPU_SECONDS))
    result = json.dumps(answer(sys.stdin.buffer))
    os.close(sys.stdin.fileno())  # who writes may stop; closing `sys.stdin` would leave it open
    sys.stdout.write(result)


def answer(requests: Iterable[str | bytes]) -> dict[str, object]:
    """What to say to the lines of standard input; reads no further than to the limit."""
    items = map(json.loads, requests)
    order = next(items)
    try:
        expression = re.compile(order["query"])
    except (re.error, RecursionError, OverflowError) as error:
        return {"error": str(error)}
    lines = (line for item in items for line in matching_lines(expression, item["path"], item["text"]))
    return {"lines": list(islice(lines, order["limit"]))}


def matching_lines(expression: re.Pattern[str], path: str, text: str) -> Iterator[str]:
    """The lines of one text that match, each as `path:number: line`, long ones cut around the match."""
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if match := expression.search(line):
            yield f"{path}:{number}: {_around(line, match.start())}"


def _around(line: str, start: int) -> str:
    if len(line) <= _MOST_SHOWN_CHARS:
        return line
    first = max(0, min(start - _MOST_SHOWN_CHARS // 3, len(line) - _MOST_SHOWN_CHARS))
    last = first + _MOST_SHOWN_CHARS
    return ("… " if first else "") + line[first:last] + (" …" if last < len(line) else "")


if __name__ == "__main__":
    main()
