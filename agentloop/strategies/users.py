"""Keep what the user said; everything else is folded."""

from dataclasses import dataclass

from agentloop._plumbing.checks import whole
from agentloop.context import Budget, Context, newest_within
from agentloop.strategies.base import Cut, cut_of, foldable


@dataclass(frozen=True, slots=True)
class KeepUserMessages:
    """Keeps the newest user messages verbatim, up to `max_tokens` in all, and folds everything else.

    Newest first, until one is larger than what is left of the cap; it and all before it are folded. The live
    request counts too, and stays whatever its size, as do the task while it is short and the newest
    exchange. The summary stands right after the newest user message kept beside the live request, and so
    right before that one, which remains the last thing a user said. Tokens are by our own count of what is
    shown. The rule and its 20,000 tokens are those of Codex, which cuts the message at the border where this
    one folds it, and puts the summary last.

    Raises:
        UsageError: `max_tokens` is no whole number of at least 1.

    Example:
        >>> from agentloop.events import MessageAdded, Record
        >>> from agentloop.messages import Message
        >>> said = [Message.user("hi"), Message.assistant("ok"), Message.user("go"), Message.assistant("no")]
        >>> said += [Message.user("and now?"), Message.assistant("done")]
        >>> added = [MessageAdded(message=message, tokens=10) for message in said]
        >>> context = Context.of(Record(seq=seq, event=event) for seq, event in enumerate(added, 1))
        >>> cut = KeepUserMessages()(context, Budget(window=8_000, fixed=0, model="m"))
        >>> cut.covers, cut.at
        (((2, 2), (4, 4)), 5)
    """

    max_tokens: int = 20_000

    def __post_init__(self) -> None:
        whole("max_tokens", self.max_tokens, 1)

    def __call__(self, context: Context, budget: Budget, /) -> Cut | None:
        users = [entry for entry in context.visible if entry.is_user]
        start = newest_within([entry.tokens for entry in users], self.max_tokens)
        kept = {entry.seq for entry in users[start:]}
        folded = [unit for unit in foldable(context, budget) if unit.first.seq not in kept]
        return cut_of(context, folded, at=users[-1].at if users else None)
