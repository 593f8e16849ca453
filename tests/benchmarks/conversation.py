"""A long conversation, the same at every run, and a run that does everything of a step but ask a model."""

import random
from collections.abc import Iterator

from agentloop.compaction import Compaction, Compactor, ContextKeeper
from agentloop.context import Budget, TokenCounter, counter_for, next_step
from agentloop.emitter import Emitter
from agentloop.events import ModelCalled
from agentloop.messages import Message, ToolCall, Usage
from agentloop.redaction import Redaction
from agentloop.run import Agent, Limits, Run, RunConfig, RunInput
from agentloop.run.limits import Spending
from agentloop.sessions import Session, Sessions, rebase_beside
from agentloop.stores import InMemoryStore
from agentloop.stream import AnyStreamEvent
from agentloop.testing import ScriptedModel
from agentloop.tools import ToolAnswer

MODEL = "bench"
COUNTER = counter_for(MODEL)


def conversation(*, words: tuple[int, int, int] = (13, 163, 21)) -> Iterator[Message]:
    """Turns without end: a request, a call, its result, an answer; about 90 tokens a message.

    `words` are the lengths of request, result and answer, each drawn within a half more or less.
    """
    rng = random.Random(7)
    known = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(800)]
    known += ["the", "of", "to", "and", "is", "a", "in", "for"] * 200

    def text(length: int) -> str:
        return " ".join(rng.choices(known, k=rng.randint(length // 2, length * 3 // 2)))

    number = 0
    while True:
        number += 1
        call = ToolCall(id=f"call_{number}", name="look", arguments=f'{{"path": "src/file_{number}.py"}}')
        yield Message.user(text(words[0]))
        yield Message.assistant(None, [call])
        yield Message.tool(call.id, text(words[1]))
        yield Message.assistant(text(words[2]))


def run_on(policy: Compaction, *, window: int, counter: TokenCounter = COUNTER) -> Run:
    """A run that holds its session, with this policy and a window of so many tokens, watched by nobody."""
    model = ScriptedModel([], name=MODEL)
    emitter = Emitter("bench", "run", _unseen, Redaction())
    compactor = Compactor(policy=policy, model=model, transcripts=None, emitter=emitter)
    budget = Budget(window=window, max_output_tokens=4096, fixed=1000, model=MODEL, counter=counter)
    keeper = ContextKeeper(policy=policy, budget=budget, compactor=compactor)
    spending = Spending(limits=Limits(), model=model, writer=model, counter=counter, outcomes=keeper.outcomes)
    return Run(
        config=RunConfig(
            agent=Agent(model, compaction=policy),
            sessions=Sessions(store=InMemoryStore()),
            run_sub_agent=_nobody,
            redaction=Redaction(),
        ),
        input=RunInput(session_id="bench"),
        keeper=keeper,
        spending=spending,
        emitter=emitter,
        rebase=rebase_beside("run"),
        has_lapsed=_never,
    )


async def step(run: Run, session: Session, message: Message) -> Session:
    """What the loop does for one message, beside asking the model: decide, make room, count, append, show."""
    next_step(session.context.messages)
    session = await run.keeper.make_room(session)
    counted = run.keeper.budget.counted(session.context)
    called = ModelCalled(purpose="agent", model=MODEL, counted=counted, usage=Usage(input_tokens=counted))
    said = run.record_of(message)
    return await run.record(session, called, said)


async def _nobody(*_: object) -> ToolAnswer:
    return ToolAnswer("there are no sub-agents", "error")


async def _never() -> bool:
    return False


def _unseen(event: AnyStreamEvent) -> None:
    """Nobody watches."""
