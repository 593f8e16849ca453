"""What a compaction covers: each strategy turns a context into one proposed cut, or none.

A strategy is any function of a context and a budget that returns a `Cut` or None. It sees frozen values
and writes nothing; whatever it names, exchanges stay whole and the newest user message stays in sight.
"""

from agentloop.strategies.base import Digest, Instead, Lines, Note, Summary
from agentloop.strategies.base import Chain, Cut, Strategy, cut_of, foldable
from agentloop.strategies.blocks import Blocks
from agentloop.strategies.clearing import ClearResults
from agentloop.strategies.combining import first_of, replaced_by, strategy_name, then
from agentloop.strategies.keep import KeepRecentFraction, KeepRecentTurns
from agentloop.strategies.blocks import RecursiveSummary
from agentloop.strategies.chains import Reduce
from agentloop.strategies.blocks import Scope
from agentloop.strategies.chains import Tiered
from agentloop.strategies.keep import KeepUserMessages
from agentloop.strategies.keep import SlidingWindow, TokenWindow, TurnWindow
from agentloop.strategies.base import (
    CapToolText,
    Computed,
    DropAgentItems,
    DropOldest,
    LastLines,
    MarkOldResults,
    Trim,
    left_unread,
    trimmed,
)
from agentloop.strategies.clearing import Clearing, MicroCompact, asked_again, cleared_item, superseded_items
from agentloop.strategies.combining import FirstOf, Replaced

__all__ = [
    "Blocks",
    "Chain",
    "ClearResults",
    "Cut",
    "Digest",
    "Instead",
    "KeepRecentFraction",
    "KeepRecentTurns",
    "KeepUserMessages",
    "Lines",
    "Note",
    "RecursiveSummary",
    "Reduce",
    "Scope",
    "SlidingWindow",
    "Strategy",
    "Summary",
    "Tiered",
    "TokenWindow",
    "TurnWindow",
    "cut_of",
    "first_of",
    "foldable",
    "replaced_by",
    "strategy_name",
    "then",
]
