"""How a run begins: what its caller gave, checked before anything is stored."""

import copy
from collections.abc import Iterable

from agentloop.budget import Budget
from agentloop.callbacks import Callbacks
from agentloop.checks import shown
from agentloop.context import Context
from agentloop.cutting import head
from agentloop.errors import UsageError
from agentloop.events import Described, Event, MessageAdded, Record
from agentloop.messages import Message
from agentloop.redaction import Redact
from agentloop.sessions import Session

MOST_TITLE_CHARS = 60


def described(session: Session, message: Message | None, folder: str | None) -> tuple[Event, ...]:
    """The title and the folder of a session that begins with this message; nothing for an older one."""
    if session.context.said or message is None:
        return ()
    title = " ".join(message.text.split())
    if len(title) > MOST_TITLE_CHARS:
        title = head(title, MOST_TITLE_CHARS - 1).rstrip() + "…"
    return (Described(title=title or None, folder=folder),)


def check_prompt(budget: Budget, said: MessageAdded | None) -> None:
    """Refuse what can never fit before anything is stored.

    Raises:
        ContextOverflowError: the fixed part, or it together with the prompt, is larger than the window.
    """
    alone = [Record(seq=1, event=said)] if said else []
    budget.check(Context.of(alone))


def instances(callbacks: Iterable[Callbacks]) -> tuple[Callbacks, ...]:
    """The callbacks given.

    Raises:
        UsageError: they are no list, or one of them is a class.
    """
    if isinstance(callbacks, Callbacks) or not isinstance(callbacks, Iterable):
        raise UsageError(f"callbacks must be a list of Callbacks objects, not {shown(callbacks)}")
    given = tuple(callbacks)
    for each in given:
        if isinstance(each, type):
            raise UsageError(f"callbacks takes objects, not classes: give {each.__name__}() instead")
    return given


def redaction(given: Redact | None) -> Redact | None:
    """The redaction given.

    Raises:
        UsageError: it is no function of a text.
    """
    if given is not None and (not callable(given) or isinstance(given, type)):
        raise UsageError(f"redact must be a function from text to text such as Secrets(), not {shown(given)}")
    return given


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
