"""Regular expressions from a model, matched in a process of their own.

Python's `re` may take for ever over a bad expression and lets no other thread run meanwhile, so that not
even a time limit would fire. A process can be killed.
"""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from agentloop.workspace.folder import WorkspaceError

SEARCH_SECONDS = 30.0

_PROGRAM = Path(__file__).with_name("line_finder.py")


def found_lines(
    query: str, texts: Iterable[tuple[str, str]], *, limit: int, seconds: float = SEARCH_SECONDS
) -> list[str]:
    """The first `limit` lines that match, as `path:number: text`, from pairs of path and text.

    Raises:
        WorkspaceError: the expression is not valid, or took longer than `seconds`.
    """
    answer = _asked({"query": query, "limit": limit}, texts, seconds)
    try:
        result = json.loads(answer)
    except ValueError as error:  # killed before it had written all of its answer
        raise WorkspaceError(
            f"the search was stopped after {seconds:g} s: use a simpler expression, without repeats inside "
            "repeats, or fewer files"
        ) from error
    if "error" in result:
        raise WorkspaceError(
            f"{query!r} is no valid regular expression ({result['error']}): "
            "put a backslash before characters that stand for themselves"
        )
    lines: list[str] = result["lines"]
    return lines


def _asked(order: dict[str, object], texts: Iterable[tuple[str, str]], seconds: float) -> bytes:
    command = [sys.executable, "-I", "-S", "-W", "ignore", str(_PROGRAM)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        watch = threading.Timer(seconds, process.kill)
        watch.daemon = True
        watch.start()
        try:
            assert process.stdin
            assert process.stdout
            _feed(process.stdin, order, texts)
            return process.stdout.read()
        finally:
            watch.cancel()
            process.kill()


def _feed(stdin: IO[bytes], order: dict[str, object], texts: Iterable[tuple[str, str]]) -> None:
    """Write until there is no more, or the program has enough and closes its end."""
    with contextlib.suppress(BrokenPipeError), contextlib.closing(stdin):
        stdin.write(json.dumps(order).encode() + b"\n")
        for path, text in texts:
            stdin.write(json.dumps({"path": path, "text": text}).encode() + b"\n")
