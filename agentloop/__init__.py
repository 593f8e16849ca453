"""An agent loop on any OpenAI-compatible model that never outgrows its context window.

Every name here is loaded when it is first used, so that `import agentloop` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentloop import stores, strategies, testing, triggers
    from agentloop.agent import Agent
    from agentloop.callbacks import (
        Callbacks,
        CompactionRequest,
        CompactionResult,
        Focus,
        Replace,
        Veto,
    )
    from agentloop.compaction import Compaction
    from agentloop.errors import (
        AgentLoopError,
        ConflictError,
        ContextOverflowError,
        ModelError,
        RetryTool,
        StoreError,
        UsageError,
    )
    from agentloop.messages import Message, ToolCall, Usage
    from agentloop.micro import MicroCompact
    from agentloop.models import Answer, ChatModel, ModelRequest, TextPart
    from agentloop.offline import OfflineModel
    from agentloop.openai_chat import OpenAIChat
    from agentloop.run_context import RunContext
    from agentloop.runner import Runner, RunResult
    from agentloop.sync import SyncRunner
    from agentloop.tools import Tool, ToolRegistry, tool

__version__ = "0.1.0"

_HOMES = {
    "agent": ("Agent",),
    "callbacks": ("Callbacks", "CompactionRequest", "CompactionResult", "Focus", "Replace", "Veto"),
    "compaction": ("Compaction",),
    "errors": (
        "AgentLoopError",
        "ConflictError",
        "ContextOverflowError",
        "ModelError",
        "RetryTool",
        "StoreError",
        "UsageError",
    ),
    "messages": ("Message", "ToolCall", "Usage"),
    "micro": ("MicroCompact",),
    "models": ("Answer", "ChatModel", "ModelRequest", "TextPart"),
    "offline": ("OfflineModel",),
    "openai_chat": ("OpenAIChat",),
    "run_context": ("RunContext",),
    "runner": ("RunResult", "Runner"),
    "sync": ("SyncRunner",),
    "tools": ("Tool", "ToolRegistry", "tool"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("stores", "strategies", "testing", "triggers")

__all__ = [
    "Agent",
    "AgentLoopError",
    "Answer",
    "Callbacks",
    "ChatModel",
    "Compaction",
    "CompactionRequest",
    "CompactionResult",
    "ConflictError",
    "ContextOverflowError",
    "Focus",
    "Message",
    "MicroCompact",
    "ModelError",
    "ModelRequest",
    "OfflineModel",
    "OpenAIChat",
    "Replace",
    "RetryTool",
    "RunContext",
    "RunResult",
    "Runner",
    "StoreError",
    "SyncRunner",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolRegistry",
    "Usage",
    "UsageError",
    "Veto",
    "stores",
    "strategies",
    "testing",
    "tool",
    "triggers",
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
