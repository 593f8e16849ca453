"""Models behind OpenAI-compatible servers: chat completions and Responses."""

from agentloop.providers.openai.chat import OpenAIChat
from agentloop.providers.openai.connections import LoopClients
from agentloop.providers.openai.server import OPENAI_URL, Server, ServerChoice, is_loopback, place_of
from agentloop.providers.openai.errors import VENDOR_ERRORS, understand
from agentloop.providers.openai.responses import OpenAIResponses
