"""Models behind chat completions."""

from agentloop.openai_chat.chat import OpenAIChat

__all__ = ["OpenAIChat"]
