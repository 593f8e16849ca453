"""Durable runs as lines for people."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from agentloop.cli.lines import columns, exact_moment
from agentloop.cli.output import printable
from agentloop.durable import QueuedRun
from agentloop.stream import AnyStreamEvent, RunEnded, RunStarted, RunStatus

HEADING = columns("run", "state", "session", "queue", "submitted", "took", "tries", "prompt", "error")


def word_of(run: QueuedRun) -> RunStatus:
    """The word of the exit table for a run that is over."""
    match run.state:
        case "queued" | "running" | "cancelled":
            return "interrupted"
        case word:
            return word


@dataclass(frozen=True, slots=True)
class RunEdges:
    """Turns the events of a worker's runs into lines: which begin, go on here and end."""

    under_way: set[str] = field(default_factory=set)

    def line(self, event: AnyStreamEvent) -> str | None:
        """The line for this event, None where it is worth none."""
        is_new = event.run_id not in self.under_way
        if isinstance(event, RunEnded):
            self.under_way.discard(event.run_id)
            return f"run {event.run_id} {event.status}{f': {event.error}' if event.error else ''}"
        self.under_way.add(event.run_id)
        if not is_new:
            return None
        how = "begins" if isinstance(event, RunStarted) else "goes on here"
        return f"run {event.run_id} {how}, session {event.session_id}"


def row(run: QueuedRun) -> str:
    """A run as one line, its fields as `HEADING` names them."""
    where = (run.id, run.state, run.session_id, run.queue or "-")
    when = (exact_moment(run.submitted), _took(run), str(run.tries))
    return columns(*where, *when, run.prompt or "-", run.error or "-")


def page(run: QueuedRun, answer: str) -> str:
    """All that is known of a run, a line each, and its answer."""
    lines = (f"{name}: {printable(' '.join(value.split()))}\n" for name, value in _fields(run))
    return "".join(lines) + (f"\n{printable(answer)}\n" if answer else "")


def _fields(run: QueuedRun) -> Iterator[tuple[str, str]]:
    yield "run", run.id
    yield "session", run.session_id
    yield "queue", run.queue or "-"
    yield "prompt", run.prompt or "-"
    yield "state", run.state
    yield "tries", str(run.tries)
    yield "submitted", exact_moment(run.submitted)
    if run.started is not None:
        yield "started", exact_moment(run.started)
    if run.ended is not None:
        yield "ended", exact_moment(run.ended)
    if run.worker:
        yield "worker", run.worker
    if run.doing:
        yield "last step", run.doing
    if run.usage:
        yield "tokens", f"{run.usage.input_tokens} in, {run.usage.output_tokens} out"
    if run.cost is not None:
        yield "cost", f"${run.cost:.4f}"
    if run.error:
        yield "error", run.error


def _took(run: QueuedRun) -> str:
    if run.started is None or run.ended is None:
        return "-"
    return f"{run.ended - run.started:.1f} s"
