"""What a compaction covers: each strategy turns a context into one proposed cut, or none.

A strategy is any function of a context and a budget that returns a `Cut` or None. It sees frozen values
and writes nothing; whatever it names, exchanges stay whole and the newest user message stays in sight.
"""

from agentloop.instead import Digest, Instead, Lines, Note, Summary
from agentloop.strategies.base import Chain, Cut, Strategy, cut_of, foldable
from agentloop.strategies.blocks import Blocks
from agentloop.strategies.clearing import ClearResults
from agentloop.strategies.combining import first_of, replaced_by, strategy_name, then
from agentloop.strategies.recent import KeepRecentFraction, KeepRecentTurns
from agentloop.strategies.recursive import RecursiveSummary
from agentloop.strategies.reducing import Reduce
from agentloop.strategies.scope import Scope
from agentloop.strategies.tiered import Tiered
from agentloop.strategies.users import KeepUserMessages
from agentloop.strategies.windows import SlidingWindow, TokenWindow, TurnWindow

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
