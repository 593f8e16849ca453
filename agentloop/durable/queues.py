"""How queues are worked off: their limits, by all workers together and by each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentloop._plumbing.checks import MOST_COUNT, shown, up_to, whole, whole_or_none
from agentloop.durable.orders import checked_queue
from agentloop.errors import UsageError


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
        checked_queue(self.name)
        whole_or_none("most", self.most, 1, most=MOST_COUNT)
        whole_or_none("each", self.each, 1, most=MOST_COUNT)
        if not isinstance(self.rate, Rate | None):
            raise UsageError(f"rate must be a Rate(runs=…, seconds=…), not {shown(self.rate)}")


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
