"""Models behind chat completions: the one door to openai."""

from agentloop.openai_chat.chat import OpenAIChat

__all__ = ["OpenAIChat"]
