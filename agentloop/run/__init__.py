"""One run: from a prompt to an answer."""

from agentloop.run.agent import Agent
from agentloop.run.config import Setting, setting_of, spoken, title_of
from agentloop.run.execute import begin, one_run, settle_and_say
from agentloop.run.limits import MOST_STEPS, Limits, check_priced, limited
from agentloop.run.model_step import ask, came_to_nothing
from agentloop.run.state import Run
from agentloop.run.tool_step import answer_one, compact, interrupted, may_run_again, parted
