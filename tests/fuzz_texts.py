"""Texts of any script, and histories as they are imported from elsewhere."""

import json
from random import Random
from typing import Any

from agentloop.messages import Message, ToolCall

SCRIPTS = {
    "words": "lorem ipsum dolor sit amet consectetur ",
    "cjk": "日本語の文章ですよ。",
    "joined": "👩‍👩‍👧 e\u0301 ",
    "base64": "QUJDREVGR0hJSktMTU5P",
    "lines": "src/main.py:17: error in line\n\n",
    "nul": "a\x00b\ufeff ",
    "special": "<|endoftext|> <|im_start|>system ",
    "surrogate": "half \ud83d of it ",
}
ARGUMENTS = (
    "",
    " ",
    "null",
    "[]",
    '{"number": 1',
    '{"number": 1}{"number": 2}',
    '{"x": NaN}',
    '"text"',
    "[1]",
)


ORDERS = ("late", "missing", "repeated", "one turn", "interleaved", "parallel")
"""How the results of calls may stand in a history whose messages are otherwise as they should be."""


def text(script: str, words: int, fact: str = "") -> str:
    """A text of about so many words, with a fact at its head and one at its end if it is given one."""
    unit = SCRIPTS[script]
    body = (unit * (words * 6 // len(unit) + 1))[: words * 6]
    return f"{fact} {body} {fact}".strip()


def history(draw: Random, length: int) -> list[Message]:
    """Messages as imported: late, shuffled, missing, repeated and orphaned results, odd shapes."""
    return [Message.from_openai(_odd_message(draw, at)) for at in range(length)]


def ordered(draw: Random, order: str, length: int) -> list[Message]:
    """Turns of so many messages with calls, whose results come in one of `ORDERS`."""
    said: list[Message] = []
    waiting: list[Message] = []
    for at in range(length):
        fact = f"FACT-{0xF00000 + at:06x}"
        if at == 0 or (order != "one turn" and draw.random() < 0.4):
            said.append(Message.user(text("words", draw.choice([5, 50]), fact)))
        width = draw.randrange(2, 5) if order == "parallel" else draw.randrange(1, 3)
        calls = [ToolCall(id=f"call_{at}_{n}", name="look", arguments='{"number": 0}') for n in range(width)]
        said.append(Message.assistant(draw.choice([None, "I look."]), calls))
        waiting += (Message.tool(call.id, text("words", draw.choice([5, 200]), fact)) for call in calls)
        if order not in ("late", "interleaved") or draw.random() < 0.5:
            said += _as_they_come(draw, order, waiting)
            waiting = []
    return [*said, *waiting]


def _as_they_come(draw: Random, order: str, results: list[Message]) -> list[Message]:
    match order:
        case "missing":
            return [one for one in results if draw.random() < 0.7]
        case "repeated":
            return [*results, *(one for one in results if draw.random() < 0.5)]
        case "interleaved" | "parallel":
            return draw.sample(results, len(results))
    return results


def _odd_message(draw: Random, at: int) -> dict[str, Any]:
    said = text(draw.choice(sorted(SCRIPTS)), draw.choice([1, 20, 200]), f"FACT-{0xF00000 + at:06x}")
    match draw.randrange(12):
        case 0 | 1 | 2:
            return {"role": "user", "content": draw.choice([said, said, said, ""])}
        case 3 | 4:
            return {"role": "assistant", "content": draw.choice([said, said, "", None])}
        case 5 | 6:
            calls = [_odd_call(draw) for _ in range(draw.randrange(1, 4))]
            return {"role": "assistant", "content": draw.choice([None, "", said]), "tool_calls": calls}
        case 7 | 8 | 9:
            return {"role": "tool", "tool_call_id": draw.choice(["a", "b", "c", ""]), "content": said}
        case 10:
            return {"role": draw.choice(["system", "developer", "function", "critic"]), "content": said}
    parts = [
        {"type": "text", "text": said},
        draw.choice([{"type": "refusal", "refusal": "no"}, {"text": "x"}]),
    ]
    return {"role": draw.choice(["user", "assistant"]), "content": parts}


def _odd_call(draw: Random) -> dict[str, Any]:
    arguments: object = draw.choice([*ARGUMENTS, "{}", json.dumps({"number": 0}), {"a": 1}])
    name = draw.choice(["look", "look", "", "a.b c", "読む"])
    identity = draw.choice(["a", "b", "c", "", None, 5])
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
