"""An agent loop on any OpenAI-compatible model that never outgrows its context window.

Every name here is loaded when it is first used, so that `import agentloop` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentloop import compaction, stores, strategies, stream, testing, triggers, workspace
    from agentloop.callbacks import Callbacks, Focus, Replace, Veto
    from agentloop.compaction import Compaction, compact_messages, compact_messages_async
    from agentloop.errors import AgentLoopError, BadAnswerError, ConflictError, ContextOverflowError
    from agentloop.errors import ContextTooLongError, DamagedError, ModelError, ModelRefusedError
    from agentloop.errors import ModelUnavailableError, RetryTool, SessionBusyError, SessionNotFoundError
    from agentloop.errors import StoreError, TakenOverError, ToolDefinitionError, UsageError
    from agentloop.events import EventFilter
    from agentloop.messages import Message, ToolCall, Usage
    from agentloop.model_call import RetryPolicy
    from agentloop.models import Answer, ChatModel, ModelRequest, Price, Retry, TextPart
    from agentloop.providers.offline import OfflineModel
    from agentloop.providers.openai import OpenAIChat, OpenAIResponses
    from agentloop.redaction import Redact, Secrets
    from agentloop.results import CompactionPreview, RunResult
    from agentloop.run import Agent, Limits
    from agentloop.runner import Runner
    from agentloop.sessions import Leases
    from agentloop.strategies import MicroCompact
    from agentloop.stream import CompactionRequest, CompactionResult
    from agentloop.sync import SyncRunner
    from agentloop.tools import RunContext, Tool, ToolRegistry, tool

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
    "model_call": "RetryPolicy",
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
