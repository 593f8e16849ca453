"""Warm processes: each has everything imported, and answers each line of JSON that it reads with one.

Such a process forks what a test wants to run or to kill. It ends when its input closes, so none is left where
the tests are killed.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LONGEST_ANSWER_SECONDS = 600
"""A process that has not answered after so long hangs: what it is asked for may be a few runs."""

LONGEST_END_SECONDS = 120
"""So does one that has not ended so long after its input was closed."""


def serve(answer: Callable[[Any], Any]) -> None:
    """Answer each line of standard input, in such a process."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


class Warm:
    """A warm process, from outside: `module` is run as a program, in `environment` or else in this one.

    It also gets the descriptors `keep`.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        keep: Sequence[int] = (),
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
            pass_fds=keep,
        )

    def ask(self, asked: Any) -> Any:
        """What it answers."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        ready, _, _ = select.select([self._process.stdout], [], [], LONGEST_ANSWER_SECONDS)
        assert ready, f"the warm process hangs at {asked}"
        line = self._process.stdout.readline()
        assert line, f"the warm process has died at {asked}"
        return json.loads(line)

    def __call__(self, **asked: Any) -> dict[str, Any]:
        """What it answers where it is asked by names, and answers so."""
        return dict(self.ask(asked))

    def kill(self) -> int:
        """End it as a power cut does; its exit status."""
        self._process.kill()
        return self._process.wait(LONGEST_END_SECONDS)

    def end(self) -> None:
        """Let it end; where it does not, kill it."""
        try:
            self._process.communicate(timeout=LONGEST_END_SECONDS)
        except subprocess.TimeoutExpired:  # it hangs, or what it forked lives on and holds its output
            with self._process:
                self._process.kill()


@contextmanager
def warm(module: str, **environment: str) -> Iterator[Warm]:
    """A warm process that ends behind the block, with this added to the environment."""
    process = Warm(module, environment=os.environ | environment)
    try:
        yield process
    finally:
        process.end()
