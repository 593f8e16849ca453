"""One run: from a prompt to an answer."""

from typing import TYPE_CHECKING

from agentloop._plumbing.faces import loaded_later
from agentloop.run.loop import NextStep, Steps, loop

if TYPE_CHECKING:
    from agentloop.run.agent import Agent, Native
    from agentloop.run.approval import approvals_in, check_known, waiting_in
    from agentloop.run.config import Prompt, RunConfig, as_user_message, transcripts_folder
    from agentloop.run.execute import output_of, start_run, execute_run, settle_and_say
    from agentloop.run.limits import Limits, check_priced, with_step_limit
    from agentloop.run.model_step import ask_model, came_to_nothing
    from agentloop.run.state import Run, RunInput
    from agentloop.run.sub_agent import run_sub_agent
    from agentloop.run.tool_step import answer_one, compact, interrupted_record
    from agentloop.run.tool_step import may_run_again, split_off_compact
else:
    __all__, __getattr__, __dir__ = loaded_later(
        __name__,
        {
            "agent": "Agent Native",
            "approval": "approvals_in check_known waiting_in",
            "config": "Prompt RunConfig as_user_message transcripts_folder",
            "execute": "output_of start_run execute_run settle_and_say",
            "limits": "Limits check_priced with_step_limit",
            "model_step": "ask_model came_to_nothing",
            "state": "Run RunInput",
            "sub_agent": "run_sub_agent",
            "tool_step": "answer_one compact interrupted_record may_run_again split_off_compact",
        },
    )
