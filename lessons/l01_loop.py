"""An agent is a loop: ask the model, run what it asks for, ask again, until it answers.

The problem
    A model can only speak. It cannot count words in your file, look at the clock or send a letter. It can
    say that it wants to. Somebody has to do it, say what came of it, and ask again.

The picture
            ┌──────────────────────────────────────────────┐
            ▼                                              │
    next_step(messages) ──► AskModel ──► the model speaks ─┤  each adds
            │                                              │  messages
            ├─────────────► RunTools ──► results of calls ─┘
            │
            └─────────────► Finish ────► the answer

How it works
    A tool is a function and a description of it, a JSON schema, sent with each request. A model that wants
    it called says so in a message with `tool_calls`. Each call has an id, a name, and arguments as JSON
    text. The result goes back as a message of role `tool` that names the id.

    `next_step` looks at the messages and says what is to be done; it does nothing itself. After a model's
    message with calls that have no results yet: run them. After results, or a user's message: ask. After a
    model's message without calls: that is the answer. There are no flags, and no state beside the list. So
    a loop that was killed anywhere goes on from the list that it left.

    `Runner` is the same loop with all that real work needs around it. It keeps the list in a store, runs
    calls side by side, and makes room before each request. Message for message it says the same.

What changed
    | | lesson 0 | now |
    |---|---|---|
    | a request carries | messages | messages and tools |
    | the model is asked | once a turn | until it calls nothing more |
    | a message can be | text | calls, or what came of a call |

Try it
    python lessons/l01_loop.py
    python lessons/l01_loop.py --prompt "Use count_words on 'one two three'."
    python lessons/l01_loop.py --prompt "Hello there."

    - The last one calls nothing: the loop ends at once.
    - Add a second function to `FUNCTIONS`. What else does it need? (Its schema, in `ask`.)
    - With a real model: add --model gpt-5-mini. It needs to call tools.
"""

import asyncio
import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentloop import Agent, Answer, ChatModel, Message, ModelRequest, OfflineModel, OpenAIChat, Runner
from agentloop.context import AskModel, Finish, RunTools, next_step


async def loop(model: ChatModel, messages: list[Message]) -> str:
    """The whole of an agent."""
    while True:
        match next_step(messages):
            case AskModel():
                messages.append(await ask(model, messages))
            case RunTools(calls):
                for call in calls:
                    result = FUNCTIONS[call.name](**json.loads(call.arguments))
                    messages.append(Message.tool(call.id, str(result)))
            case Finish(answer):
                return answer


async def ask(model: ChatModel, messages: list[Message]) -> Message:
    """One model call, as in lesson 0; new is that it is told which tools there are."""
    request = ModelRequest(messages=tuple(message.to_openai() for message in messages), tools=(SCHEMA,))
    said = Message.assistant()
    async for part in model.stream(request):
        if isinstance(part, Answer):
            said = part.message
    return said


PROMPT = "Use count_words on 'the quick brown fox' and 'to be or not to be'."


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The conversation that each of the two loops left."""

    by_hand: tuple[Message, ...]
    by_runner: tuple[Message, ...]

    @property
    def same(self) -> bool:
        """Whether they are the same, message for message."""
        return [each.to_openai() for each in self.by_hand] == [each.to_openai() for each in self.by_runner]


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


FUNCTIONS: Mapping[str, Callable[..., Any]] = {"count_words": count_words}

SCHEMA = {
    "type": "function",
    "function": {
        "name": "count_words",
        "description": "Count the words of a text.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    },
}


async def lesson(model: ChatModel, prompt: str) -> Shown:
    """The same prompt through the loop above and through `Runner`."""
    messages = [Message.user(prompt)]
    await loop(model, messages)
    print("by hand")
    show(messages)
    agent = Agent(model, tools=[count_words], compaction=None)  # room is made from lesson 6 on
    async with Runner(agent, transcripts=None) as runner:
        result = await runner.run(prompt)
    print("\nby Runner")
    show(result.messages)
    shown = Shown(by_hand=tuple(messages), by_runner=result.messages)
    print(f"\nthe same, message for message: {'yes' if shown.same else 'no'}")
    return shown


def show(messages: list[Message] | tuple[Message, ...]) -> None:
    """One line a message, and one for each call in it."""
    for message in messages:
        for line in message.text.splitlines():
            print(f"{message.role:>11}: {line}")
        for call in message.tool_calls:
            print(f"{'':>11}  → {call.name}({call.arguments})")


def main(prompt: str | None = None, model: ChatModel | None = None) -> Shown:
    """Run the lesson; `prompt` is asked instead of its own, and `model` instead of the stand-in."""
    return asyncio.run(lesson(model or OfflineModel(), prompt or PROMPT))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own prompt")
    options.add_argument("--model", metavar="NAME", help="a real model, such as gpt-5-mini")
    given = options.parse_args()
    main(given.prompt, OpenAIChat(given.model) if given.model else None)
