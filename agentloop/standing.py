"""What stands instead of what a compaction covers, once it is written, and the record of it."""

from dataclasses import dataclass

from agentloop.context import Context, TokenCounter, count_message
from agentloop.events import Compacted, Made
from agentloop.messages import Message
from agentloop.plans import Plan
from agentloop.prompts import question_message, summary_message

WITHOUT_A_MODEL = 3
"""The tier of a compaction whose text no model wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What stands instead, and how it was made; `unread` are the positions that it does not stand for.

    With `shadow` it is an assistant's answer, and that is what a user is shown to have asked. `fault` says
    why the model's text could not stand, where something else had to.
    """

    text: str
    made: Made
    unread: tuple[int, ...] = ()
    shadow: str | None = None
    fault: str | None = None


NOTHING = Standing(text="", made="note")
"""What stands for nothing: a compaction that only shortens covers no message."""


def record_of(
    standing: Standing, plan: Plan, context: Context, *, transcript: str | None, counter: TokenCounter
) -> Compacted:
    """The record of the plan with this standing instead; `transcript` is a file name."""
    covers = plan.covers(context)
    replacement, answer = _texts(standing, transcript) if covers else ("", "")
    tokens = count_message(Message.user(replacement), counter) if replacement else 0
    answer_tokens = count_message(Message.assistant(answer), counter) if answer else 0
    return Compacted(
        covers=covers,
        replacement=replacement,
        at=plan.at,
        tokens=tokens + answer_tokens,
        answer=answer,
        answer_tokens=answer_tokens,
        made=standing.made,
        cleared=plan.cleared,
        group=plan.group,
        reason=plan.occasion.reason,
        why=plan.occasion.why,
        strategy=plan.strategy,
        tier=WITHOUT_A_MODEL if covers and standing.made != "summary" else plan.tier,
        transcript=transcript,
    )


def _texts(standing: Standing, transcript: str | None) -> tuple[str, str]:
    """What a user is shown to say, and what an assistant answers, if anything."""
    if standing.shadow is not None:
        return question_message(standing.shadow, transcript), standing.text
    if standing.made == "note":
        return question_message(standing.text, transcript), ""
    return summary_message(standing.text, transcript), ""
