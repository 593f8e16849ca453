"""The built-in tools: they see one folder and nothing outside of it."""

from agentloop.workspace.commands import Commands, Output, end_all, ending, kill_marked, mark_of_job
from agentloop.workspace.commands import new_mark, under_mark
from agentloop.workspace.files import workspace_tools as workspace_tools
from agentloop.workspace.folder import Folder, WorkspaceError as WorkspaceError

__all__ = ["WorkspaceError", "workspace_tools"]
