"""A record of what is covered, computed without a model: the rung of the ladder that always works."""

from agentloop.digest.record import digest

__all__ = ["digest"]
