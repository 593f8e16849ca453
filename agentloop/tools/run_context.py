"""What a tool may know of the run that calls it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agentloop.messages import SeenMessage, Usage
from agentloop.tools.invoke import ToolAnswer

Deps = TypeVar("Deps")


def _said_to_nobody(text: str) -> None:
    """Progress that nobody watches."""


def _as_it_is(text: str) -> str:
    """A text in a run that redacts nothing."""
    return text


async def _said_nothing() -> Sequence[SeenMessage]:
    """The session of a call that is outside of any."""
    return ()


async def _no_tools(name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
    """What is answered to a call that is outside of any run."""
    return ToolAnswer(f"There is no tool {name!r}: nothing runs here.", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext(Generic[Deps]):
    """Who calls, and for whom; a tool's parameter annotated with it is filled in and hidden from the schema.

    `deps` is the object given to `run(deps=…)`, `usage` what the run has used so far. `on_progress` is
    called by whatever thread the tool runs in.

    A result is redacted as a whole where the run redacts. A tool that cuts a text into pieces redacts it with
    `redact` before, so that no secret is cut in two; it may be called in any thread. `said` reads what was
    said in the session up to the call, oldest first. `call_tool` calls another tool of the agent by its name,
    and raises nothing where that fails.
    """

    session_id: str
    run_id: str
    call_id: str
    deps: Deps
    usage: Usage = field(default_factory=Usage)
    on_progress: Callable[[str], None] = _said_to_nobody
    redact: Callable[[str], str] = _as_it_is
    said: Callable[[], Awaitable[Sequence[SeenMessage]]] = _said_nothing
    call_tool: Callable[[str, Mapping[str, Any]], Awaitable[ToolAnswer]] = _no_tools

    def progress(self, text: str) -> None:
        """Say how far the tool has come to whoever watches the run."""
        self.on_progress(text)
