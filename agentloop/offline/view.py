"""What a request shows: what is asked, what was done for it since, and the records of what is gone."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentloop.messages import Json, Message, ToolCall
from agentloop.models import ModelRequest
from agentloop.offline.notes import asked_in

_RECORD = "[Conversation compressed"
_GO_ON = re.compile(
    r"\W*(?:please\s+)?(?:continue|go on|carry on|proceed|keep going)\b.{0,30}", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A call made for what is asked, and its result; None where none is in sight."""

    name: str
    arguments: dict[str, Any]
    result: str | None

    @property
    def broken_off(self) -> bool:
        """Whether it has to be made again, since nothing is known of its outcome."""
        return self.result is None or self.result.lower().startswith(("interrupted", "not run:"))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A request as the stand-in sees it.

    `asked` is the text of the newest real user message (of the one before, where that says go on);
    `before` is what stood before it, `since` what came after, `records` the texts of the summaries.
    """

    asked: str
    before: tuple[Message, ...]
    since: tuple[Message, ...]
    records: tuple[str, ...]
    tools: tuple[Json, ...]
    fingerprint: str

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools offered."""
        return frozenset(name for name, _ in self.tool_functions())

    def tool_functions(self) -> Iterator[tuple[str, Json]]:
        """Each tool's name and its description in wire form."""
        for tool in self.tools:
            function = tool.get("function", {})
            yield str(function.get("name", "")), function

    def done(self) -> Iterator[Done]:
        """The calls made since it was asked, oldest first."""
        results = {message.tool_call_id: message.text for message in self.since if message.role == "tool"}
        for message in self.since:
            for call in message.tool_calls:
                yield Done(name=call.name, arguments=_decoded(call.arguments), result=results.get(call.id))

    def call(self, name: str, arguments: Json, number: int = 1) -> ToolCall:
        """A call whose id is another in each request and for each number."""
        text = json.dumps(arguments, ensure_ascii=False)
        return ToolCall(id=f"call_{self.fingerprint}_{number}", name=name, arguments=text)


def view_of(request: ModelRequest) -> View:
    """The request, read."""
    messages = [Message.from_openai(message) for message in request.messages]
    records = tuple(message.text for message in messages if is_record(message))
    said = [message for message in messages if not is_record(message)]
    at = _asked_at(said)
    return View(
        asked=said[at].text if at is not None else _last_asked(records),
        before=tuple(said[: at or 0]),
        since=tuple(said[at + 1 :] if at is not None else said),
        records=records,
        tools=request.tools,
        fingerprint=hashlib.sha256(json.dumps(request.messages, default=str).encode()).hexdigest()[:10],
    )


def _asked_at(said: Sequence[Message]) -> int | None:
    users = [at for at, message in enumerate(said) if message.role == "user"]
    if len(users) > 1 and _GO_ON.fullmatch(said[users[-1]].text):
        return users[-2]
    return users[-1] if users else None


def _last_asked(records: Sequence[str]) -> str:
    asked = [line for record in records for line in asked_in(record)]
    return asked[-1] if asked else ""


def is_record(message: Message) -> bool:
    """Whether the message stands for what was compressed."""
    return message.role == "user" and message.text.startswith(_RECORD)


def _decoded(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
