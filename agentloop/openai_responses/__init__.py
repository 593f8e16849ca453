"""Models behind OpenAI's Responses API."""

from agentloop.openai_responses.responses import OpenAIResponses

__all__ = ["OpenAIResponses"]
