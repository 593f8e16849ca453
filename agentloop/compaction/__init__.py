"""Compaction by itself: the policy, its parts and results, and a function for any list of messages."""

from typing import TYPE_CHECKING

from agentloop._plumbing.faces import loaded_later
from agentloop.callbacks import Callbacks as Callbacks, Focus as Focus, Replace as Replace, Veto as Veto
from agentloop.compaction.policy import Compaction as Compaction
from agentloop.compaction.policy import check_parts
from agentloop.compaction.tool import COMPACT, COMPACT_SCHEMA, focus_of, outcome_text
from agentloop.context import Budget as Budget, Context as Context, Guard as Guard
from agentloop.results import CompactionPreview as CompactionPreview
from agentloop.strategies import CapToolText as CapToolText, Digest as Digest
from agentloop.strategies import DropAgentItems as DropAgentItems, DropOldest as DropOldest
from agentloop.strategies import LastLines as LastLines, Lines as Lines, MarkOldResults as MarkOldResults
from agentloop.strategies import Note as Note, Summary as Summary, Trim as Trim, MicroCompact as MicroCompact
from agentloop.stream import CompactionRequest as CompactionRequest, CompactionResult as CompactionResult

if TYPE_CHECKING:
    from agentloop.compaction.compactor import Compactor
    from agentloop.compaction.keeper import ContextKeeper
    from agentloop.compaction.standalone import CompactedMessages as CompactedMessages
    from agentloop.compaction.standalone import compact_messages as compact_messages
    from agentloop.compaction.standalone import compact_messages_async as compact_messages_async
else:
    __all__, __getattr__, __dir__ = loaded_later(
        __name__,
        {
            "compactor": "Compactor",
            "keeper": "ContextKeeper",
            "standalone": "CompactedMessages compact_messages compact_messages_async",
        },
        public="Budget Callbacks CapToolText CompactedMessages Compaction CompactionPreview "
        "CompactionRequest CompactionResult Context Digest DropAgentItems DropOldest Focus Guard "
        "LastLines Lines MarkOldResults MicroCompact Note Replace Summary Trim Veto "
        "compact_messages compact_messages_async",
    )
