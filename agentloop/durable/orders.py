"""What is queued and how it is shown: orders, queues and their limits."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

from dbos import StepInfo, WorkflowStatus

from agentloop._plumbing.checks import (
    MOST_COUNT,
    checked_name,
    finite,
    instance_or_none,
    is_kept_number,
    is_kept_whole,
    shown,
    texts_or_none,
    up_to,
    whole,
    whole_or_none,
)
from agentloop._plumbing.strict_json import mapping_or_empty
from agentloop._plumbing.to_text import first_line
from agentloop.approvals import Answers, answers_from_json, answers_to_json
from agentloop.errors import UsageError
from agentloop.messages import Message, Usage
from agentloop.run import as_user_message
from agentloop.stores.base import check_trunk, checked_owner, checked_ttl
from agentloop.stream import RunStatus

APPLICATION = "agentloop"
WORKFLOW = "agentloop_run"
"""What DBOS knows the runs of this package by."""

QUEUE = "agentloop"
"""The queue where none is named."""

RunState: TypeAlias = Literal["queued", "running", "cancelled"] | RunStatus
"""Where a run stands: it waits, it is worked on, it was cancelled, or the word of the exit table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One run to be done: what is said in which session, or the answers by which it goes on.

    `owner` and `ttl_seconds` are those of a session that begins with it. `submitted` is in seconds since the
    epoch, `carrier` is for callbacks `around`.
    """

    session_id: str
    prompt: Message | None
    submitted: float
    owner: str | None = None
    ttl_seconds: float | None = None
    carrier: Mapping[str, str] = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)

    def to_text(self) -> str:
        """The order as JSON."""
        return json.dumps(
            {
                "session": self.session_id,
                "prompt": self.prompt and self.prompt.to_openai(),
                "owner": self.owner,
                "ttl": self.ttl_seconds,
                "submitted": self.submitted,
                "carrier": dict(self.carrier),
                "answers": answers_to_json(self.answers),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> "Order":
        """The order that this text stands for; one of an earlier version has less.

        Raises:
            UsageError: it is none, or says what nobody can submit: anyone may have written it.
        """
        try:
            data = json.loads(text)
            prompt, submitted = data["prompt"], data["submitted"]
            finite("submitted", submitted)
            return cls(
                session_id=check_trunk(data["session"]),
                prompt=None if prompt is None else as_user_message(Message.from_openai(prompt)),
                submitted=submitted,
                owner=checked_owner(data["owner"]),
                ttl_seconds=checked_ttl(data.get("ttl")),
                carrier=texts_or_none("carrier", data.get("carrier")) or {},
                answers=answers_from_json(data.get("answers", {})),
            )
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            why = error if isinstance(error, UsageError) else "it is no JSON object with all that one has"
            raise UsageError(f"what stands in the queue is no order: {why}") from None


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


_STATES: dict[str, RunState] = {
    "ENQUEUED": "queued",
    "DELAYED": "queued",
    "PENDING": "running",
    "CANCELLED": "cancelled",
}
OPEN = ("ENQUEUED", "DELAYED", "PENDING")
CAN_GO_ON = ("CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")


def as_queued_run(status: WorkflowStatus) -> QueuedRun:
    """The run that this is the workflow of; whoever wrote it, what has not its type is left out."""
    attributes, outcome = mapping_or_empty(status.attributes), mapping_or_empty(status.output)
    used, cost = mapping_or_empty(outcome.get("usage")), outcome.get("cost")
    came_to: list[RunState] = [word for word in get_args(RunStatus) if word == outcome.get("status")]
    asked, said = used.get("input"), used.get("output")
    return QueuedRun(
        id=status.workflow_id,
        session_id=_text(attributes.get("session")),
        queue=status.queue_name or _text(attributes.get("queue")) or None,
        state=_STATES.get(status.status) or (came_to[0] if came_to else "failed"),
        tries=status.recovery_attempts or 0,
        submitted=(status.created_at or 0) / 1000,
        started=_seconds(status.dequeued_at),
        ended=_seconds(status.completed_at),
        worker=status.executor_id,
        usage=Usage(input_tokens=asked, output_tokens=said)
        if is_kept_whole(asked) and is_kept_whole(said)
        else None,
        cost=cost if is_kept_number(cost) else None,
        error=_text(outcome.get("error")) or _error_of(status),
        prompt=_text(attributes.get("prompt")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def with_steps(run: QueuedRun, steps: Sequence[StepInfo]) -> QueuedRun:
    """The run with what its steps tell: what it is doing, and when it began where a cancel took that away."""
    if not steps:
        return run
    began = _seconds(steps[0]["started_at_epoch_ms"]) if run.is_over else None
    return replace(run, doing=steps[-1]["function_name"], started=run.started or began)


def _error_of(status: WorkflowStatus) -> str | None:
    if status.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
        return f"given up: {status.recovery_attempts} workers began it and died or stopped"
    if isinstance(status.error, str):
        return "why it failed cannot be read"
    return first_line(status.error) if status.error else None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """No more than `runs` of a queue begin within any `seconds`.

    Raises:
        UsageError: `runs` is no whole number from 1 to 2,147,483,647, or `seconds` no number above 0 and at
            most that.
    """

    runs: int
    seconds: float

    def __post_init__(self) -> None:
        whole("runs", self.runs, 1, most=MOST_COUNT)
        up_to("seconds", self.seconds, MOST_COUNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How a queue is worked off: by all workers together, and by each.

    `most` is how many of its runs go on at once over all workers, `each` in one worker; None for no limit.
    They stand in the database and hold for all workers of the queue: those of the worker that started last.

    Raises:
        UsageError: the name is none of a queue, or a limit no whole number from 1 to 2,147,483,647.
    """

    name: str
    most: int | None = None
    each: int | None = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        checked_name("queue", self.name)
        whole_or_none("most", self.most, 1, most=MOST_COUNT)
        whole_or_none("each", self.each, 1, most=MOST_COUNT)
        instance_or_none("rate", self.rate, Rate)


def with_limits(queues: Iterable[str | QueueLimits], concurrency: int) -> Sequence[QueueLimits]:
    """Each of these queues with its limits; one that is but named does `concurrency` runs in each worker.

    >>> [(queue.name, queue.each) for queue in with_limits(["a", "a", QueueLimits(name="b")], 4)]
    [('a', 4), ('b', None)]

    Raises:
        UsageError: they are no list, there is none, one is named twice with other limits, or a name is none
            of a queue.
    """
    if isinstance(queues, str | QueueLimits):
        queues = (queues,)
    if not isinstance(queues, Iterable):
        raise UsageError(f"queues must be a list of names or QueueLimits, not {shown(queues)}")
    found: dict[str, QueueLimits] = {}
    for queue in queues:
        limits = queue if isinstance(queue, QueueLimits) else QueueLimits(name=queue, each=concurrency)
        if found.setdefault(limits.name, limits) != limits:
            raise UsageError(f"queue {limits.name!r} is named twice, with other limits: name it once")
    if not found:
        raise UsageError("queues is empty: name one, e.g. 'agentloop'")
    return list(found.values())


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
