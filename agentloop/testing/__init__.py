"""Doubles for tests of what is built on agentloop, and the contract that every store must keep."""

from agentloop.testing.contexts import context_of
from agentloop.testing.models import FailingModel, Reply
from agentloop.testing.models import ScriptUsedUpError, ScriptedModel
from agentloop.testing.models import calls
from agentloop.testing.store_contract import store_contract
from agentloop.testing.store_contract import BAD_IDS, CHECKS, Check

__all__ = [
    "BAD_IDS",
    "CHECKS",
    "Check",
    "FailingModel",
    "Reply",
    "ScriptUsedUpError",
    "ScriptedModel",
    "calls",
    "context_of",
    "store_contract",
]
