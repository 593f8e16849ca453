"""A conversation is a list of messages, and the list is all that a model knows.

The problem
    A model answers one request and forgets it. Nothing of a conversation lives on the other side. Ask it
    twice, and the second time it has never met you. Who remembers, then?

The picture
    you                                           the model
    ───                                           ─────────
    [user: my name is Ada]              ──────►   reads one message
    [user, assistant: noted]            ◄──────   says one, and forgets both
    [user, assistant, user: my name?]   ──────►   reads three messages
    [user, assistant, user, assistant]  ◄──────   says the fourth

How it works
    `ask` is one model call. The whole list goes in, in the form that chat-completions servers take. Parts
    of the answer come out as they are made, the whole answer last. `say` adds what the user says, asks, and
    adds what the model says. That is all of it: the list is the memory, and it grows with each turn.

    `OfflineModel` is a stand-in that follows rules, so that the lessons need no key. It keeps the one law
    that matters here: it knows nothing but the messages that it is sent. Any other `ChatModel`, such as
    `OpenAIChat("gpt-5-mini")`, fits in its place.

What changed
    | | before | now |
    |---|---|---|
    | who remembers | nobody | the list of messages |

Try it
    python lessons/l00_chat.py
    python lessons/l00_chat.py --prompt "How many messages do you see?"

    - Send only `messages[-1:]` in `ask`, and watch the name go.
    - With a real model: add --model gpt-5-mini. It needs a key in `OPENAI_API_KEY`, or a server in
      `OPENAI_BASE_URL`.
"""

import asyncio
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass

from agentloop import Answer, ChatModel, Message, ModelRequest, OfflineModel, OpenAIChat


async def say(model: ChatModel, messages: list[Message], text: str) -> str:
    """One turn: the user's message and the model's, both added to the list."""
    messages.append(Message.user(text))
    messages.append(await ask(model, messages))
    for message in messages[-2:]:
        print(f"{message.role:>9}: {message.text}")
    return messages[-1].text


async def ask(model: ChatModel, messages: list[Message]) -> Message:
    """One model call: all messages go in, one comes out."""
    request = ModelRequest(messages=tuple(message.to_openai() for message in messages))
    said = Message.assistant()
    async for part in model.stream(request):
        if isinstance(part, Answer):
            said = part.message
    return said


FACT = "My name is Ada."
QUESTION = "What is my name?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The answer to the same question with the conversation and without it."""

    remembered: str
    forgotten: str
    messages: tuple[Message, ...]


async def lesson(model: ChatModel, question: str) -> Shown:
    """The same question twice: at the end of a conversation, and with no conversation before it."""
    messages: list[Message] = []
    print("one list for the whole conversation")
    await say(model, messages, FACT)
    remembered = await say(model, messages, question)
    print("\na new list: the same model, the same question")
    forgotten = await say(model, [], question)
    print(f"\nthe first list holds {len(messages)} messages; that is all there ever was to remember")
    return Shown(remembered=remembered, forgotten=forgotten, messages=tuple(messages))


def main(prompt: str | None = None, model: ChatModel | None = None) -> Shown:
    """Run the lesson; `prompt` is asked instead of its own question, and `model` instead of the stand-in."""
    return asyncio.run(lesson(model or OfflineModel(), prompt or QUESTION))


if __name__ == "__main__":
    options = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    options.add_argument("--prompt", help="what to ask instead of the lesson's own question")
    options.add_argument("--model", metavar="NAME", help="a real model, such as gpt-5-mini")
    given = options.parse_args()
    main(given.prompt, OpenAIChat(given.model) if given.model else None)
