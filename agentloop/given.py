"""What a caller gives a run, checked before anything is stored."""

import copy
from collections.abc import Iterable
from pathlib import Path

from agentloop._plumbing.checks import shown, text_or_none
from agentloop._plumbing.truncate import head
from agentloop.callbacks import Callbacks
from agentloop.context import Budget, Context
from agentloop.errors import UsageError
from agentloop.events import MessageAdded, Record
from agentloop.messages import Message

MOST_TITLE_CHARS = 60

_METHODS = [name for name in vars(Callbacks) if not name.startswith("_")]


def title_of(message: Message) -> str:
    """The first words of what is said, on one line of at most 60 characters."""
    title = " ".join(message.text.split())
    if len(title) <= MOST_TITLE_CHARS:
        return title
    return head(title, MOST_TITLE_CHARS - 1).rstrip() + "…"


def check_prompt(budget: Budget, said: MessageAdded | None) -> None:
    """Refuse what can never fit before anything is stored.

    Raises:
        ContextOverflowError: the fixed part, or it together with the prompt, is larger than the window.
    """
    alone = [Record(seq=1, event=said)] if said else []
    budget.check(Context.of(alone))


def instances(callbacks: Iterable[Callbacks]) -> tuple[Callbacks, ...]:
    """The callbacks given: any object with one of their methods is one, and those that it lacks are blank.

    Raises:
        UsageError: they are no list, or one of them is a class, or has none of the methods.
    """
    if isinstance(callbacks, Callbacks) or not isinstance(callbacks, Iterable):
        raise UsageError(f"callbacks must be a list of Callbacks objects, not {shown(callbacks)}")
    given = tuple(callbacks)
    for each in given:
        if isinstance(each, type):
            raise UsageError(f"callbacks takes objects, not classes: give {each.__name__}() instead")
        if not any(hasattr(type(each), method) for method in _METHODS):
            raise UsageError(f"callbacks must be a list of Callbacks objects, with no {shown(each)} in it")
    return given


def folder_of(given: str | None) -> str | None:
    """The folder that new sessions belong to.

    Raises:
        UsageError: it is no text.
    """
    text_or_none("folder", given)
    return given


def transcripts_folder(given: Path | str | None) -> Path | None:
    """The folder of the transcripts; it need not be there yet.

    Raises:
        UsageError: it is no path, or a file stands there.
    """
    if not isinstance(given, str | Path | None) or given == "":
        raise UsageError(f"transcripts must be the path of a folder, or None, not {shown(given)}")
    if given is not None and Path(given).is_file():
        raise UsageError(f"transcripts must be the path of a folder, not of a file: {shown(str(given))}")
    return None if given is None else Path(given)


def spoken(prompt: object) -> Message:
    """The prompt as a user's message, a copy of what was given.

    Raises:
        UsageError: it is neither text nor a user's message, or it says nothing.
    """
    message = Message.user(prompt) if isinstance(prompt, str) else prompt
    if not isinstance(message, Message) or message.role != "user" or message.tool_calls:
        raise UsageError("the prompt must be text, or a user message")
    parts = message.content if isinstance(message.content, tuple) else ()
    if not message.text.strip() and all(isinstance(part.get("text"), str) for part in parts):
        raise UsageError("the prompt is empty: say what is to be done")
    return copy.deepcopy(message)
