"""Todo: a list of what is to be done, which the model writes and never loses sight of."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from typing_extensions import TypedDict  # which pydantic reads before Python 3.12 too

from agentloop._plumbing.checks import whole_or_none
from agentloop.context import results_of
from agentloop.errors import RetryTool
from agentloop.messages import Message, SeenMessage, ToolCall
from agentloop.prompts import (
    KEPT_IN_SIGHT,
    TODO_EMPTY,
    TODO_LIST,
    TODO_REMINDER,
)
from agentloop.tools import RunContext, Tool, ToolSet, tool, tools_of

TODO_WRITE, TODO_READ = "todo_write", "todo_read"

REMIND_AFTER = 5
MOST_ITEMS = 50
MOST_ITEM_CHARS = 300

MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
_OPEN = ("[ ] ", "[>] ")


class TodoItem(TypedDict):
    """One line of the list."""

    content: str
    status: Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, kw_only=True)
class Todo(ToolSet):
    """The tools `todo_write` and `todo_read`, for an agent that works in many steps.

    The model writes the whole list each time, with one item in progress at most. A list that is at odds with
    that is refused, and the one before stands. Whatever a compaction hides, the newest list stays in sight as
    long as something of it is open. After `remind_after` steps with calls and none of `todo_write`, the model
    is reminded once, behind the next result; None never reminds.

    The list is that of the last `todo_write` in the session's log. So it is there after a crash and in
    another process, and what `undo` or `rewind` take back is taken back of it too.

    Example:
        >>> from agentloop import Agent, OfflineModel
        >>> agent = Agent(OfflineModel(), tools=[Todo()])
        >>> list(agent.registry)
        ['todo_write', 'todo_read']

    Raises:
        UsageError: `remind_after` is no whole number of at least 1.
    """

    remind_after: int | None = REMIND_AFTER
    priority = 10

    def __post_init__(self) -> None:
        whole_or_none("remind_after", self.remind_after, 1)

    @property
    def tools(self) -> Sequence[Tool]:
        """Both tools."""
        return tools_of(todo_write, todo_read)

    def pinned(self, said: Sequence[SeenMessage], fits: Callable[[str], bool]) -> str:
        """The newest list where it is out of sight and open; its open items alone where all have no room."""
        newest = next(_lists(said), None)
        if newest is None or newest[1] or not _is_open(text := newest[0]):
            return ""
        if fits(text):
            return text
        return "\n".join((TODO_LIST, *(line for line in text.splitlines() if line.startswith(_OPEN))))

    def reminder(self, messages: Sequence[Message]) -> str:
        """Said once, at the step that makes it so many without an update of an open list."""
        steps, results = 0, dict[str | None, str]()
        for message in reversed(messages):
            if message.role == "tool":
                results[message.tool_call_id] = message.text
            elif _is_kept(message):
                return self._after(steps, message.text)
            elif message.tool_calls:
                written = [call.id for call in message.tool_calls if call.name == TODO_WRITE]
                for call_id in reversed(written):
                    text = results.get(call_id, TODO_LIST)  # without a result yet it is being updated
                    if text.startswith(TODO_LIST):
                        return self._after(steps, text)
                steps += 1
                if steps > (self.remind_after or 0):
                    break
        return ""

    def _after(self, steps: int, text: str) -> str:
        return TODO_REMINDER.format(steps=steps) if steps == self.remind_after and _is_open(text) else ""


@tool(idempotent=True, keep=True)
def todo_write(items: Sequence[TodoItem]) -> str:
    """Write the whole list of what is to be done, in order; it replaces the last one.

    Use it for work of three or more steps: write it before you begin, and again whenever a step begins or
    ends. One item at a time is in_progress.

    Args:
        items: What is to be done, each in one line.

    Raises:
        RetryTool: it is too long, an item says nothing, or more than one is in progress.
    """
    if len(items) > MOST_ITEMS:
        raise RetryTool(f"at most {MOST_ITEMS} items, not {len(items)}: join some, or leave out what is done")
    if not all(_line(item) for item in items):
        raise RetryTool("an item has no content: say what is to be done")
    if any(len(_line(item)) > MOST_ITEM_CHARS for item in items):
        raise RetryTool(f"an item has more than {MOST_ITEM_CHARS} characters: say it shorter")
    if (busy := sum(item["status"] == "in_progress" for item in items)) > 1:
        raise RetryTool(f"{busy} items are in_progress: only one may be, the others are pending or completed")
    return _list_text(items)


@tool(idempotent=True)
async def todo_read(context: RunContext[object]) -> str:
    """Show the list of what is to be done, as it was last written."""
    return next((text for text, _ in _lists(await context.said())), _list_text(()))


def _lists(said: Sequence[SeenMessage]) -> Iterator[tuple[str, bool]]:
    """The lists that were accepted, newest first, each with whether it is in sight."""
    for call, result in results_of(TODO_WRITE, said):
        if result.message.text.startswith(TODO_LIST):
            yield _written(call, result.message.text), result.in_sight


def _written(call: ToolCall, result: str) -> str:
    """The list of an accepted call; as its result shows it where a redaction took the arguments apart."""
    items = (call.decoded() or {}).get("items")
    try:
        return todo_write(items) if isinstance(items, list) else result
    except (RetryTool, LookupError, TypeError, AttributeError):
        return result


def _list_text(items: Sequence[TodoItem]) -> str:
    lines = [f"{MARKS[item['status']]} {_line(item)}" for item in items]
    return "\n".join((TODO_LIST, *(lines or [TODO_EMPTY])))


def _line(item: TodoItem) -> str:
    return " ".join(str(item["content"]).split())


def _is_kept(message: Message) -> bool:
    """Whether it keeps a list in sight; a user may name one too."""
    text = message.text if message.role == "user" else ""
    return text.startswith(KEPT_IN_SIGHT) and TODO_LIST in text


def _is_open(text: str) -> bool:
    return any(line.startswith(_OPEN) for line in text.splitlines())
