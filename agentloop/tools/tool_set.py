"""Tool sets: tools that belong together, and what the model is to keep in sight of them."""

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any

from agentloop._plumbing.aio import within
from agentloop._plumbing.callables import name_of
from agentloop._plumbing.host_logging import warn
from agentloop._plumbing.to_text import words_of
from agentloop.errors import UsageError
from agentloop.messages import Json, Message, SeenMessage
from agentloop.tools.registry import Tool

REMINDER_SECONDS = 2.0


class ToolSet:
    """Tools that belong together, for the `tools` of an agent; override what it needs of this.

    A set holds nothing of any session: what it says is made from what was said there, so it is the same
    after a crash, and in another process. What raises says nothing, and a line of the host's log tells why.

    Example:
        >>> from agentloop import Agent, OfflineModel
        >>> class House(ToolSet):
        ...     def pinned(self, said, fits):
        ...         return "The house is number 7."
        >>> agent = Agent(OfflineModel(), tools=[House()])
    """

    priority: int = 0
    """Sets of a higher one are asked first for what is pinned, and have its room first."""

    @property
    def tools(self) -> Sequence[Tool | Callable[..., Any]]:
        """The tools."""
        return ()

    @property
    def instructions(self) -> str:
        """What stands behind the agent's instructions; it may not change while the set is in use."""
        return ""

    def pinned(self, said: Sequence[SeenMessage], fits: Callable[[str], bool]) -> str:
        """What must stay in sight though a compaction hides messages; empty for nothing.

        `said` is what was said so far, oldest first, as the compaction leaves it in sight. `fits` says
        whether a text has room; a longer one is cut to its head and tail. It stands behind the summary, with
        what other sets pin, until the next compaction. The same messages must give the same text.
        """
        return ""

    def reminder(self, messages: Sequence[Message]) -> str | Awaitable[str]:
        """What to remind the model of now; empty for nothing.

        It is asked once for each batch of calls, with what is in sight up to them, and stands behind the
        result of the first of them, in one line; a long one is cut to its head and tail. An async one may
        look outside of the session, for two seconds at most.
        """
        return ""


def tool_of(
    name: str,
    description: str,
    function: Callable[..., Any],
    properties: Json | None = None,
    *required: str,
    idempotent: bool = False,
    keep: bool = False,
) -> Tool:
    """A tool of a set, which takes an object of these properties; what is not required may be left out."""
    return Tool(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": properties or {},
            **({"required": list(required)} if required else {}),
        },
        function=function,
        idempotent=idempotent,
        keep=keep,
    )


def text_from(ask: Callable[..., object], *given: object) -> str:
    """What this method of a tool set says; nothing where it fails, of which the host's log tells."""
    try:
        return _text(ask(*given))
    except Exception as error:  # noqa: BLE001 — a tool set of the user's own may raise anything
        return _left_out(ask, error)


async def reminder_from(each: ToolSet, messages: Sequence[Message]) -> str:
    """What this tool set reminds of, in the same way."""
    try:
        said = each.reminder(messages)
        return _text(await within(_awaited(said), seconds=REMINDER_SECONDS) if isawaitable(said) else said)
    except Exception as error:  # noqa: BLE001 — a tool set of the user's own may raise anything
        return _left_out(each.reminder, error)


async def _awaited(said: Awaitable[object]) -> object:
    return await said


def _text(said: object) -> str:
    if isinstance(said, str):
        return said.strip()
    raise UsageError(f"it must give a text, not {type(said).__name__}")


def _left_out(ask: Callable[..., object], error: Exception) -> str:
    name = getattr(ask, "__qualname__", None) or name_of(ask)
    warn("what a tool set says is left out", of=name, error=words_of(error))
    return ""
