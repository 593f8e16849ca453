"""Contexts written as a letter a message, and what a strategy does to them."""

from agentloop.context import Budget, Context, clamped
from agentloop.events import Compacted, MessageRecord, Record, holds
from agentloop.messages import Message, ToolCall
from agentloop.strategies import (
    Cut,
    Note,
    Strategy,
)

BUDGET = Budget(window=8_000, fixed=100, model="m", max_output_tokens=1_000)


TOKENS = 10


NOTHING: list[int] = []


def calls(*ids: str) -> Message:
    return Message.assistant("", [ToolCall(id=each, name="read", arguments="{}") for each in ids])


def messages_of(script: str) -> list[Message]:
    """A message a letter: u a user's, a an assistant's, s a system one, c two calls, 1 and 2 their results.

    x is an exchange of two messages, p one of three, whose results came the other way round.
    """
    made: list[Message] = []
    for at, letter in enumerate(script):
        match letter:
            case "x":
                made += [calls(f"x{at}"), Message.tool(f"x{at}", "result")]
            case "p":
                made += [
                    calls(f"p{at}", f"q{at}"),
                    Message.tool(f"q{at}", "two"),
                    Message.tool(f"p{at}", "one"),
                ]
            case "c":
                made.append(calls("call_1", "call_2"))
            case "1" | "2":
                made.append(Message.tool(f"call_{letter}", "late"))
            case "s":
                made.append(Message(role="system", content="rules"))
            case _:
                made.append(Message.user("ask") if letter == "u" else Message.assistant("say"))
    return made


def grown(context: Context, script: str, *sizes: int) -> Context:
    """The context with these messages behind it, 10 tokens each where no sizes are given."""
    messages = messages_of(script)
    lengths = sizes or (TOKENS,) * len(messages)
    events = [
        MessageRecord(message=each, tokens=tokens) for each, tokens in zip(messages, lengths, strict=True)
    ]
    return context.add(
        *(Record(seq=seq, event=event) for seq, event in enumerate(events, context.length + 1))
    )


def said(script: str, *sizes: int) -> Context:
    return grown(Context(), script, *sizes)


def compacted(context: Context, cut: Cut, *, answer: str = "", tokens: int = TOKENS) -> Context:
    """The context with that cut carried out."""
    event = Compacted(
        covers=cut.covers,
        replacement="what stands instead",
        at=clamped(context, cut.at, BUDGET.task_tokens),
        tokens=tokens,
        answer=answer,
        answer_tokens=tokens // 2 if answer else 0,
        made="note" if isinstance(cut.instead, Note) else "summary",
    )
    return context.add(Record(seq=context.length + 1, event=event))


def summed_up(context: Context, first: int, last: int, *, answer: str = "", tokens: int = TOKENS) -> Context:
    return compacted(context, Cut(covers=((first, last),), at=last + 1), answer=answer, tokens=tokens)


def noted(context: Context, first: int, last: int) -> Context:
    return compacted(context, Cut(covers=((first, last),), at=last + 1, instead=Note()))


def covered(context: Context, strategy: Strategy, budget: Budget = BUDGET) -> list[int]:
    """The positions in sight that the strategy covers."""
    cut = strategy(context, budget)
    return [entry.seq for entry in context.visible if cut and holds(cut.covers, entry.seq)]


def place(context: Context, strategy: Strategy, budget: Budget = BUDGET) -> int | None:
    cut = strategy(context, budget)
    return clamped(context, cut.at, budget.task_tokens) if cut else None


def in_sight(context: Context, strategy: Strategy) -> list[str]:
    """What is in sight once the cut is made: positions of what was said, and the kinds of the rest."""
    cut = strategy(context, BUDGET)
    assert cut is not None
    after = compacted(context, cut)
    return [str(entry.seq) if entry.kind == "said" else entry.kind for entry in after.visible]
