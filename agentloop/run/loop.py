"""The loop: one step of a run after another, each of which says from the log what comes next."""

from typing import Literal, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

NextStep: TypeAlias = Literal["make_room", "ask", "tools", "end"]
"""What is to be done next; durable runs keep these words in their database."""


class Steps(Protocol[T_co]):
    """The steps of one run on its session.

    Each stores what it did before it returns, so that a run that is cut off goes on from its log.
    """

    async def open(self) -> NextStep:
        """Store that the run began, with its prompt."""
        ...

    async def make_room(self) -> NextStep:
        """Make the next request fit the window."""
        ...

    async def ask(self) -> NextStep:
        """Ask the model, and store its answer."""
        ...

    async def run_tools(self) -> NextStep:
        """Run the calls that have no result yet, and store their results."""
        ...

    async def end(self) -> T_co:
        """What the run came to."""
        ...


async def loop(steps: Steps[T]) -> T:
    """Run to the answer, or to a limit.

    Raises:
        AgentLoopError: the run cannot go on; the log is valid.
    """
    step = await steps.open()
    while True:
        match step:
            case "make_room":
                step = await steps.make_room()
            case "ask":
                step = await steps.ask()
            case "tools":
                step = await steps.run_tools()
            case "end":
                return await steps.end()
