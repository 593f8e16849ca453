"""What a compaction covers: each strategy turns a context into one proposed cut, or none.

A strategy is any function of a context and a budget that returns a `Cut` or None. It sees frozen values
and writes nothing; whatever it names, exchanges stay whole and the newest user message stays in sight.
"""

from agentloop.strategies.base import Cut, Strategy, cut_before
from agentloop.strategies.recent import KeepRecentFraction

__all__ = ["Cut", "KeepRecentFraction", "Strategy", "cut_before"]
