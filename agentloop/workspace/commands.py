"""The tool that runs commands, and the end of all that they started.

Each command has a mark in its environment, which all that it starts inherit. Where there is a `/proc` to look
into, as on Linux, its processes are found by it wherever they have gone, into sessions of their own, too; one
that was started with an environment made anew is not.
"""

import asyncio
import contextlib
import os
import signal
import time
import uuid
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Any

from agentloop._plumbing.aio import in_thread, to_its_end
from agentloop.redaction import SLACK_CHARS, head_before, tail_behind, without_secrets
from agentloop.tools import RunContext, tool
from agentloop.workspace.folder import Folder, WorkspaceError

_PROCESSES = Path("/proc")
_MARK = "AGENTLOOP_COMMAND_"
_MOST_PASSES = 50
"""What is killed may have started others that the pass before did not see; who starts them faster than half a
second of passes kills them is left."""
_PAUSE_SECONDS = 0.01
"""Between two passes, for the system to take the killed away. Both are our own figures."""
_under_way: set[str] = set()
MOST_SECONDS = 600
MOST_OUTPUT_BYTES = 1024 * 1024
_HALF = MOST_OUTPUT_BYTES // 2
_KEPT = _HALF + SLACK_CHARS
_CHUNK_BYTES = 64 * 1024
_SETTLE_SECONDS = 0.5
"""How long output is read on after the command's end: what it has left in the pipe takes a moment, and
whoever else still holds the pipe open may hold it for ever. Our own figure."""


@dataclass(slots=True)
class Output:
    """The first and the last half MiB of what was printed, and on either side of the gap a little more.

    What is more is only looked at: a secret that stands at the gap is seen whole there.
    """

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    printed: int = 0

    def add(self, chunk: bytes) -> None:
        self.printed += len(chunk)
        room = _KEPT - len(self.head)
        self.head += chunk[:room]
        self.tail += chunk[room:]
        if len(self.tail) > 2 * _KEPT:
            del self.tail[:-_KEPT]

    def text(self, redact: Callable[[str], str]) -> str:
        if self.printed <= MOST_OUTPUT_BYTES:
            return _text(self.head + self.tail)
        tail = (self.head + self.tail)[-_KEPT:]
        before = head_before(_text(self.head), len(_text(self.head[_HALF:])), redact)
        behind = tail_behind(_text(tail), len(_text(tail[:-_HALF])), redact)
        gap = f"\n... [{self.printed - MOST_OUTPUT_BYTES:,} bytes of output left out] ...\n"
        return before + gap + behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The tool that runs commands, for one folder.

    Whatever ends a command, its time limit or a cancelled run too, ends its process group; on systems with a
    `/proc` also what has left the group, unless that was started with an environment made anew. A process of
    ours that is killed itself leaves its command running.

    Commands see this process's environment without what looks like a secret: the model reads what they print.
    """

    folder: Folder
    pass_env: frozenset[str] = frozenset()
    """Variables that commands see though they look like secrets."""

    @tool(timeout_seconds=MOST_SECONDS + 30, kind="shell")
    async def run_command(
        self, command: str, timeout_seconds: float = 60, context: RunContext[Any] | None = None
    ) -> str:
        """Run a shell command in the working folder; gives its output, errors included, and exit status.

        It has no input. What it leaves running in the background ends with it.

        Args:
            command: The command line, for `sh`.
            timeout_seconds: When to kill it, at most 600.
        """
        if not 0 < timeout_seconds <= MOST_SECONDS:
            raise WorkspaceError(f"timeout_seconds must be more than 0 and at most {MOST_SECONDS}")
        output = Output()
        mark = new_mark()
        status = await self.run(command, mark, output, seconds=timeout_seconds)
        text = await in_thread(output.text, context.redact if context else str)
        return "\n".join(part for part in (text.rstrip("\n"), ending(status, timeout_seconds)) if part)

    async def run(self, command: str, mark: str, output: Output, *, seconds: float | None) -> int | None:
        """Run it to its end; the exit status, negative for a signal, or None when time was up.

        `mark` is the name of the variable that its processes are known by.
        """
        environment = without_secrets(os.environ, but=self.pass_env)
        read_end, write_end = os.pipe()
        with under_mark(mark), FileIO(read_end, "rb") as source:
            with FileIO(write_end, "wb") as target:
                process = await asyncio.create_subprocess_shell(
                    command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=target,
                    stderr=asyncio.subprocess.STDOUT,
                    cwd=self.folder.root,
                    env={**environment, mark: "1"},
                    start_new_session=True,
                )
            reading = asyncio.create_task(_read(source, output))
            try:
                return await _wait(process, seconds, reading)
            finally:
                await to_its_end(_end(process, mark, reading))


async def _wait(process: Process, seconds: float | None, reading: asyncio.Task[None]) -> int | None:
    try:
        async with asyncio.timeout(seconds):
            status = await process.wait()
    except TimeoutError:
        return None
    await asyncio.wait({reading}, timeout=_SETTLE_SECONDS)
    return status


async def _end(process: Process, mark: str, reading: asyncio.Task[None]) -> None:
    """Kill what still runs: the command, and what it left behind in its process group or elsewhere."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await in_thread(kill_marked, mark)
    await asyncio.wait({reading}, timeout=_SETTLE_SECONDS)
    reading.cancel()
    await asyncio.wait({reading})


async def _read(source: FileIO, output: Output) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            output.add(chunk)
    finally:
        transport.close()


def _text(data: bytearray) -> str:
    return data.decode("utf-8", "replace")


def ending(status: int | None, seconds: float | None = None) -> str:
    """How a command ended, in words; a status of None is one whose time was up."""
    if status is None:
        return f"[killed after {seconds:g} s, when its time was up]"
    return f"[exit status {status}]" if status >= 0 else f"[killed by signal {-status}]"


def end_all() -> None:
    """Kill all that commands under way have started, for a process that leaves at once."""
    for mark in tuple(_under_way):
        kill_marked(mark)


@contextmanager
def under_mark(mark: str) -> Iterator[None]:
    """What has this mark is under way within the block: `end_all` ends it."""
    _under_way.add(mark)
    try:
        yield
    finally:
        _under_way.discard(mark)


def new_mark() -> str:
    """A mark that nothing else has."""
    return f"{_MARK}{uuid.uuid4().hex}"


def mark_of_job(*names: str) -> str:
    """The mark of a command that other processes find by these names."""
    return f"{_MARK}{sha256(chr(0).join(names).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def kill_marked(mark: str) -> bool:
    """Kill all that carry the mark, and what they start meanwhile; whether there was any. Blocks a moment."""
    for tries in range(_MOST_PASSES):
        found = list(_processes_with(f"{mark}=".encode()))
        for number in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        if not found:
            return tries > 0
        time.sleep(_PAUSE_SECONDS)
    return True


def _processes_with(mark: bytes) -> Iterator[int]:
    with suppress(OSError):
        for folder in _PROCESSES.iterdir():
            if folder.name.isdecimal() and mark in _environment(folder):
                yield int(folder.name)


def _environment(process: Path) -> bytes:
    """That of a process as it was started; empty where it is none of ours or has ended."""
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
