"""Programs as forks of a warm process, each with pipes or a terminal, signals and an end of its own.

One warm process forks for all processes of the tests. A test connects to its socket, hands it three
descriptors and says what to run. In between stands one that waits for the program and says how it ended,
since only a parent is told.
"""

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from tests.warm_kit import LONGEST_ANSWER_SECONDS, ROOT, Warm

ADDRESS = "FORK_SERVER"
"""The variable that names the socket, to this process and to those that it starts."""

PROGRAM = "tests.cli_kit"
"""The module that is loaded at the first call; its `run_program` is what forks run."""

KEPT = ("PATH", "LANG", "COVERAGE_PROCESS_START", "SSL_CERT_FILE")
_NO_STATUS = 99
MOST_DESCRIPTORS = 1_024


def environment(home: Path, **more: str) -> dict[str, str]:
    """A clean environment: no keys, a home of its own, the checkout to import from."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    own = {"HOME": str(home), "AGENTLOOP_HOME": str(home / "agentloop"), "PYTHONPATH": str(ROOT)}
    return kept | own | {"COLUMNS": "200", "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm"} | more


@contextmanager
def fork_server() -> Iterator[None]:
    """Within the block this process and those that it starts can have forks."""
    with TemporaryDirectory(prefix="forks-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen()
        own = environment(ROOT, PYTHONHASHSEED="0")
        server = Warm("tests.forks", str(listener.fileno()), environment=own, keep=[listener.fileno()])
        os.environ[ADDRESS] = listener.getsockname()
        listener.close()  # who asks for a fork when the server has died is refused, and does not wait
        try:
            yield
        finally:
            del os.environ[ADDRESS]
            server.end()


class Forked:
    """A program under way, as a `Popen` in text mode; what it is given is a pipe or a descriptor.

    No wait for it is without an end: one that hangs for `LONGEST_ANSWER_SECONDS` raises `TimeoutExpired`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        terminal: bool = False,
        **streams: Any,
    ) -> None:
        ours: dict[str, int] = {}
        theirs, made = [], []
        for name in ("stdin", "stdout", "stderr"):
            given = streams[name]
            if given == subprocess.PIPE:
                ends = os.pipe()
                ours[name], given = ends[::-1] if name == "stdin" else ends
                made.append(given)
            elif given == subprocess.DEVNULL:
                given = os.open(os.devnull, os.O_RDWR)
                made.append(given)
            theirs.append(given if isinstance(given, int) else given.fileno())
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(os.environ[ADDRESS])
        socket.send_fds(self._connection, [b"."], theirs)
        asked = json.dumps([[*arguments], str(cwd), {**env}, terminal])
        self._connection.sendall(f"{asked}\n".encode())
        for descriptor in made:
            os.close(descriptor)
        self._said = self._connection.makefile()
        assert _readable(self._connection, LONGEST_ANSWER_SECONDS), "the process that forks hangs"
        self.pid = int(self._said.readline())
        self.returncode: int | None = None
        self._acts: list[threading.Thread] = []
        self._read_whole: dict[str, str] = {}
        self.stdin, self.stdout, self.stderr = (
            open(ours[name], mode, encoding="utf-8") if name in ours else None  # noqa: PTH123, SIM115
            for name, mode in (("stdin", "w"), ("stdout", "r"), ("stderr", "r"))
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            with suppress(BrokenPipeError):
                if stream:
                    stream.close()
        self.wait()
        self._said.close()
        self._connection.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float = LONGEST_ANSWER_SECONDS) -> int:
        if self.returncode is None:
            if not _readable(self._connection, timeout):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self.returncode = int(self._said.readline())
        return self.returncode

    def communicate(
        self, text: str | None = None, timeout: float = LONGEST_ANSWER_SECONDS
    ) -> tuple[Any, Any]:
        """Say `text`, read both streams to their ends and wait; what is no pipe is None.

        Called again after a `TimeoutExpired` it goes on, and nothing is lost.
        """
        if not self._acts:
            self._acts = [
                threading.Thread(target=self._read, args=[name], daemon=True)
                for name in ("stdout", "stderr")
                if getattr(self, name) and not getattr(self, name).closed
            ]
            if self.stdin and not self.stdin.closed:
                self._acts.append(threading.Thread(target=self._say, args=[text or ""], daemon=True))
            for act in self._acts:
                act.start()
        for act in self._acts:
            act.join(timeout)
            if act.is_alive():
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        self.wait(timeout)
        return self._read_whole.get("stdout"), self._read_whole.get("stderr")

    def _read(self, name: str) -> None:
        self._read_whole[name] = getattr(self, name).read()

    def _say(self, text: str) -> None:
        assert self.stdin
        with suppress(BrokenPipeError):
            self.stdin.write(text)
        with suppress(BrokenPipeError):
            self.stdin.close()


def _readable(connection: socket.socket, timeout: float) -> bool:
    ready, _, _ = select.select([connection], [], [], timeout)
    return bool(ready)


def serve_forks(listener: socket.socket) -> None:
    """Fork for whoever connects, until standard input ends; the program is loaded for the first of them."""
    program: Any = None
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        if program is None:
            program = import_module(PROGRAM)
            program.load_program()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        connection, _ = listener.accept()
        with connection:
            if not os.fork():
                _fork_and_wait(connection, program.run_program)


def _fork_and_wait(connection: socket.socket, run: Callable[[Sequence[str]], object]) -> None:
    """Between the two: hand the descriptors on, and say the program's process and its end."""
    try:
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
        asked = json.loads(connection.makefile().readline())
        child = os.fork()
        if not child:
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
            os.closerange(3, MOST_DESCRIPTORS)
            _become(run, *asked)
        os.closerange(0, connection.fileno())
        os.closerange(connection.fileno() + 1, MOST_DESCRIPTORS)
        connection.sendall(f"{child}\n".encode())
        _, ended = os.waitpid(child, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    finally:
        os._exit(0)


def _become(
    run: Callable[[Sequence[str]], object],
    arguments: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    terminal: bool,
) -> None:
    """Be as a process just begun; taking down all that was loaded would take longer than the call."""
    status = _NO_STATUS
    try:
        if terminal:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(cwd)
        sys.path.insert(0, cwd)
        sys.argv = ["__main__.py", *arguments]
        sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
        run(arguments)
    except SystemExit as ending:
        status = int(ending.code or 0)
    except BaseException:  # noqa: BLE001 — a traceback is what the test will show
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve_forks(socket.socket(fileno=int(sys.argv[1])))
