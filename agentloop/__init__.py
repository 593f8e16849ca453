"""An agent loop on any OpenAI-compatible model that never outgrows its context window.

Every name here is loaded when it is first used, so that `import agentloop` costs nothing.
"""

from typing import TYPE_CHECKING

from agentloop._plumbing.faces import loaded_later

if TYPE_CHECKING:
    from agentloop import compaction as compaction, stores as stores, strategies as strategies
    from agentloop import stream as stream, testing as testing, triggers as triggers, workspace as workspace
    from agentloop.approvals import Approve as Approve, Pending as Pending, Reject as Reject
    from agentloop.approvals import Respond as Respond
    from agentloop.toolsets import Background as Background
    from agentloop.callbacks import Callbacks as Callbacks, Deny as Deny, Focus as Focus
    from agentloop.callbacks import Replace as Replace, Veto as Veto
    from agentloop.callbacks import Work as Work, WorkOutcome as WorkOutcome
    from agentloop.compaction import Compaction as Compaction, compact_messages as compact_messages
    from agentloop.compaction import compact_messages_async as compact_messages_async
    from agentloop.errors import AgentLoopError as AgentLoopError, BadAnswerError as BadAnswerError
    from agentloop.errors import ConflictError as ConflictError, ContextOverflowError as ContextOverflowError
    from agentloop.errors import ContextTooLongError as ContextTooLongError, DamagedError as DamagedError
    from agentloop.errors import ModelError as ModelError, ModelRefusedError as ModelRefusedError
    from agentloop.errors import ModelUnavailableError as ModelUnavailableError, OutputError as OutputError
    from agentloop.errors import RetryTool as RetryTool
    from agentloop.errors import SessionBusyError as SessionBusyError
    from agentloop.errors import SessionNotFoundError as SessionNotFoundError
    from agentloop.errors import StoreError as StoreError, TakenOverError as TakenOverError
    from agentloop.errors import ToolDefinitionError as ToolDefinitionError, UsageError as UsageError
    from agentloop.events import EventFilter as EventFilter
    from agentloop.media import File as File, Image as Image
    from agentloop.messages import Message as Message, SeenMessage as SeenMessage
    from agentloop.messages import ToolCall as ToolCall, Usage as Usage
    from agentloop.models import RetryPolicy as RetryPolicy
    from agentloop.models import Answer as Answer, ChatModel as ChatModel, ModelRequest as ModelRequest
    from agentloop.models import Price as Price, Retry as Retry, TextPart as TextPart
    from agentloop.providers.offline import OfflineModel as OfflineModel
    from agentloop.providers.openai import OpenAIChat as OpenAIChat, OpenAIResponses as OpenAIResponses
    from agentloop.toolsets import recall_tools as recall_tools
    from agentloop.redaction import Redact as Redact, Secrets as Secrets
    from agentloop.results import CompactionPreview as CompactionPreview, RunResult as RunResult
    from agentloop.rules import Rules as Rules
    from agentloop.run import Agent as Agent, Limits as Limits, Native as Native
    from agentloop.runner import Runner as Runner
    from agentloop.sessions import Leases as Leases
    from agentloop.toolsets import Skills as Skills
    from agentloop.strategies import MicroCompact as MicroCompact
    from agentloop.stream import CompactionRequest as CompactionRequest, CompactionResult as CompactionResult
    from agentloop.sync import SyncRunner as SyncRunner
    from agentloop.toolsets import Task as Task, TaskBoard as TaskBoard
    from agentloop.team import Letter as Letter, Team as Team
    from agentloop.tools import RunContext as RunContext, Tool as Tool, ToolRegistry as ToolRegistry
    from agentloop.toolsets import Todo as Todo
    from agentloop.tools import ToolSet as ToolSet, tool as tool
    from agentloop.toolsets import Worktrees as Worktrees
else:
    __all__, __getattr__, __dir__ = loaded_later(
        __name__,
        {
            "approvals": "Approve Pending Reject Respond",
            "callbacks": "Callbacks Deny Focus Replace Veto Work WorkOutcome",
            "compaction": "Compaction compact_messages compact_messages_async",
            "errors": "AgentLoopError BadAnswerError ConflictError ContextOverflowError ContextTooLongError "
            "DamagedError ModelError ModelRefusedError ModelUnavailableError OutputError RetryTool "
            "SessionBusyError SessionNotFoundError StoreError TakenOverError ToolDefinitionError UsageError",
            "events": "EventFilter",
            "media": "File Image",
            "messages": "Message SeenMessage ToolCall Usage",
            "models": "Answer ChatModel ModelRequest Price Retry RetryPolicy TextPart",
            "providers.offline": "OfflineModel",
            "providers.openai": "OpenAIChat OpenAIResponses",
            "redaction": "Redact Secrets",
            "results": "CompactionPreview RunResult",
            "rules": "Rules",
            "run": "Agent Limits Native",
            "runner": "Runner",
            "sessions": "Leases",
            "strategies": "MicroCompact",
            "stream": "CompactionRequest CompactionResult",
            "sync": "SyncRunner",
            "team": "Letter Team",
            "toolsets": "Background Skills Task TaskBoard Todo Worktrees recall_tools",
            "tools": "RunContext Tool ToolRegistry ToolSet tool",
        },
        submodules="compaction stores strategies stream testing triggers workspace",
    )

__version__ = "0.1.0"
