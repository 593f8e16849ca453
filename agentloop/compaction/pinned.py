"""What tool sets keep in sight behind a compaction: within one room, those of the highest priority first."""

from collections.abc import Sequence
from functools import partial

from agentloop.compaction.plan import Plan
from agentloop.context import Context, TokenCounter, count_message, fits, fitted
from agentloop.messages import Message
from agentloop.prompts import pinned_message
from agentloop.tools import ToolSet, text_from

PINNED_SHARE = 0.5
"""All that is pinned takes at most this share of the longest summary, which is so much shorter then.

So what stands instead of what is covered is never longer than without tool sets, and the target holds.
"""

LEAST_PINNED_TOKENS = 40
"""In less room than this, nothing more is pinned."""

BETWEEN = "\n\n"


def pinned_behind(
    plan: Plan, context: Context, tool_sets: Sequence[ToolSet], *, longest: int, counter: TokenCounter
) -> str:
    """What the sets pin behind this compaction, as one message's text; `longest` is the longest summary.

    Empty where nothing is covered: what an earlier one pinned then stays.
    """
    if not (tool_sets and plan.covered):
        return ""
    gone = {entry.seq for entry in plan.entries} | {item.seq for item in plan.cleared}
    said = context.seen(gone)
    left = int(PINNED_SHARE * longest) - count_message(Message.user(pinned_message("")), counter)
    texts: list[str] = []
    for each in sorted(tool_sets, key=lambda each: -each.priority):
        if left < LEAST_PINNED_TOKENS:
            break
        if text := text_from(each.pinned, said, partial(fits, max_tokens=left, counter=counter)):
            texts.append(fitted(text, max_tokens=left, counter=counter))
            left -= counter(BETWEEN + texts[-1])
    return pinned_message(BETWEEN.join(texts)) if texts else ""
