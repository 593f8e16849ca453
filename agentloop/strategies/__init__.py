"""What a compaction covers: each strategy turns a context into one proposed cut, or none.

A strategy is any function of a context and a budget that returns a `Cut` or None. It sees frozen values
and writes nothing; whatever it names, exchanges stay whole and the newest user message stays in sight.
"""

from agentloop.strategies.base import CapToolText, Chain, Computed, Cut, Digest, DropAgentItems, DropOldest
from agentloop.strategies.base import Instead, LastLines, Lines, MarkOldResults, Note, Strategy, Summary, Trim
from agentloop.strategies.base import cut_of, foldable, left_unread, trimmed
from agentloop.strategies.blocks import Blocks, RecursiveSummary, Scope
from agentloop.strategies.chains import Reduce, Tiered
from agentloop.strategies.clearing import Clearing, ClearResults, MicroCompact, asked_again, cleared_item
from agentloop.strategies.clearing import superseded_items
from agentloop.strategies.combining import FirstOf, Replaced, first_of, replaced_by, strategy_name, then
from agentloop.strategies.keep import KeepRecentFraction, KeepRecentTurns, KeepUserMessages, SlidingWindow
from agentloop.strategies.keep import TokenWindow, TurnWindow
