"""An agent loop on any OpenAI-compatible model that never outgrows its context window.

Every name here is loaded when it is first used, so that `import agentloop` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentloop import compaction as compaction, stores as stores, strategies as strategies
    from agentloop import stream as stream, testing as testing, triggers as triggers, workspace as workspace
    from agentloop.callbacks import Callbacks as Callbacks, Focus as Focus, Replace as Replace, Veto as Veto
    from agentloop.compaction import Compaction as Compaction, compact_messages as compact_messages
    from agentloop.compaction import compact_messages_async as compact_messages_async
    from agentloop.errors import AgentLoopError as AgentLoopError, BadAnswerError as BadAnswerError
    from agentloop.errors import ConflictError as ConflictError, ContextOverflowError as ContextOverflowError
    from agentloop.errors import ContextTooLongError as ContextTooLongError, DamagedError as DamagedError
    from agentloop.errors import ModelError as ModelError, ModelRefusedError as ModelRefusedError
    from agentloop.errors import ModelUnavailableError as ModelUnavailableError, RetryTool as RetryTool
    from agentloop.errors import SessionBusyError as SessionBusyError
    from agentloop.errors import SessionNotFoundError as SessionNotFoundError
    from agentloop.errors import StoreError as StoreError, TakenOverError as TakenOverError
    from agentloop.errors import ToolDefinitionError as ToolDefinitionError, UsageError as UsageError
    from agentloop.events import EventFilter as EventFilter
    from agentloop.messages import Message as Message, ToolCall as ToolCall, Usage as Usage
    from agentloop.retry import RetryPolicy as RetryPolicy
    from agentloop.models import Answer as Answer, ChatModel as ChatModel, ModelRequest as ModelRequest
    from agentloop.models import Price as Price, Retry as Retry, TextPart as TextPart
    from agentloop.providers.offline import OfflineModel as OfflineModel
    from agentloop.providers.openai import OpenAIChat as OpenAIChat, OpenAIResponses as OpenAIResponses
    from agentloop.redaction import Redact as Redact, Secrets as Secrets
    from agentloop.results import CompactionPreview as CompactionPreview, RunResult as RunResult
    from agentloop.run import Agent as Agent, Limits as Limits
    from agentloop.runner import Runner as Runner
    from agentloop.sessions import Leases as Leases
    from agentloop.strategies import MicroCompact as MicroCompact
    from agentloop.stream import CompactionRequest as CompactionRequest, CompactionResult as CompactionResult
    from agentloop.sync import SyncRunner as SyncRunner
    from agentloop.tools import RunContext as RunContext, Tool as Tool, ToolRegistry as ToolRegistry
    from agentloop.tools import tool as tool

__version__ = "0.1.0"

_MODULES = ("compaction", "stores", "strategies", "stream", "testing", "triggers", "workspace")
_NAMES = {
    "callbacks": "Callbacks Focus Replace Veto",
    "compaction": "Compaction compact_messages compact_messages_async",
    "errors": "AgentLoopError BadAnswerError ConflictError ContextOverflowError ContextTooLongError "
    "DamagedError ModelError ModelRefusedError ModelUnavailableError RetryTool SessionBusyError "
    "SessionNotFoundError StoreError TakenOverError ToolDefinitionError UsageError",
    "events": "EventFilter",
    "messages": "Message ToolCall Usage",
    "retry": "RetryPolicy",
    "models": "Answer ChatModel ModelRequest Price Retry TextPart",
    "providers.offline": "OfflineModel",
    "providers.openai": "OpenAIChat OpenAIResponses",
    "redaction": "Redact Secrets",
    "results": "CompactionPreview RunResult",
    "run": "Agent Limits",
    "runner": "Runner",
    "sessions": "Leases",
    "strategies": "MicroCompact",
    "stream": "CompactionRequest CompactionResult",
    "sync": "SyncRunner",
    "tools": "RunContext Tool ToolRegistry tool",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_MODULES, *_HOMES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"agentloop.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'agentloop' has no attribute {name!r}")
    value = getattr(import_module(f"agentloop.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
