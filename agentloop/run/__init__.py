"""One run: from a prompt to an answer."""

from agentloop.run.agent import Agent
from agentloop.run.config import RunConfig, as_user_message, checked_callbacks, title_of, transcripts_folder
from agentloop.run.execute import start_run, execute_run, settle_and_say
from agentloop.run.limits import MOST_STEPS, Limits, check_priced, with_step_limit
from agentloop.run.model_step import ask_model, came_to_nothing
from agentloop.run.loop import NextStep, Steps, loop
from agentloop.run.state import Run
from agentloop.run.tool_step import answer_one, compact, interrupted_record, may_run_again, split_off_compact
