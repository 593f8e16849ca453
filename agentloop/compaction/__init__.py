"""Compaction by itself: the policy, its parts and results, and a function for any list of messages."""

from agentloop.callbacks import Callbacks, Focus, Replace, Veto
from agentloop.compaction.compactor import Compactor, Took, took
from agentloop.compaction.ladder import Guard, Ladder, ContextKeeper
from agentloop.compaction.messages import CompactedMessages, compact_messages, compact_messages_async
from agentloop.compaction.policy import Compaction
from agentloop.compaction.tool import COMPACT, COMPACT_SCHEMA, focus_of, outcome_text
from agentloop.context import Budget, Context
from agentloop.results import CompactionPreview
from agentloop.strategies import CapToolText, Digest, DropAgentItems, DropOldest, LastLines, Lines
from agentloop.strategies import MarkOldResults, Note, Summary, Trim
from agentloop.strategies import MicroCompact
from agentloop.stream import CompactionRequest, CompactionResult
