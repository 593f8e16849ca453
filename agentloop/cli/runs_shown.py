"""Durable runs as lines for people."""

import time
from collections.abc import Iterator

from agentloop.cli.output import printable
from agentloop.cli.sessions.work import columns
from agentloop.durable import QueuedRun
from agentloop.stream import RunStatus


def word_of(run: QueuedRun) -> RunStatus:
    """The word of the exit table for a run that is over."""
    match run.state:
        case "queued" | "running" | "cancelled":
            return "interrupted"
        case word:
            return word


def row(run: QueuedRun) -> str:
    """A run as one line."""
    tries = f"{run.tries} tries" if run.tries != 1 else "1 try"
    return columns(
        run.id, run.state, run.session_id, clock(run.submitted), _took(run), tries, run.error or "-"
    )


def page(run: QueuedRun, answer: str) -> str:
    """All that is known of a run, a line each, and its answer."""
    lines = (f"{name}: {printable(' '.join(value.split()))}\n" for name, value in _fields(run))
    return "".join(lines) + (f"\n{printable(answer)}\n" if answer else "")


def _fields(run: QueuedRun) -> Iterator[tuple[str, str]]:
    yield "run", run.id
    yield "session", run.session_id
    yield "queue", run.queue or "-"
    yield "state", run.state
    yield "tries", str(run.tries)
    yield "submitted", clock(run.submitted)
    if run.started is not None:
        yield "started", clock(run.started)
    if run.ended is not None:
        yield "ended", clock(run.ended)
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


def clock(seconds: float) -> str:
    """A time as people here write it, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _took(run: QueuedRun) -> str:
    if run.started is None or run.ended is None:
        return "-"
    return f"{run.ended - run.started:.1f} s"
