"""A task on real input, the standard library's email package, and the offline model as a provider's brain."""

import asyncio
import email
from collections.abc import Iterator
from pathlib import Path

from agentloop.models import Answer, ModelRequest
from agentloop.providers.offline import OfflineModel
from tests.strict_bodies import Body
from tests.strict_replies import Answered, Call, Reply, asks_for_summary

FOLDER = Path(email.__file__).parent
TASK = "Read every Python file in this folder and say what each one does."


def file_names() -> Iterator[str]:
    """The Python files, by their paths in the folder."""
    return (path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.py"))


def reader(body: Body) -> Answered:
    """The offline model, behind the provider."""
    request = ModelRequest(
        messages=tuple(body["messages"]),
        tools=tuple(body.get("tools", ())),
        purpose="summary" if asks_for_summary(body) else "agent",
        max_output_tokens=body.get("max_tokens"),
    )

    async def last() -> Answer:
        *_, answer = [part async for part in OfflineModel().stream(request)]
        assert isinstance(answer, Answer)
        return answer

    message = asyncio.run(last()).message
    asked = tuple(Call(name=call.name, arguments=call.arguments) for call in message.tool_calls)
    return Reply(text=message.text, calls=asked)
