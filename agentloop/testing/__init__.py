"""Doubles for tests of what is built on agentloop, and the contract that every store must keep."""

from agentloop.testing.contexts import context_of as context_of
from agentloop.testing.models import FailingModel as FailingModel, Reply as Reply
from agentloop.testing.models import ScriptUsedUpError as ScriptUsedUpError, ScriptedModel as ScriptedModel
from agentloop.testing.models import calls as calls
from agentloop.testing.store_contract import store_contract as store_contract
from agentloop.testing.store_contract import BAD_IDS as BAD_IDS, CHECKS as CHECKS, Check as Check
