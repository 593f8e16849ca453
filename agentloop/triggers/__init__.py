"""When to compact: each trigger answers "now?" with its reason in words.

A trigger is any function of a context and a budget that returns `Fired` or None. Budget triggers fire where a
measure crosses a limit, structural ones where something happened, temporal ones where time passed; `any_of`,
`all_of` and `not_` combine them with each other and with functions of yours:

    all_of(TokenCount(80_000), any_of(NeedsFollowUp(), On("request")))
"""

from agentloop.context import Budget
from agentloop.context import Context
from agentloop.triggers.base import Fired, HasThreshold, Trigger, threshold_of
from agentloop.triggers.combining import all_of, any_of, not_
from agentloop.triggers.counts import TokenCount, TurnCount
from agentloop.triggers.structural import NeedsFollowUp, On
from agentloop.triggers.temporal import Every, Idle
from agentloop.triggers.window import Buffer, Headroom, Overflow, WindowFraction

__all__ = [
    "Budget",
    "Buffer",
    "Context",
    "Every",
    "Fired",
    "HasThreshold",
    "Headroom",
    "Idle",
    "NeedsFollowUp",
    "On",
    "Overflow",
    "TokenCount",
    "Trigger",
    "TurnCount",
    "WindowFraction",
    "all_of",
    "any_of",
    "not_",
    "threshold_of",
]
