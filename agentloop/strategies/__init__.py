"""What a compaction covers: each strategy turns a context into one proposed cut, or none.

A strategy is any function of a context and a budget that returns a `Cut` or None. It sees frozen values
and writes nothing; whatever it names, exchanges stay whole and the newest user message stays in sight.
"""

from typing import TYPE_CHECKING

from agentloop._plumbing.faces import loaded_later
from agentloop.strategies.base import Chain as Chain, Cut as Cut, Digest as Digest, Instead as Instead
from agentloop.strategies.base import Lines as Lines, Note as Note, Strategy as Strategy, Summary as Summary
from agentloop.strategies.base import cut_of as cut_of, foldable as foldable
from agentloop.strategies.base import Computed, OnFailure, SummaryPrefix, Tiers, check_strategy
from agentloop.strategies.clearing import ClearResults as ClearResults, Clearing, MicroCompact, cleared_item
from agentloop.strategies.keep import KeepRecentFraction as KeepRecentFraction, TurnWindow as TurnWindow
from agentloop.strategies.keep import KeepRecentTurns as KeepRecentTurns, KeepUserMessages as KeepUserMessages
from agentloop.strategies.keep import SlidingWindow as SlidingWindow, TokenWindow as TokenWindow
from agentloop.strategies.superseded import given_in, superseded_items
from agentloop.strategies.trims import CapToolText, DropAgentItems, DropOldest, LastLines, MarkOldResults
from agentloop.strategies.trims import Trim, left_unread, trimmed

if TYPE_CHECKING:
    from agentloop.strategies.blocks import Blocks as Blocks, RecursiveSummary as RecursiveSummary
    from agentloop.strategies.blocks import Scope as Scope
    from agentloop.strategies.chains import Reduce as Reduce, Tiered as Tiered
    from agentloop.strategies.combining import first_of as first_of, replaced_by as replaced_by
    from agentloop.strategies.combining import FirstOf, Replaced, strategy_name as strategy_name, then as then
else:
    __all__, __getattr__, __dir__ = loaded_later(
        __name__,
        {
            "blocks": "Blocks RecursiveSummary Scope",
            "chains": "Reduce Tiered",
            "combining": "first_of replaced_by strategy_name then FirstOf Replaced",
        },
        public="Blocks Chain ClearResults Cut Digest Instead KeepRecentFraction KeepRecentTurns "
        "KeepUserMessages Lines Note RecursiveSummary Reduce Scope SlidingWindow Strategy Summary "
        "Tiered TokenWindow TurnWindow cut_of first_of foldable replaced_by strategy_name then",
    )
