"""The calls of a conversation: what was asked of a tool, of what, and what came of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentloop._plumbing.truncate import beginning, failure_in, halves, head, opening_failure_in
from agentloop.context import answers
from agentloop.digest.actions import only_looks
from agentloop.digest.paths import paths_in
from agentloop.messages import Message, ToolCall

MOST_ARGUMENT_CHARS = 20_000
"""Longer arguments are not decoded but read as text, at their head."""

MOST_RESULT_CHARS = 3_000
"""So much of a result is looked at, head and tail together."""

_MOST_NAME_CHARS = 200
"""OpenAI allows a tool's name 64; a longer one was made up and is shown at its head."""

_MOST_UNREAD_CHARS = 200
"""Of arguments that are no JSON object, so much is shown."""

_MOST_COMMAND_CHARS = 2_000
"""A command is read for what it does and shown at its head; a script behind `<<` adds nothing to that."""

_MOST_LOOKED_AT_CHARS = 400
"""So much of one argument's value is looked at before its blanks are folded."""

_MOST_VALUE_CHARS = 80
"""A line of a terminal: a longer value of an argument is shown by its head and its length."""

_VALUE_HEAD_CHARS = 60
"""What is shown of such a value, so that its length fits into the same line."""

_COMMAND_KEYS = ("command", "cmd", "script", "code", "bash", "shell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call with its result; `result` is None where there is none.

    `at` is the place of the message that asked, `paths` the files that the arguments name, `command` the
    command line where there is one.
    """

    at: int
    name: str
    arguments: str
    paths: tuple[str, ...]
    command: str
    result: str | None
    error: str | None


def calls_of(messages: Sequence[Message]) -> Iterator[Call]:
    """Every call, in the order in which they were made."""
    for at, places in answers(messages).items():
        for call, place in zip(messages[at].tool_calls, places, strict=True):
            yield _call(at, call, None if place is None else halves(messages[place].text, MOST_RESULT_CHARS))


def _call(at: int, call: ToolCall, result: str | None) -> Call:
    short = len(call.arguments) <= MOST_ARGUMENT_CHARS
    arguments: dict[str, Any] = (call.decoded() if short else None) or {}
    command = next((text for key in _COMMAND_KEYS if (text := _as_command(arguments.get(key)))), "")
    found = paths_in(arguments) if arguments else paths_in({"text": call.arguments[:MOST_ARGUMENT_CHARS]})
    return Call(
        at=at,
        name=_folded(call.name, _MOST_NAME_CHARS) or "tool",
        arguments=brief(arguments) if arguments else _folded(call.arguments, _MOST_UNREAD_CHARS).strip("{} "),
        paths=tuple(found),
        command=_folded(command, _MOST_COMMAND_CHARS),
        result=result,
        error=None if result is None else _failure(result, call.name, command),
    )


def _folded(text: str, max_chars: int) -> str:
    return " ".join(head(text, max_chars).split())


def _failure(result: str, name: str, command: str) -> str | None:
    return opening_failure_in(result) if only_looks(name, command) else failure_in(result)


def _as_command(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return " ".join(value)
    return ""


def brief(arguments: dict[str, Any]) -> str:
    """The arguments in a few words: single values as they are, long texts by their length."""
    return ", ".join(_brief(key, value, alone=len(arguments) == 1) for key, value in arguments.items())


def _brief(key: str, value: object, *, alone: bool) -> str:
    text = value if isinstance(value, str) else repr(value)
    shown = " ".join(text[:_MOST_LOOKED_AT_CHARS].split())
    if len(shown) > _MOST_VALUE_CHARS:
        shown = (
            f"{head(shown, _VALUE_HEAD_CHARS)}… ({len(text):,} characters)"
            if isinstance(value, str)
            else beginning(shown, _MOST_VALUE_CHARS)
        )
    return shown if alone else f"{key}={shown}"
