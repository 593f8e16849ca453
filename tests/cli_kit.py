"""Runs the command line as its users do: in processes of its own, on real pipes and a real terminal.

They are forks of a process that has the program loaded and warm, which saves more than a second each: see
`tests/forks.py`. `fresh` asks for a new interpreter all the same.
"""

import asyncio
import gc
import json
import os
import pty
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from agentloop import Agent, OfflineModel, Runner, Secrets
from agentloop._plumbing.patterns import _Pattern
from agentloop.cli.main import main
from agentloop.context import counter_for
from agentloop.stores.words import words_of
from agentloop.workspace import workspace_tools
from tests.forks import Forked, environment
from tests.warm_kit import ROOT

LONGEST_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a call ended: its exit status and what the two streams got."""

    status: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """Standard output as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    def complaint(self) -> str:
        """The one line on standard error that is neither progress nor a hint."""
        lines = [line for line in self.err.splitlines() if line.startswith("agentloop: ")]
        hints = ("offline model answers", "go on with", "say yes by", "take it back")
        told = [line for line in lines if not any(hint in line for hint in hints)]
        assert len(told) == 1, self.err
        assert "Traceback" not in self.err
        return told[0]


def command(*arguments: str) -> list[str]:
    """The program's command line."""
    return [sys.executable, "-m", "agentloop", *arguments]


def agentloop(
    *arguments: str, cwd: Path, stdin: str | None = None, env: Mapping[str, str] | None = None
) -> Finished:
    """One call to its end; without `stdin` standard input is at its end at once."""
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    with started(*arguments, cwd=cwd, env=env, stdin=source) as process:
        out, err = process.communicate(stdin, timeout=LONGEST_SECONDS)
        return Finished(status=process.returncode, out=out, err=err)


@contextmanager
def started(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, fresh: bool = False, **pipes: Any
) -> Iterator[Any]:
    """A call under way, as a Popen with pipes; it is killed at the end where it still runs."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | pipes
    own = environment(cwd, **(env or {}))
    with (
        subprocess.Popen(command(*arguments), cwd=cwd, env=own, text=True, **streams)
        if fresh or "preexec_fn" in streams or own["PYTHONPATH"] != str(ROOT)
        else Forked(arguments, cwd=cwd, env=own, **streams)
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def program(code: str, *arguments: object, cwd: Path, **pipes: Any) -> Iterator[Any]:
    """A Python program under way, as `started`; it finds the package loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(code, encoding="utf-8")
        with started(str(path), *map(str, arguments), cwd=cwd, **pipes) as process:
            yield process


def line_of(stream: IO[str]) -> str:
    """The first line that a call under way says there, for as long as a broken test may take."""
    ready, _, _ = select.select([stream], [], [], LONGEST_SECONDS)
    assert ready, "nothing was said"
    return stream.readline()


class Terminal:
    """A terminal with the program in it; what it shows is in `screen`, escapes included."""

    def __init__(self, master: int, process: Any) -> None:
        self._master = master
        self._process = process
        self.screen = ""

    def type(self, text: str) -> None:
        """Type it; a newline is the enter key."""
        os.write(self._master, text.replace("\n", "\r").encode())

    def wait_for(self, text: str) -> str:
        """What was shown up to and including `text`, since the last wait."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while text not in self.screen:
            assert time.monotonic() < deadline, f"{text!r} was never shown: {self.screen!r}"
            self._read(f"{text!r} was never shown")
        shown, _, rest = self.screen.partition(text)
        self.screen = rest
        return shown + text

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._master, b"\x03")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for the program's end and return its exit status; `screen` then holds the rest."""
        with suppress(EOFError):
            while True:
                self._read("the program did not end")
        return int(self._process.wait(LONGEST_SECONDS))

    def _read(self, fault: str) -> None:
        ready, _, _ = select.select([self._master], [], [], LONGEST_SECONDS)
        assert ready, f"{fault}: {self.screen!r}"
        try:
            data = os.read(self._master, 65_536)
        except OSError:
            data = b""
        if not data:
            raise EOFError(f"{fault}: {self.screen!r}")
        self.screen += data.decode("utf-8", "replace")


@contextmanager
def terminal(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """The program in a terminal of its own."""
    master, slave = pty.openpty()
    own = environment(cwd, **(env or {}))
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    with Forked(arguments, cwd=cwd, env=own, terminal=True, **streams) as process:
        os.close(slave)
        try:
            yield Terminal(master, process)
        finally:
            process.kill()
            os.close(master)


def run_script(
    path: Path, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, fresh: bool = False
) -> Finished:
    """A script to its end, warnings being errors: a fork does not hear those of loading the package."""
    own = environment(cwd, **(env or {}))
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        subprocess.Popen(
            [sys.executable, "-W", "error", path, *arguments], cwd=cwd, env=own, text=True, **pipes
        )
        if fresh
        else Forked([str(path), *arguments], cwd=cwd, env=own, **pipes)
    ) as process:
        try:
            out, err = process.communicate(timeout=LONGEST_SECONDS)
        finally:
            process.kill()
    return Finished(status=process.returncode, out=out, err=err)


def run_program(arguments: Sequence[str]) -> None:
    """What a fork does: the command line, or the script that is named first."""
    path, *rest = arguments or [""]
    if not path.endswith(".py"):
        main(arguments)
    warnings.simplefilter("error")
    sys.argv = [path, *rest]
    sys.path[0] = str(Path(path).parent)
    runpy.run_path(path, run_name="__main__")
    raise SystemExit(0)


def load_program() -> None:
    """Load what a call of the program needs, and run it once, so that its forks need not.

    What is there by then is kept out of the search for garbage: looking at it in a fork would copy it. The
    place of temporary files is forgotten, which each fork is told by its environment.
    """
    for name in ("app", "run", "sessions", "compact", "demo", "durable", "lessons", "faults", "models"):
        import_module(f"agentloop.cli.{name}")
    for name in ("providers.openai", "durable", "stores.sqlite.store"):
        import_module(f"agentloop.{name}")
    counter_for("any model")("A first count loads the vocabulary, which takes longer than a call.")
    words_of("Ä first word that is not ASCII has all characters gone through.")
    asyncio.run(_run_once())
    tempfile.tempdir = None
    for each in [each for each in gc.get_objects() if type(each) is _Pattern]:
        for method in ("search", "match", "fullmatch", "finditer", "findall", "sub", "split"):
            getattr(each, method)
    gc.freeze()


async def _run_once() -> None:
    """A first run makes what a process keeps, such as the tools' schemas and the shapes of secrets."""
    agent = Agent(OfflineModel(), tools=workspace_tools(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        async with Runner(
            agent, store=f"sqlite:///{folder}/s.db", transcripts=folder, redact=Secrets()
        ) as runner:
            await runner.run("Say something.", session_id="s")
