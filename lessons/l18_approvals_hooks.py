"""Some calls wait for a person: the run ends in order, and goes on with the answer, days later.

The problem
    A tool that deletes or pays must not run because a model felt like it. Asking in a terminal helps who
    sits before it. A run on a server has nobody to ask. Its process may be gone before the answer comes.
    And whoever approved `delete a` has not approved `delete b`.

The picture
    model: look(a), delete(a) ──► look runs ─────────► its result is in the log
                                  delete needs a yes ─► asked: in the log; the run ends, needs_approval
                                                            ⋮   (another process, days later)
    resume(answers={call: Approve()}) ──────────────────► answered: in the log ─► delete runs, once

How it works
    `@tool(needs_approval=True)` marks the tool. A run that meets its call has all other results, and ends.
    `result.pending` says what waits. `resume` takes `Approve`, `Reject` or `Respond` for each call. What was
    asked and answered are records, so a crash forgets neither.

    Rules decide without asking: `Rules(allow=…, ask=…, deny=…)`. A hook does what no rule can say: the one
    here counts, and denies what would go over the budget. Where a hook fails, the call does not run.

What changed
    | | lesson 17 | now |
    |---|---|---|
    | a call of a tool | runs | runs, waits for a yes, or is denied |
    | a run may end | answered, or at a limit | waiting for a person, too |
    | the runner has | a store | `rules=…`, and hooks in `callbacks=[…]` |

Try it
    python lessons/l18_approvals_hooks.py
    python lessons/l18_approvals_hooks.py --prompt "Clean up, please."

    - Answer with `Reject("keep it")`, and read what the model is told.
    - Put "delete" among the rules that deny: nothing waits any more.
    - With a real model: put OpenAIChat("…") in place of `ScriptedModel`.
"""

import asyncio
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass

from agentloop import Agent, Approve, Callbacks, Deny, Rules, Runner, ToolCall, tool
from agentloop.stores import InMemoryStore
from agentloop.testing import Reply, ScriptedModel, calls


@tool(needs_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    DISC.discard(path)
    return f"{path} is gone"


async def ask_and_go_on(prompt: str, store: InMemoryStore) -> str:
    """One run that waits, and a runner of another process that answers for it."""
    print(f"user:   {prompt}")
    waiting = await runner_of(FIRST, store).run(prompt, session_id="cleaning")
    print(f"status: {waiting.status}, on the disc: {sorted(DISC)}")
    for call in waiting.pending:
        print(f"waits:  {call.tool} {call.arguments}")
    answers = {call.call_id: Approve(by="ann") for call in waiting.pending}
    result = await runner_of(THEN, store).resume("cleaning", answers=answers)
    print(f"status: {result.status}, on the disc: {sorted(DISC)}")
    return result.output


DISC = set[str]()
FIRST = (calls(("look", {}), ("delete", {"path": "old.log"}), ("pay", {"euros": 5})),)
THEN = (calls(("pay", {"euros": 90}), ("pay", {"euros": 20})), "Cleaned: old.log is gone.")
RULES = Rules(allow=["look", "pay"], deny=["format_disc"])
BUDGET = 100


def look() -> str:
    """Say what is on the disc."""
    return ", ".join(sorted(DISC))


def pay(euros: int) -> str:
    """Pay somebody."""
    return f"paid {euros}"


class Budget(Callbacks):
    """Denies a payment that would go over the budget."""

    left = BUDGET

    def before_tool(self, call: ToolCall) -> Deny | None:
        """Count what is paid."""
        if call.name != "pay":
            return None
        euros = int("".join(filter(str.isdigit, call.arguments)))
        if euros > self.left:
            print(f"denied: pay {euros}, since {self.left} are left")
            return Deny(f"the budget has {self.left} left")
        self.left -= euros
        return None


BUDGETS = Budget()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The answer, what is left on the disc, and of the budget."""

    answer: str
    disc: tuple[str, ...]
    left: int


def runner_of(answers: tuple[Reply, ...], store: InMemoryStore) -> Runner:
    """A runner as each process makes its own; the store is what they share."""
    agent = Agent(ScriptedModel(answers), tools=[look, delete, pay])
    return Runner(agent, store=store, rules=RULES, callbacks=[BUDGETS], transcripts=None)


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; `prompt` is said instead of its own."""
    DISC.clear()
    DISC.update(("old.log", "notes.md"))
    BUDGETS.left = BUDGET
    answer = asyncio.run(ask_and_go_on(prompt or "Clean the disc.", InMemoryStore()))
    print(answer)
    return Shown(answer=answer, disc=tuple(sorted(DISC)), left=BUDGETS.left)


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to say instead of the lesson's own prompt")
    main(options.parse_args().prompt)
