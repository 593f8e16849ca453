"""A run as the queue shows it, from what DBOS knows of it."""

from collections.abc import Sequence
from dataclasses import replace

from dbos import StepInfo, WorkflowStatus

from agentloop._plumbing.to_text import first_line
from agentloop.durable.orders import QueuedRun, RunState
from agentloop.messages import Usage

_STATES: dict[str, RunState] = {
    "ENQUEUED": "queued",
    "DELAYED": "queued",
    "PENDING": "running",
    "CANCELLED": "cancelled",
}
OPEN = ("ENQUEUED", "DELAYED", "PENDING")
CAN_GO_ON = ("CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")


def seen(status: WorkflowStatus) -> QueuedRun:
    """The run that this is the workflow of."""
    attributes = status.attributes or {}
    outcome = status.output if isinstance(status.output, dict) else {}
    used = outcome.get("usage")
    return QueuedRun(
        id=status.workflow_id,
        session_id=attributes.get("session", ""),
        queue=status.queue_name or attributes.get("queue"),
        state=_STATES.get(status.status) or outcome.get("status", "failed"),
        tries=status.recovery_attempts or 0,
        submitted=(status.created_at or 0) / 1000,
        started=_seconds(status.dequeued_at),
        ended=_seconds(status.completed_at),
        worker=status.executor_id,
        usage=Usage(input_tokens=used["input"], output_tokens=used["output"]) if used else None,
        cost=outcome.get("cost"),
        error=outcome.get("error") or _error_of(status),
        prompt=attributes.get("prompt", ""),
    )


def with_steps(run: QueuedRun, steps: Sequence[StepInfo]) -> QueuedRun:
    """The run with what its steps tell: what it is doing, and when it began where a cancel took that away."""
    if not steps:
        return run
    began = _seconds(steps[0]["started_at_epoch_ms"]) if run.is_over else None
    return replace(run, doing=steps[-1]["function_name"], started=run.started or began)


def _error_of(status: WorkflowStatus) -> str | None:
    if status.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
        return f"given up: {status.recovery_attempts} workers began it and died or stopped"
    return first_line(status.error) if status.error else None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
