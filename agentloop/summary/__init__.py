"""The summary: what is asked of the model, in pieces that fit it, and what is made of its text."""

from agentloop.summary.draft import TakeNote
from agentloop.summary.room import summary_budget
from agentloop.summary.summariser import Summariser, Written

__all__ = ["Summariser", "TakeNote", "Written", "summary_budget"]
