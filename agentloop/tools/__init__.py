"""Functions as tools: registered, described to the model, called."""

from agentloop.tools.invoke import RunThread, ToolAnswer, spill
from agentloop.tools.registry import Tool, ToolRegistry, is_tool, tool
from agentloop.tools.run_context import RunContext
from agentloop.tools.tool_set import ToolSet, reminder_from, text_from, tool_of
