"""Tool sets: tools that belong together, and what the model is to keep in sight of them."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from agentloop._plumbing.aio import ENDING_SECONDS, within
from agentloop._plumbing.callables import name_of
from agentloop._plumbing.host_logging import warn
from agentloop._plumbing.to_text import words_of
from agentloop.errors import UsageError
from agentloop.messages import Message, SeenMessage
from agentloop.tools.registry import Tool
from agentloop.tools.run_context import RunContext

T = TypeVar("T")


class ToolSet:
    """Tools that belong together, for the `tools` of an agent; override what it needs of this.

    What a set says is made from what was said in the session, so it is the same after a crash, and in another
    process. What it holds beside that for a run it puts away at the run's end. A method that raises says
    nothing, and a line of the host's log tells why.

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
    def needs(self) -> Collection[str]:
        """The names of tools that its agent must have beside it: it is refused where one is missing."""
        return ()

    @property
    def tools(self) -> Sequence[Tool | Callable[..., Any]]:
        """The tools."""
        return ()

    @property
    def tools_changed(self) -> int:
        """How often its tools have changed: a run offers the new ones from its next request on."""
        return 0

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

    def reminder(self, messages: Sequence[Message]) -> str:
        """What to remind the model of now; empty for nothing.

        It is asked once for each batch of calls, with what is in sight up to them, and stands behind the
        result of the first of them, in one line; a long one is cut to its head and tail. The same messages
        must give the same text; what happens outside of the session is told by `notice`.
        """
        return ""

    async def notice(self, context: RunContext[Any]) -> str:
        """What has happened meanwhile that the model is to be told of now; empty for nothing.

        It is asked for and stands as a reminder does. What was told stands in what `context.said` reads: what
        does not, since it could not be stored, is to be told again. It may take ten seconds.
        """
        return ""

    async def run_ended(self, session_id: str) -> Mapping[str, str]:
        """Put away what is held for the run of this session, which ends now, in whatever way.

        Who watches the run is shown what it returns: texts by the ids of the calls that they are about. It
        may take ten seconds.
        """
        return {}


async def notice_from(each: ToolSet, context: RunContext[Any]) -> str:
    """What this set tells of now; nothing where it fails, as in `text_from`."""
    told = await _ask_in_time(each.notice, context)
    return text_from(lambda: "" if told is None else told)


async def put_away_by(each: ToolSet, session_id: str) -> Mapping[str, str]:
    """What this set tells at the end of a run of that session; nothing where it fails."""
    told = await _ask_in_time(each.run_ended, session_id) or {}
    return {str(name): str(text) for name, text in told.items()} if isinstance(told, Mapping) else {}


async def _ask_in_time(ask: Callable[..., Awaitable[T]], *given: object) -> T | None:
    if getattr(ask, "__func__", None) in (ToolSet.notice, ToolSet.run_ended):
        return None

    async def asked() -> T:
        return await ask(*given)

    try:
        return await within(asked(), seconds=ENDING_SECONDS)
    except Exception as error:  # noqa: BLE001 — a tool set of the user's own may raise anything
        _left_out(ask, error)
        return None


def tools_of(*functions: Callable[..., Any]) -> tuple[Tool, ...]:
    """The tools that these functions are."""
    return tuple(map(Tool.of, functions))


def text_from(ask: Callable[..., object], *given: object) -> str:
    """What this method of a tool set says; nothing where it fails, of which the host's log tells."""
    try:
        return _text(ask(*given))
    except Exception as error:  # noqa: BLE001 — a tool set of the user's own may raise anything
        return _left_out(ask, error)


def _text(said: object) -> str:
    if isinstance(said, str):
        return said.strip()
    raise UsageError(f"it must give a text, not {type(said).__name__}")


def _left_out(ask: Callable[..., object], error: Exception) -> str:
    name = getattr(ask, "__qualname__", None) or name_of(ask)
    warn("what a tool set says is left out", of=name, error=words_of(error))
    return ""
