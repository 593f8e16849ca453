"""Tools of which one needs a yes: what tests of approvals share."""

from typing import Any

from agentloop import tool


class Disc:
    """Tools of which one does harm, and what was done."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    @property
    def tools(self) -> list[Any]:
        @tool(needs_approval=True)
        def delete(path: str) -> str:
            """Delete a file."""
            self.gone.append(path)
            return f"{path} is gone"

        def look(path: str) -> str:
            """Look at a file."""
            return f"{path} is there"

        return [delete, look]
