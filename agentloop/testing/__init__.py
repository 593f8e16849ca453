"""Doubles for tests of what is built on agentloop, and the contract that every store must keep."""

from agentloop.testing.models import FailingModel, Reply, ScriptUsedUpError, ScriptedModel, calls
from agentloop.testing.store_contract import BAD_IDS, CHECKS, Check, store_contract
