"""The loop: what to do next is read from the log; what it does stands elsewhere."""

from dataclasses import dataclass

from agentloop.answering import answer
from agentloop.asking import ask
from agentloop.run import Run
from agentloop.sessions import Session
from agentloop.steps import AskModel, Finish, RunTools, next_step
from agentloop.stream import RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended in order: `status` is `answered`, or `limit` for the `reason` given."""

    session: Session
    status: RunStatus
    output: str
    reason: str | None = None


async def loop(run: Run, session: Session) -> Ended:
    """Run the session to its answer, or to the limit on model calls.

    Raises:
        AgentLoopError: the run cannot go on; the log is valid.
    """
    asked = 0
    while True:
        match next_step(session.context.messages):
            case Finish(answer=text):
                return Ended(session=session, status="answered", output=text)
            case RunTools(calls=calls):
                session = await answer(run, session, calls)
            case AskModel() if asked == run.agent.max_steps:
                reason = f"the limit of {asked} model calls is reached"
                return Ended(session=session, status="limit", output=_partial(session), reason=reason)
            case AskModel():
                asked += 1
                session = await ask(run, await run.room.make(session))


def _partial(session: Session) -> str:
    """What there is of an answer: the newest thing the model said."""
    said = (message.text for message in reversed(session.context.messages) if message.role == "assistant")
    return next((text for text in said if text.strip()), "")
