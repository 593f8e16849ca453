"""`sessions`: the stored sessions on the command line."""

from agentloop.cli.sessions.commands import sessions

__all__ = ["sessions"]
