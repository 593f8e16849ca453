"""A sub-agent at work: the run behind one call of a tool that an agent became."""

from dataclasses import replace
from hashlib import sha256

from agentloop._plumbing.to_text import as_text
from agentloop.prompts import SUB_AGENT_LIMIT
from agentloop.run.agent import SubAgent
from agentloop.run.config import Learnt, as_user_message
from agentloop.run.execute import execute_run
from agentloop.run.state import Run
from agentloop.sessions import branch_id
from agentloop.stream import AnyStreamEvent, ToolProgress, ToolStarted
from agentloop.tools import ToolAnswer


async def run_sub_agent(run: Run, call_id: str, sub: SubAgent, task: str) -> ToolAnswer:
    """What the sub-agent answers to the task, in a log of its own that the id of the call leads to.

    Where that log is there, the call was in flight when something died: its run goes on, and one that was
    answered gives that answer again.

    Raises:
        AgentLoopError: see `Runner.run`; for the run that calls, a call that failed.
    """
    config, trunk = run.config, run.emitter.session_id
    name = branch_id(trunk, f"{sub.name}.{_mark(call_id, task)}")
    message = None if await config.sessions.store.info(name) else as_user_message(task)
    below = replace(
        config,
        agent=sub.agent,
        sessions=await config.sessions.beside(trunk),
        learnt=config.learnt.of_sub_agents.setdefault(sub.name, Learnt()),
    )

    def tell(event: AnyStreamEvent) -> None:
        if isinstance(event, ToolStarted | ToolProgress):
            said = event.name if isinstance(event, ToolStarted) else event.text
            run.emitter.emit_beside(ToolProgress(call_id=call_id, text=f"{sub.name}: {said}"))

    given = replace(run.input, session_id=name, message=message, earlier=(), sink=tell, limits=sub.limits)
    result = await execute_run(below, replace(given, parent=run.spending))
    if result.pending:
        return ToolAnswer("", "ok", pending=result.pending)
    if result.status == "answered":
        return ToolAnswer(as_text(result.output), "ok")
    return ToolAnswer(SUB_AGENT_LIMIT.format(reason=result.reason, output=result.output).rstrip(), "error")


def _mark(call_id: str, task: str) -> str:
    return sha256(f"{call_id}\n{task}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
