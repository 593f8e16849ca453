"""Sets of tools that come with agentloop: each optional, each with what it shows and keeps."""

from typing import TYPE_CHECKING

from agentloop._plumbing.faces import loaded_later

if TYPE_CHECKING:
    from agentloop.toolsets.background import CHECK, RUN_IN_BACKGROUND, STOP, Background
    from agentloop.toolsets.recall import RECALL_TOOLS, recall_tools
    from agentloop.toolsets.skills import MOST_LISTED_CHARS, READ_SKILL, Skills
    from agentloop.toolsets.task_board import MOST_TEXT_CHARS, MemberBoard, Task, TaskBoard, checked_text
    from agentloop.toolsets.task_board import as_retry, claimed_text, held_by, waits_for
    from agentloop.toolsets.todo import TODO_READ, TODO_WRITE, Todo, todo_write
    from agentloop.toolsets.worktrees import Worktrees
else:
    __all__, __getattr__, __dir__ = loaded_later(
        __name__,
        {
            "background": "CHECK RUN_IN_BACKGROUND STOP Background",
            "recall": "RECALL_TOOLS recall_tools",
            "skills": "MOST_LISTED_CHARS READ_SKILL Skills",
            "task_board": "MOST_TEXT_CHARS MemberBoard Task TaskBoard checked_text "
            "claimed_text as_retry held_by waits_for",
            "todo": "TODO_READ TODO_WRITE Todo todo_write",
            "worktrees": "Worktrees",
        },
    )
