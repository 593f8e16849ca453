"""What to do next, and the messages of a request: valid for a strict provider, whatever the log holds.

Chat completions want each assistant message with calls followed at once by exactly one result per call,
ids non-empty and unique, arguments that decode to a JSON object, no empty assistant message, `content`
always present, and one system message, first; some also want user and assistant by turns. Logs hold late,
repeated, missing and interrupted results, imported histories, broken arguments and lone surrogates. The log
is never touched: this is its view.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentloop.context.context import Context
from agentloop.context.entries import Entry
from agentloop.context.pairing import (
    SYSTEM_ROLES,
    TOLD_TO_GO_ON,
    Voice,
    answers,
    interrupted,
    put_before,
    says_nothing,
    voice_of,
)
from agentloop.context.wire import labelled_user, to_wire
from agentloop.messages import CallIds, Json, Message, ToolCall
from agentloop.models import CUT_SHORT, ModelRequest
from agentloop.prompts import ANSWER_TAKEN, FINAL_ANSWER, SYSTEM_IN_LOG


@dataclass(frozen=True, slots=True)
class AskModel:
    """The model is to speak."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """These calls have no result yet, in call order."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """The model has answered: by a text, or by the arguments of the `tool` that gives answers of a type."""

    answer: str
    tool: str | None = None


Step: TypeAlias = AskModel | RunTools | Finish


def next_step(messages: Sequence[Message]) -> Step:
    """The one thing to do next; looks back no further than the newest message that is no tool result.

    A model that answered with neither text nor call is asked again.
    """
    results: list[Message] = []
    for message in reversed(messages):
        if message.role == "tool":
            results.append(message)
        elif message.role != "assistant":
            return AskModel()
        elif calls := unanswered(message, results):
            return RunTools(calls)
        elif given := _given(message, results):
            return Finish(given.arguments, given.name)
        else:
            return AskModel() if message.tool_calls or says_nothing(message) else Finish(message.text)
    return AskModel()


def _given(message: Message, results: Sequence[Message]) -> ToolCall | None:
    """The call of the message that gave an answer which was taken."""
    taken = {each.tool_call_id for each in results if each.text == ANSWER_TAKEN}
    calls = (call for call in message.tool_calls if call.id in taken)
    return next((call for call in calls if call.name.startswith(FINAL_ANSWER)), None)


def calls_of(step: Step) -> tuple[ToolCall, ...]:
    """The calls that this step is to run, in call order."""
    return step.calls if isinstance(step, RunTools) else ()


def unanswered(message: Message, results: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls of `message` that none of `results` answers; an id called twice wants two results."""
    places = answers([message, *results]).get(0, ())
    return tuple(call for call, place in zip(message.tool_calls, places, strict=True) if place is None)


def partial_answer(said: Iterable[Message]) -> str:
    """What there is of an answer in what was said to a prompt: the model's texts, each once, in order."""
    texts = (message.text.strip() for message in said if message.role == "assistant")
    return "\n\n".join(dict.fromkeys(filter(None, texts)))


def cut_short_by(visible: Sequence[Entry]) -> str | None:
    """The finish reason of the newest answer where it ended too early, `length` or `content_filter`."""
    newest = next((entry for entry in reversed(visible) if entry.message.role == "assistant"), None)
    return newest.finish if newest and newest.finish in CUT_SHORT else None


NO_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "no_tool",
        "description": "There are no tools now. Do not call this; answer in text.",
        "parameters": {"type": "object", "properties": {}},
    },
}
"""Stands in for tools where none are offered and calls were made: some gateways refuse calls without any."""


def wire_messages(
    messages: Iterable[Message], *, instructions: str | None = None
) -> tuple[dict[str, Any], ...]:
    """The request's messages: the instructions as its one system message, then the conversation.

    Without instructions, a system message that begins the conversation stands first; system messages
    anywhere else are shown as labelled user text.
    """
    said = list(messages)
    system = [Message(role="system", content=instructions)] if instructions else []
    if said and not system and said[0].role in SYSTEM_ROLES:
        system = [said.pop(0)]
    body = tuple(
        labelled_user(message, SYSTEM_IN_LOG) if message.role in SYSTEM_ROLES else message for message in said
    )
    return tuple(to_wire(message) for message in (*system, *alternating(arranged(body))))


def wire_tools(schemas: Sequence[Json], messages: Sequence[Json]) -> tuple[Json, ...]:
    """The tools to offer beside these messages: a stand-in where there are calls and no tool is offered."""
    if schemas or not any("tool_calls" in message for message in messages):
        return tuple(schemas)
    return (NO_TOOL,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPrefix:
    """What every request of an agent begins with: its instructions, and its tools by their schemas.

    `recall` are those of the tools of recall, which are offered once something was hidden. `needs_tools`,
    `answer_schema` and `answer_words` are those of a `ModelRequest`.
    """

    instructions: str | None = None
    schemas: tuple[Json, ...] = ()
    recall: tuple[Json, ...] = ()
    needs_tools: bool = True
    answer_schema: Json | None = None
    answer_words: str | None = None

    def request(self, context: Context, *behind: Message, recalls: bool) -> ModelRequest:
        """The agent's request for what is in sight, with these messages behind it.

        `recalls` says whether there is room for the tools of recall.
        """
        wired = wire_messages((*context.messages, *behind), instructions=self.instructions)
        schemas = (*self.schemas, *(self.recall if recalls and context.has_hidden else ()))
        tools = wire_tools(schemas, wired)
        return ModelRequest(
            messages=wired,
            tools=tools,
            needs_tools=self.needs_tools,
            answer_schema=self.answer_schema,
            answer_words=self.answer_words,
        )


def arranged(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages with each call followed by its one result.

    A late result moves to its call, a missing one is answered as interrupted, one that answers no call or
    repeats another is left out, and so is an assistant message with neither text nor call. Ids that are
    empty or were used before get new ones.
    """
    answered = answers(messages)
    ids = CallIds()
    for at, message in enumerate(messages):
        if message.role == "tool" or says_nothing(message):
            continue
        if at not in answered:
            yield message
            continue
        message = ids.of_message(message)
        yield message
        for call, place in zip(message.tool_calls, answered[at], strict=True):
            yield _answer(call.id, None if place is None else messages[place])


def alternating(messages: Iterable[Message]) -> Iterator[Message]:
    """The arranged messages with user and assistant by turns, a user first."""
    voice: Voice = "nobody"
    for message in messages:
        if message.role != "tool":
            if between := put_before(message, voice):
                yield between
            voice = voice_of(message)
        yield message
    if voice == "nobody":
        yield TOLD_TO_GO_ON


def _answer(call_id: str, result: Message | None) -> Message:
    if result is None:
        return interrupted(call_id)
    return result if result.tool_call_id == call_id else result.answering(call_id)
