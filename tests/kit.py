"""What several tests share: histories drawn at random, and a run watched from outside."""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pytest
from hypothesis import strategies as st

from agentloop.context import Budget, Context, count_message, counter_for
from agentloop.events import Event, MessageRecord, Record
from agentloop.messages import Message, ToolCall
from agentloop.models import ModelRequest
from agentloop.runner import Runner
from agentloop.stream import AnyStreamEvent
from agentloop.testing import calls
from tests.strict_rules import violations

COUNTER = counter_for("test")
BUDGET = Budget(window=4000, fixed=100, model="m")

texts = st.text(max_size=60) | st.sampled_from(
    ["", " ", "\ud800", "a\x00b", "<|endoftext|>", "日本語🙂", "x" * 900]
)
call_ids = st.sampled_from(["", "a", "b", "c"]) | st.integers(0, 5).map("call_{}".format)
names = st.sampled_from(["read", "write", "", "a.b c", "\ud800", "読む", "n" * 80])
arguments = st.sampled_from(
    ["{}", "", " ", "null", "[]", '{"a": 1', "{}{}", '{"x": NaN}', '{"p": "é"}', '{"t": "' + "文\x00" * 3_000]
)
tool_calls = st.builds(ToolCall, id=call_ids, name=names, arguments=arguments)
said = st.one_of(
    texts.map(Message.user),
    st.builds(Message.assistant, texts, st.lists(tool_calls, max_size=3)),
    st.builds(Message.tool, call_ids, texts),
    st.just(Message(role="system", content="be brief")),
)

odd = st.sampled_from([None, 5, True, float("nan"), {}, {"t": 1}, [], ["a", 2], "\udfff"])
odd_parts = st.lists(
    st.sampled_from(
        [
            "bare",
            {"type": "text", "text": "part"},
            {"type": "text"},
            {"text": "untyped"},
            {"type": "refusal", "refusal": "no"},
            {"type": "image_url", "image_url": {"url": "u"}, "weight": float("inf")},
        ]
    ),
    max_size=3,
)
odd_calls = st.one_of(
    odd,
    st.fixed_dictionaries(
        {},
        optional={
            "id": call_ids | st.integers(0, 3) | odd,
            "type": st.sampled_from(["function", "custom", ""]) | odd,
            "function": odd
            | st.fixed_dictionaries({}, optional={"name": names | odd, "arguments": arguments | odd}),
            "custom": odd | st.just({"name": "run", "input": "text"}),
        },
    ),
)
imported = st.fixed_dictionaries(
    {
        "role": st.sampled_from(
            ["system", "developer", "user", "assistant", "tool", "function", "critic", "a\nb"]
        )
    },
    optional={
        "content": texts | odd | odd_parts,
        "tool_calls": odd | st.lists(odd_calls, max_size=3),
        "tool_call_id": call_ids | st.integers(0, 3) | odd,
        "name": names | odd,
        "refusal": st.none() | st.just("I won't."),
        "function_call": odd | st.just({"name": "old", "arguments": "{}"}),
        "reasoning_content": st.just("because"),
    },
).map(Message.from_openai)
histories = st.lists(said | imported, max_size=25)
"""Any history at all: late, shuffled, missing, repeated and orphaned results, broken arguments, ids and
names, roles and shapes that chat completions do not know."""


@st.composite
def orderly(draw: st.DrawFn, *, most_turns: int = 6) -> list[Message]:
    """A history as a run makes it: turns of exchanges with their results in any order, then an answer."""
    messages: list[Message] = []
    number = 0
    for turn in range(draw(st.integers(1, most_turns))):
        messages.append(
            Message.user(f"request {turn} FACT-{turn:06x} " + "please " * draw(st.integers(0, 40)))
        )
        for _ in range(draw(st.integers(0, 4))):
            width = draw(st.integers(1, 3))
            calls = [
                ToolCall(id=f"call_{number + at}", name="read", arguments='{"path": "a"}')
                for at in range(width)
            ]
            number += width
            messages.append(Message.assistant(draw(st.sampled_from(["", "reading"])), calls))
            results = [Message.tool(call.id, f"{call.id} " * draw(st.integers(1, 200))) for call in calls]
            messages.extend(draw(st.permutations(results)))
        messages.append(Message.assistant(f"answer {turn} " + "so " * draw(st.integers(1, 60))))
    return messages


def added(message: Message) -> MessageRecord:
    """The record of a message, counted."""
    return MessageRecord(message=message, tokens=count_message(message, COUNTER))


def records_of(events: Sequence[Event]) -> list[Record]:
    """The events at their positions."""
    return [Record(seq=seq, event=event) for seq, event in enumerate(events, 1)]


def context_of(messages: Sequence[Message]) -> Context:
    """The context of a history."""
    return Context.of(records_of([added(message) for message in messages]))


def body_of(request: ModelRequest) -> dict[str, Any]:
    """The request as a JSON body, as it would arrive at a server."""
    body: dict[str, Any] = {"model": "m", "messages": list(request.messages)}
    if request.tools:
        body["tools"] = list(request.tools)
    return dict(json.loads(json.dumps(body)))


def assert_valid(requests: Sequence[ModelRequest]) -> None:
    """Every request would pass a strict provider."""
    for number, request in enumerate(requests):
        assert violations(body_of(request)) == [], f"request {number}"


async def watched(runner: Runner, prompt: str | None, *, session_id: str = "s") -> list[AnyStreamEvent]:
    """Every event of one run that ends well."""
    return [event async for event in runner.stream(prompt, session_id=session_id)]


async def until(condition: asyncio.Event) -> None:
    """Wait for the condition, for as long as a broken test may take."""
    await asyncio.wait_for(condition.wait(), timeout=120)


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """From now on the event loop's clock says so many seconds more: what was to come by then is due."""
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + seconds)


FACT = re.compile(r"FACT-[0-9a-f]{6}")


def conversation_in(question: str) -> str:
    """What a request for a summary shows of the conversation, its labels without their mark."""
    mark = question.removeprefix("<conversation ")[:9]
    begin, end = f"<conversation {mark}>\n", f"\n</conversation {mark}>\n\n"
    assert question.startswith(begin)
    assert question.count(end) == 1
    return question.removeprefix(begin).partition(end)[0].replace(f"[{mark}] ", "")


def lines(name: str, words: int = 400) -> str:
    """A result with a fact at its head and one at its end."""
    return f"FACT-{crc32(name.encode()) % 16**6:06x} {name} " + "word " * words + f"FACT-{len(name):06x}"


def read(name: str, words: int = 400) -> str:
    """Read a file."""
    return lines(name, words)


def every_fact(request: ModelRequest) -> str:
    """A summary that says every fact of its input, each once."""
    text = "\n".join(str(message["content"]) for message in request.messages)
    return "Facts so far: " + (" ".join(dict.fromkeys(FACT.findall(text))) or "none")


def reading(count: int, width: int = 1, words: int = 400) -> list[Any]:
    """Answers that read `count` batches of `width` files, then end."""
    batches = [
        calls(*(("read", {"name": f"file_{batch}_{at}", "words": words}) for at in range(width)))
        for batch in range(count)
    ]
    return [*batches, "all read"]
