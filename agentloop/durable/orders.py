"""What is put in the queue, and what is seen of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agentloop.errors import UsageError
from agentloop.messages import Message, Usage
from agentloop.stream import RunStatus

APPLICATION = "agentloop"
WORKFLOW = "agentloop_run"
"""What DBOS knows the runs of this package by."""

QUEUE = "agentloop"
"""The queue where none is named."""

RunState: TypeAlias = Literal["queued", "running", "cancelled"] | RunStatus
"""Where a run stands: it waits, it is worked on, it was cancelled, or the word of the exit table."""

_QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One run to be done: what is said in which session.

    `owner` and `ttl_seconds` are those of a session that begins with it.
    """

    session_id: str
    prompt: Message
    owner: str | None = None
    ttl_seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The order as plain data."""
        return {
            "session": self.session_id,
            "prompt": self.prompt.to_openai(),
            "owner": self.owner,
            "ttl": self.ttl_seconds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Order":
        """The order that this data stands for; one of an earlier version names no time to live."""
        return cls(
            session_id=data["session"],
            prompt=Message.from_openai(data["prompt"]),
            owner=data["owner"],
            ttl_seconds=data.get("ttl"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """One run as the queue knows it; times in seconds since the epoch, None where it is not so far.

    `prompt` is the beginning of what was said. `tries` is how often a worker began or took over the run;
    `worker` has it now, or had it last. `doing` is the newest step that is finished, None before the first
    and where it was not asked for. `usage` and `cost` (US dollars) are those of a run that ended. `error`
    says why it came to no answer, or goes on nowhere.
    """

    id: str
    session_id: str
    queue: str | None
    state: RunState
    tries: int
    submitted: float
    started: float | None
    ended: float | None
    worker: str | None = None
    doing: str | None = None
    usage: Usage | None = None
    cost: float | None = None
    error: str | None = None
    prompt: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.state not in ("queued", "running")


class RunCancelledError(Exception):
    """Somebody cancelled the run; its next step says so."""


def checked_queue(name: str) -> str:
    """The name of a queue itself.

    Raises:
        UsageError: it is not 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or a digit.
    """
    if isinstance(name, str) and _QUEUE_NAME.fullmatch(name):
        return name
    raise UsageError(
        f"bad queue {ascii(name)[:40]}: use 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or a digit"
    )


def checked_url(store: str) -> str:
    """The URL of a PostgreSQL database itself.

    Raises:
        UsageError: it is another store's.
    """
    if isinstance(store, str) and store.startswith(("postgresql://", "postgres://")):
        return store.replace("postgres://", "postgresql://", 1) if store.startswith("postgres://") else store
    shown = store.partition(":")[0][:20] if isinstance(store, str) else type(store).__name__
    raise UsageError(
        f"durable runs need a PostgreSQL store, not {shown!r}: its URL begins with postgresql://"
    )
