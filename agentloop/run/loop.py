"""The loop: what to do next is read from the log; what it does stands elsewhere."""

from dataclasses import dataclass

from agentloop.context import AskModel, Finish, RunTools, next_step, partial_answer
from agentloop.run.model_step import ask_model
from agentloop.run.state import Run
from agentloop.run.tool_step import run_tools
from agentloop.sessions import Session
from agentloop.stream import RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended in order: `status` is `answered`, or `limit` for the `reason` given."""

    session: Session
    status: RunStatus
    output: str
    reason: str | None = None


async def loop(run: Run, session: Session) -> Ended:
    """Run the session to its answer, or to a limit.

    Raises:
        AgentLoopError: the run cannot go on; the log is valid.
    """
    while True:
        match next_step(session.context.messages):
            case Finish(answer=text):
                return Ended(session=session, status="answered", output=text)
            case RunTools(calls=calls):
                session = await run_tools(run, session, calls)
            case AskModel():
                if not run.spending.limit_reached():
                    session = await run.keeper.make_room(session)
                if reason := run.spending.limit_reached():
                    partial = partial_answer(session.context.visible)
                    return Ended(session=session, status="limit", output=partial, reason=reason)
                session = await ask_model(run, session)
