"""What every command on stored sessions does around its work.

It opens the store that the call names and closes it again, claims standard output, and shows sessions as
lines for people or as data for scripts.
"""

import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial, wraps
from typing import Any, TypeAlias, TypeVar

import click

from agentloop._plumbing.files import read_path
from agentloop.cli.options import STORE, Option
from agentloop.cli.resume import find_session
from agentloop.cli.settings import Settings, settings_of_call
from agentloop.cli.terminal import (
    NO_DATE,
    StandardOutput,
    columns,
    error_console,
    exact_moment,
    moment,
    run_to_end,
    warn,
)
from agentloop.events import is_of_branch
from agentloop.sessions import Sessions, StoredSessions
from agentloop.stores import InMemoryStore, SessionInfo, SessionStore, open_store
from agentloop.stores.base import branch_in

T = TypeVar("T")
_HOUR_SECONDS = 3600.0
HEADING = columns("session", "updated", "length", "title", "folder", "owner", "expires")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A store, what the call is to use, and standard output."""

    store: SessionStore
    settings: Settings
    output: StandardOutput = field(default_factory=partial(StandardOutput, 1))

    @property
    def sessions(self) -> StoredSessions:
        """What is done with its sessions."""
        return stored_sessions(self.settings, self.store)

    async def session(self, name: str) -> SessionInfo:
        """The stored session that is meant; with an owner given, one of theirs.

        Raises:
            SessionNotFoundError: there is none.
            UsageError: there are several, or the name is empty.
        """
        return await find_session(name, self.store, owner=self.settings.owner)

    async def branches(self, info: SessionInfo, name: str | None = None) -> Sequence[SessionInfo]:
        """The logs of the session's sub-agents, oldest first; with a name those of that branch."""
        found = sorted(await self.store.list(branches_of=info.id), key=lambda line: line.created)
        return [line for line in found if name is None or is_of_branch(branch_in(line.id), name)]

    async def branch_names(self, info: SessionInfo) -> Sequence[str]:
        """What the session's sub-agents with logs of their own are called, each once."""
        return list(dict.fromkeys(filter(None, (branch_in(log.id) for log in await self.branches(info)))))


def stored_sessions(settings: Settings, store: SessionStore | None = None) -> StoredSessions:
    """The sessions of that store, one in memory for None, as the call sees them."""
    return StoredSessions(
        sessions=Sessions(
            store=store or InMemoryStore(),
            owner=settings.owner,
            folder=str(settings.workdir),
            ttl_seconds=settings.ttl_seconds,
        ),
        redact=settings.redact,
        transcripts=settings.transcripts,
        model=settings.model,
    )


DAMAGED: Sequence[Option[Any]] = (
    click.option(
        "--damaged",
        type=click.Choice(("refuse", "skip")),
        default="refuse",
        show_default=True,
        help="Stop at a damaged record, or leave each out and say so.",
    ),
)


def warn_of(text: str) -> None:
    """A warning, on standard error."""
    warn(error_console(), text)


Look: TypeAlias = Callable[[Opened], Coroutine[Any, Any, T]]


def run_work(work: Look[None]) -> int:
    """Do it with the store that the call names; the exit status. Standard output is for what it writes."""
    output, settings = StandardOutput.claimed(), settings_of_call()
    run_to_end(_with_store(lambda opened: work(replace(opened, output=output)), settings))
    return 0


def on_store(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., int]:
    """The command that does this with what the options of `STORE` name, and its own options."""

    @wraps(work)
    def command(**given: Any) -> int:
        for option in STORE:
            del given[option.name]
        return run_work(partial(work, **given))

    return command


def find_in_store(look: Look[T]) -> T:
    """What this finds in the store that the call names; standard output is not touched."""
    return run_to_end(_with_store(look, settings_of_call()))


async def _with_store(look: Look[T], settings: Settings) -> T:
    store = open_store(settings.store)
    try:
        return await look(Opened(store=store, settings=settings))
    finally:
        await store.close()


def missing_store(settings: Settings) -> str | None:
    """The line that says that the store is a file that is not there; None where it is, or is no file."""
    path = settings.store.removeprefix("sqlite:///")
    gone = path != settings.store and not os.path.lexists(read_path(path))
    return f"there is no store {path!r} yet: the first run makes it" if gone else None


def row(info: SessionInfo) -> str:
    """A session as one line for people, its fields as `HEADING` names them."""
    ends = "-" if info.expires is None else f"expires {expiry_text(info.expires, info.ttl_seconds)}"
    named = (info.id, moment(info.updated), f"{info.length} records", info.title or "-", info.folder or "-")
    return columns(*named, info.owner or "-", ends)


def as_data(info: SessionInfo) -> dict[str, Any]:
    """A session for scripts."""
    return asdict(info) | {"expires": info.expires}


def expiry_text(expires: float, ttl_seconds: float | None, *, on: str = "") -> str:
    """When a session expires, to the second where it lives for less than an hour; `on` goes before a date."""
    short = ttl_seconds is not None and ttl_seconds < _HOUR_SECONDS
    date = exact_moment(expires) if short else moment(expires)
    return "later than any date" if date == NO_DATE else on + date
