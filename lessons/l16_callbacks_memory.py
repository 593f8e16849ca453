"""Before anything leaves the context, your code sees it: the moment to keep what must outlive a session.

The problem
    A summary keeps what this conversation needs. Who you are and what you must not eat, the next one needs
    too. It goes when the session ends. After a compaction nobody reads those messages again. Asking the
    model at the end of every turn what to remember costs a request each time, mostly for nothing.

The picture
    session one                                                session two
    ───────────                                                ───────────
    messages ──► threshold ──► before_compaction(request)      a new, empty context
                                   │  the messages about       instructions:
                                   │  to go, whole, each         "You know of the user: …"
                                   ▼  with its position                 ▲
                               ask a model: what is to be kept?         │
                                   └───────► facts.json ────────────────┘
                               then the transcript, the summary, the compaction

How it works
    `Callbacks` is a class with blank methods; the one here overrides one of them. `before_compaction` is
    awaited before anything is hidden, whoever asked for the compaction. It gets exactly the messages that
    are about to go, untouched.

    Here it asks a model for the facts in what the user said. It adds them to a small JSON file, each with
    the session and the position that it came from. So a fact can be looked up in the log. A fact that
    stands in no message was made up, and is dropped. The purpose "memory" tells the model, and the bill,
    what a request is for.

    It returns None and the compaction goes on. It might also return `Veto(reason)`, `Focus(text)` or
    `Replace(summary)`. Should it raise or hang, that is an event and the run goes on: your code cannot
    break a conversation.

    The second session knows nothing of the first but the file. It reads that into its instructions.

What changed
    | | lesson 15 | now |
    |---|---|---|
    | before a compaction | nothing of yours runs | `before_compaction` runs |
    | what outlives a session | its log alone | facts in a file, for the next session |
    | the runner has | a store | `callbacks=[…]` too |

Try it
    python lessons/l16_callbacks_memory.py
    python lessons/l16_callbacks_memory.py --prompt "What is my sister's name?"

    - Return `Replace("We talked about dinners.")` from `before_compaction`: no model writes the summary.
    - With a real model: put OpenAIChat("…") in place of `OfflineModel`; it needs to follow "one fact a
      line".
"""

import asyncio
import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import (
    Agent,
    Answer,
    Callbacks,
    ChatModel,
    CompactionRequest,
    Message,
    ModelRequest,
    OfflineModel,
    Runner,
)


class FactKeeper(Callbacks):
    """Keeps the facts of what is about to leave the context in a JSON file."""

    def __init__(self, model: ChatModel, path: Path) -> None:
        self.model, self.path = model, path
        self.gathered = 0

    async def before_compaction(self, request: CompactionRequest) -> None:
        """Ask what is to be kept of what the user said, and add it to the file."""
        self.gathered += 1
        said = [each for each in request.messages if each.message.role == "user"]
        texts = await facts_in(self.model, "\n\n".join(each.message.text for each in said))
        facts = {fact.text: fact for fact in load(self.path)}
        known = len(facts)
        for each in said:
            for text in texts:
                if text in each.message.text:
                    facts.setdefault(text, Fact(text=text, session=request.session_id, seq=each.seq))
        self.path.write_text(json.dumps([asdict(fact) for fact in facts.values()], indent=1), "utf-8")
        going, new = len(request.messages), len(facts) - known
        print(f"  before_compaction: {going} messages are about to go, new facts: {new}")


QUESTION = "What is my allergy?"
WINDOW = "2k"
STORY = "The soup was good, the bread was warm, the guests came late and stayed until the candles were out. "
COURSES = tuple(f"Course {number}: {STORY * 4}" for number in range(1, 11))
TALK = (
    "Hello, let us talk about dinners.",
    "My allergy is peanuts.",
    *COURSES[:6],
    "My sister's name is Ada, and she cooks on Sundays.",
    *COURSES[6:],
)
WANTED = "List what the user states about themselves, one fact a line, in the user's own words; nothing else."


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something to know beyond a session, and the position in which session it came from."""

    text: str
    session: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The facts kept, how often they were gathered, and the answers with and without them."""

    facts: tuple[Fact, ...]
    gathered: int
    with_memory: str
    without_memory: str


async def facts_in(model: ChatModel, text: str) -> list[str]:
    """One model call: the facts in the text, one a line."""
    messages = (Message(role="system", content=WANTED), Message.user(text))
    request = ModelRequest(messages=tuple(each.to_openai() for each in messages), purpose="memory")
    lines: list[str] = []
    async for part in model.stream(request):
        if isinstance(part, Answer):
            lines = part.message.text.splitlines()
    return [line for line in lines if line.strip()]


def load(path: Path) -> tuple[Fact, ...]:
    """The facts in the file; none where there is no file yet."""
    return tuple(Fact(**fact) for fact in json.loads(path.read_text("utf-8"))) if path.exists() else ()


def instructions(facts: Sequence[Fact]) -> str:
    """What a session begins with."""
    return "You know of the user:\n" + "\n".join(f"- {fact.text}" for fact in facts)


async def dinner(keeper: FactKeeper, transcripts: Path) -> None:
    """Session one: two facts in a talk that goes on for longer than the window is wide."""
    agent = Agent(OfflineModel(window=WINDOW))
    async with Runner(agent, callbacks=[keeper], transcripts=transcripts) as runner:
        for text in TALK:
            print(f"user: {text[:50]}{'…' if len(text) > 50 else ''}")
            await runner.run(text, session_id="dinner")


async def asked(question: str, facts: Sequence[Fact]) -> str:
    """A session of its own: nothing but the question, and what is known from before."""
    agent = Agent(OfflineModel(), instructions=instructions(facts) if facts else None)
    async with Runner(agent, transcripts=None) as runner:
        return (await runner.run(question)).output


async def lesson(question: str) -> Shown:
    """Talk until facts leave the context, then ask for them in a new session."""
    with TemporaryDirectory(prefix="agentloop-lesson-") as place:
        keeper = FactKeeper(OfflineModel(), Path(place, "facts.json"))
        print(f"session one, in a window of {WINDOW} tokens")
        await dinner(keeper, Path(place, "transcripts"))
        facts = load(keeper.path)
    print("\nfacts.json")
    for fact in facts:
        print(f"  {fact.text}  (session {fact.session}, position {fact.seq})")
    shown = Shown(
        facts=facts,
        gathered=keeper.gathered,
        with_memory=await asked(question, facts),
        without_memory=await asked(question, ()),
    )
    print(f"\nsession two: {question}")
    print(f"  with the facts:    {shown.with_memory}")
    print(f"  without them:      {shown.without_memory}")
    return shown


def main(prompt: str | None = None) -> Shown:
    """Run the lesson; `prompt` is asked in the second session instead of its own question."""
    return asyncio.run(lesson(prompt or QUESTION))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own question")
    main(options.parse_args().prompt)
