"""Functions as tools: registered, described to the model, called."""

from typing import TYPE_CHECKING

from agentloop._plumbing.faces import loaded_later
from agentloop.tools.invoke import ArgumentsError, RunThread, ToolAnswer, object_of, spill
from agentloop.tools.registry import Tool, ToolRegistry, is_tool, tool
from agentloop.tools.run_context import RunContext
from agentloop.tools.tool_set import ToolSet, notice_from, put_away_by, text_from, tools_of

if TYPE_CHECKING:
    from agentloop.tools.output import OutputType
else:
    __all__, __getattr__, __dir__ = loaded_later(__name__, {"output": "OutputType"})
