"""The loop: what to do next is read from the log; what it does stands elsewhere."""

from dataclasses import dataclass
from itertools import takewhile

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
    """Run the session to its answer, or to a limit.

    Raises:
        AgentLoopError: the run cannot go on; the log is valid.
    """
    while True:
        match next_step(session.context.messages):
            case Finish(answer=text):
                return Ended(session=session, status="answered", output=text)
            case RunTools(calls=calls):
                session = await answer(run, session, calls)
            case AskModel():
                if not run.limit_reached():
                    session = await run.room.make(session)
                if reason := run.limit_reached():
                    return Ended(session=session, status="limit", output=_partial(session), reason=reason)
                session = await ask(run, session)


def _partial(session: Session) -> str:
    """What there is of an answer: the newest thing the model said to the newest user message."""
    since = takewhile(lambda entry: not entry.is_user, reversed(session.context.visible))
    said = (entry for entry in since if entry.kind == "said" and entry.message.role == "assistant")
    return next((entry.message.text for entry in said if entry.message.text.strip()), "")
