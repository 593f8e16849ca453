"""What a tool may know of the run that calls it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agentloop.errors import UsageError
from agentloop.messages import Usage
from agentloop.tools.invoke import ToolAnswer

Deps = TypeVar("Deps")


def _said_to_nobody(text: str) -> None:
    """Progress that nobody watches."""


def _as_it_is(text: str) -> str:
    """A text in a run that redacts nothing."""
    return text


async def _run_by_nobody(agent: Any, task: str) -> ToolAnswer:
    """A sub-agent without a run that it could be a part of."""
    raise UsageError("a sub-agent works inside of a run: give its tool to an agent that a Runner runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext(Generic[Deps]):
    """Who calls, and for whom; a tool's parameter annotated with it is filled in and hidden from the schema.

    `deps` is the object given to `run(deps=…)`, `usage` what the run has used so far. `on_progress` is
    called by whatever thread the tool runs in.

    A result is redacted as a whole where the run redacts. A tool that cuts a text into pieces redacts it with
    `redact` before, so that no secret is cut in two; it may be called in any thread. `run_agent` is what the
    tool of a sub-agent calls (`Agent.as_tool`).
    """

    session_id: str
    run_id: str
    call_id: str
    deps: Deps
    usage: Usage = field(default_factory=Usage)
    on_progress: Callable[[str], None] = _said_to_nobody
    redact: Callable[[str], str] = _as_it_is
    run_agent: Callable[[Any, str], Awaitable[ToolAnswer]] = _run_by_nobody

    def progress(self, text: str) -> None:
        """Say how far the tool has come to whoever watches the run."""
        self.on_progress(text)
