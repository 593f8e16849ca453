"""An agent loop on any OpenAI-compatible model that never outgrows its context window.

Every name here is loaded when it is first used, so that `import agentloop` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentloop import compaction, stores, strategies, stream, testing, triggers, workspace
    from agentloop.callbacks import Callbacks, Focus, Replace, Veto
    from agentloop.compaction.messages import compact_messages, compact_messages_async
    from agentloop.compaction.policy import Compaction
    from agentloop.errors import (
        AgentLoopError,
        BadAnswerError,
        ConflictError,
        ContextOverflowError,
        ContextTooLongError,
        DamagedError,
        ModelError,
        ModelRefusedError,
        ModelUnavailableError,
        RetryTool,
        SessionBusyError,
        SessionNotFoundError,
        StoreError,
        TakenOverError,
        ToolDefinitionError,
        UsageError,
    )
    from agentloop.events import EventFilter
    from agentloop.messages import Message, ToolCall, Usage
    from agentloop.model_call import RetryPolicy
    from agentloop.models import Answer, ChatModel, ModelRequest, Price, Retry, TextPart
    from agentloop.providers.offline.model import OfflineModel
    from agentloop.providers.openai.chat import OpenAIChat
    from agentloop.providers.openai.responses import OpenAIResponses
    from agentloop.redaction.secrets import Redact, Secrets
    from agentloop.results import CompactionPreview, RunResult
    from agentloop.run.agent import Agent
    from agentloop.run.limits import Limits
    from agentloop.runner import Runner
    from agentloop.sessions.lease import Leases
    from agentloop.strategies.clearing import MicroCompact
    from agentloop.stream import CompactionRequest, CompactionResult
    from agentloop.sync import SyncRunner
    from agentloop.tools.registry import RunContext, Tool, ToolRegistry, tool

__version__ = "0.1.0"

_HOMES = {
    "callbacks": ("Callbacks", "Focus", "Replace", "Veto"),
    "compaction.messages": ("compact_messages", "compact_messages_async"),
    "compaction.policy": ("Compaction",),
    "errors": (
        "AgentLoopError",
        "BadAnswerError",
        "ConflictError",
        "ContextOverflowError",
        "ContextTooLongError",
        "DamagedError",
        "ModelError",
        "ModelRefusedError",
        "ModelUnavailableError",
        "RetryTool",
        "SessionBusyError",
        "SessionNotFoundError",
        "StoreError",
        "TakenOverError",
        "ToolDefinitionError",
        "UsageError",
    ),
    "events": ("EventFilter",),
    "messages": ("Message", "ToolCall", "Usage"),
    "model_call": ("RetryPolicy",),
    "models": ("Answer", "ChatModel", "ModelRequest", "Price", "Retry", "TextPart"),
    "providers.offline.model": ("OfflineModel",),
    "providers.openai.chat": ("OpenAIChat",),
    "providers.openai.responses": ("OpenAIResponses",),
    "redaction.secrets": ("Redact", "Secrets"),
    "results": ("CompactionPreview", "RunResult"),
    "run.agent": ("Agent",),
    "run.limits": ("Limits",),
    "runner": ("Runner",),
    "sessions.lease": ("Leases",),
    "strategies.clearing": ("MicroCompact",),
    "stream": ("CompactionRequest", "CompactionResult"),
    "sync": ("SyncRunner",),
    "tools.registry": ("RunContext", "Tool", "ToolRegistry", "tool"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("compaction", "stores", "strategies", "stream", "testing", "triggers", "workspace")

__all__ = [
    "Agent",
    "AgentLoopError",
    "Answer",
    "BadAnswerError",
    "Callbacks",
    "ChatModel",
    "Compaction",
    "CompactionPreview",
    "CompactionRequest",
    "CompactionResult",
    "ConflictError",
    "ContextOverflowError",
    "ContextTooLongError",
    "DamagedError",
    "EventFilter",
    "Focus",
    "Leases",
    "Limits",
    "Message",
    "MicroCompact",
    "ModelError",
    "ModelRefusedError",
    "ModelRequest",
    "ModelUnavailableError",
    "OfflineModel",
    "OpenAIChat",
    "OpenAIResponses",
    "Price",
    "Redact",
    "Replace",
    "Retry",
    "RetryPolicy",
    "RetryTool",
    "RunContext",
    "RunResult",
    "Runner",
    "Secrets",
    "SessionBusyError",
    "SessionNotFoundError",
    "StoreError",
    "SyncRunner",
    "TakenOverError",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolDefinitionError",
    "ToolRegistry",
    "Usage",
    "UsageError",
    "Veto",
    "compact_messages",
    "compact_messages_async",
    "compaction",
    "stores",
    "strategies",
    "stream",
    "testing",
    "tool",
    "triggers",
    "workspace",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"agentloop.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'agentloop' has no attribute {name!r}")
    value = getattr(import_module(f"agentloop.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
