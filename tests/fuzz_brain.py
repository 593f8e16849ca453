"""The server's side of a fuzzed conversation: what it answers, and with what faults."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.fuzz_application import Application
from tests.fuzz_plan import Plan
from tests.fuzz_sub_agents import NAMES
from tests.fuzz_texts import ARGUMENTS, SCRIPTS, text
from tests.strict_bodies import Body
from tests.strict_provider import StrictProvider
from tests.strict_replies import (
    MARKER,
    Answered,
    Call,
    Drop,
    Fault,
    Hang,
    Raw,
    Reply,
    asks_for_summary,
    events,
)
from tests.strict_responses import as_chat, is_for_responses
from tests.strict_rules import text_of

FAILING = {"500": 500, "503": 503, "429": 429, "429-soon": 429, "429-later": 429, "408": 408, "409": 409}
REFUSING = {"400": 400, "401": 401, "403": 403, "404": 404, "422": 422}
HEADERS = {"429-soon": {"retry-after": "1"}, "429-later": {"retry-after": "7200"}}
WRITTEN: dict[str, Callable[[str], str]] = {
    "none": lambda told: "",
    "facts": lambda told: "Facts so far: " + (", ".join(dict.fromkeys(MARKER.findall(told))) or "none"),
    "gist": lambda told: f"The user and the assistant went on: {' '.join(told.split()[40:52])}.",
    "echo": lambda told: told[:2_000],
    "fair": lambda told: "So far:\n" + "\n".join(line[:160] for line in told.splitlines()[-40::2]),
}
"""What a summariser of each kind makes of what it is told."""
TOOLS = ("look", "look", "look", "slow_look", "side", "again", "note", "fails", "stalls", "odd", "compact")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request as the server saw it, what it answered, and in which act and after how many rewrites.

    `body` is in the form of chat completions, whatever the path. `unknown` says that the server refused it
    for a field that it does not know, before it looked at anything else.
    """

    path: str
    body: Body
    raw: bytes
    violations: tuple[str, ...]
    reply: Answered
    unknown: bool
    act: int
    rewrites: int

    @property
    def for_summary(self) -> bool:
        """Whether it asks for a summary."""
        return bool(self.body) and asks_for_summary(self.body)

    @property
    def too_long(self) -> bool:
        """Whether it was refused by V10 alone."""
        by_size = bool(self.violations) and all(line.startswith("V10") for line in self.violations)
        return by_size and not self.unknown


class FuzzedServer(StrictProvider):
    """A strict provider that plays the plan's model, keeps what it answered, and can be told to hang.

    `left` are the widths of the batches still to be called for in this turn; `hang_at` counts requests down
    to one that is never answered, when `on_hang` is called. `act` and `rewrites` are kept by the client.
    """

    def __init__(self, plan: Plan, application: Application) -> None:
        super().__init__(
            self._brain,
            window=plan.window,
            modes=plan.modes,
            overflow=plan.overflow,
            usage=plan.usage,
            factor=plan.factor,
            refuses=plan.refuses,
            whole=plan.whole,
            shape=plan.shape,
        )
        self.plan, self.application = plan, application
        self.seen: list[Seen] = []
        self.offered: dict[int, str] = {}
        self.left: list[int] = []
        self.hang_at = 0
        self.on_hang: Callable[[], object] = lambda: None
        self.act = 0
        self.rewrites = 0
        self._asked = 0
        self._number = 0
        self._guard = threading.Lock()
        if plan.listed:
            model = {"id": "fuzzed", "object": "model", "max_model_len": plan.window}
            self.pages = {"/v1/models": {"object": "list", "data": [model]}}

    def answer(self, path: str, headers: Any, raw: bytes) -> tuple[Answered, Body]:
        act, rewrites = self.act, self.rewrites
        reply, body = super().answer(path, headers, raw)
        with self._guard:
            received = self.requests[-1]
            seen = Seen(
                path=path,
                body=as_chat(body) if is_for_responses(body) else body,
                raw=raw,
                violations=received.violations,
                reply=reply,
                unknown=self._unknown(body) is not None,
                act=act,
                rewrites=rewrites,
            )
            self.seen.append(seen)
        return reply, body

    def _brain(self, body: Body) -> Answered:
        draw = Random(f"{self.plan.seed} {self._asked}")
        self._asked += 1
        if self.hang_at:
            self.hang_at -= 1
            if not self.hang_at:
                self.on_hang()
                return Hang()
        if (refused := self.application.refused(body)) is not None:
            return refused
        return self._summary(body, draw) if asks_for_summary(body) else self._said(body, draw)

    def _said(self, body: Body, draw: Random) -> Answered:
        fault = draw.choice(self.plan.faults) if self.plan.faults else ""
        fault = fault if draw.random() < self.plan.fault_rate else ""
        if fault in FAILING | REFUSING:
            return failed(fault, draw)
        if fault == "empty":
            return Reply(text=draw.choice(["", " "]))
        width = self.left[0] if self.left and body.get("tools") else 0
        reply = self._calls(draw, width) if width else self._text(draw)
        if not width and self.plan.wants.output:
            reply = self.application.answer(reply, [self._call(draw)] if body.get("tools") else [])
        answered = faulted(reply, fault, draw, streamed=self.plan.streams)
        if width and isinstance(answered, Reply) and answered.calls:
            self.left.pop(0)
        return answered

    def _text(self, draw: Random) -> Reply:
        self._number += 1
        said = text(
            draw.choice(self._clean()), draw.choice([5, 20, 100]), f"FACT-{0xA00000 + self._number:06x}"
        )
        return Reply(text=said, reasoning=self._reasoning(draw), piece_chars=draw.choice([3, 16, 200]))

    def _calls(self, draw: Random, width: int) -> Reply:
        calls = tuple(self._call(draw) for _ in range(width))
        said = draw.choice(["", "", "I look."])
        return Reply(
            text=said, calls=calls, reasoning=self._reasoning(draw), piece_chars=draw.choice([3, 16, 200])
        )

    def _call(self, draw: Random) -> Call:
        self._number += 1
        name, identity = draw.choice(TOOLS), f"call_{self._number:06d}"
        if name == "compact":
            return Call(name=name, arguments=json.dumps({"focus": "the numbers"}), id=identity)
        if self.plan.seed % 4 == 1 and (of_sets := self._of_sets(identity)):
            return of_sets
        if (wanted := self.application.names()) and draw.random() < 0.4:
            name = draw.choice(wanted)
        if self.plan.seed % 4 == 2 and (below := self._of_sub_agent(identity)):
            return below
        self.offered[self._number] = name
        words = draw.choice(self.plan.result_words)
        given = {"number": self._number, "words": words, "script": draw.choice(self.plan.scripts)}
        if draw.random() < 0.1:
            given["text"] = text(draw.choice(self._clean()), draw.choice([10, 1_000]))
        return Call(name=name, arguments=json.dumps(given, ensure_ascii=draw.random() < 0.5), id=identity)

    def _of_sets(self, identity: str) -> Call | None:
        """A call of a tool of a set, now and then; drawn apart, so that all else is drawn as without sets."""
        draw = Random(f"{self.plan.seed} sets {self._number}")
        if draw.random() > 0.4:
            return None
        items = [{"content": f"job {self._number}", "status": draw.choice(["pending", "in_progress"])}]
        given: dict[str, Any] = draw.choice(
            [
                {"items": items * draw.choice([1, 2])},
                {"tool": "pause", "arguments": {"turns": draw.choice([0, 1, 50, 5_000])}},
                {"wait_seconds": 0},
            ]
        )
        names = {"items": "todo_write", "tool": "run_in_background", "wait_seconds": "check"}
        return Call(name=names[next(iter(given))], arguments=json.dumps(given), id=identity)

    def _of_sub_agent(self, identity: str) -> Call | None:
        """A call of a sub-agent, now and then; drawn apart too."""
        draw = Random(f"{self.plan.seed} below {self._number}")
        if draw.random() > 0.4:
            return None
        task = f"Find out {self._number}. {text('words', draw.choice([3, 200]), '')}"
        return Call(name=draw.choice(NAMES), arguments=json.dumps({"task": task}), id=identity)

    def _reasoning(self, draw: Random) -> str | None:
        return f"I think of {self._number}." if "V11" in self.plan.modes and draw.random() < 0.7 else None

    def _clean(self) -> list[str]:
        return [script for script in self.plan.scripts if script in SCRIPTS and script != "surrogate"]

    def _summary(self, body: Body, draw: Random) -> Answered:
        told = "\n".join(map(text_of, body["messages"]))
        if self.plan.summariser == "failing":
            return failed("500", draw)
        written = Reply(text=WRITTEN[self.plan.summariser](told), piece_chars=5_000)
        fault = draw.choice(self.plan.summary_faults) if self.plan.summary_faults else ""
        if not fault or draw.random() < 0.2:
            return written
        match fault:
            case "400" | "500":
                return failed(fault, draw)
            case "drop":
                return Drop(reply=written, events=2 if self.plan.streams else 0)
            case "length":
                return replace(written, finish="length")
            case "call":
                return Reply(calls=(Call(name="look"),))
        texts = {
            "blank": "  ", "huge": told * 2, "error-text": "Error: the service is not available (503).",
            "echo": told, "same": "It was as always.",
        }  # fmt: skip
        return Reply(text=texts[fault], piece_chars=5_000)


def failed(fault: str, draw: Random) -> Fault:
    """A refusal or failure by HTTP status that speaks of no overflow."""
    said = draw.choice(["no", "Invalid schema: unknown field in the context of this request"])
    status = (FAILING | REFUSING)[fault]
    return Fault(status=status, body={"error": {"message": said}}, headers=HEADERS.get(fault, {}))


def faulted(reply: Reply, fault: str, draw: Random, *, streamed: bool) -> Answered:
    """The reply with this fault, or as it is where the fault does not go with it."""
    match fault:
        case "drop" | "reset":
            events_sent = draw.randrange(0, 6) if streamed else 0
            return Drop(reply=reply, events=events_sent, reset=fault == "reset")
        case "error-event" if streamed:
            return _broken_stream(reply, draw)
        case "error-object":
            return Fault(
                status=200, body={"error": {"message": "overloaded", "code": draw.choice([503, "x"])}}
            )
        case "length":
            return replace(reply, finish="length") if not reply.calls else reply
        case "length-calls" if reply.calls:
            last = reply.calls[-1]
            cut = replace(last, arguments=last.arguments[: draw.randrange(len(last.arguments) + 1)])
            return replace(reply, calls=(*reply.calls[:-1], cut), finish="length")
        case "two-choices":
            return _two_choices(reply, streamed=streamed)
        case "parts" if reply.text:
            return replace(reply, text="", extra={"content": [{"type": "text", "text": reply.text}]})
        case "reasoning-only":
            return Reply(reasoning="I think.")
        case "stop-with-calls" if reply.calls:
            return replace(reply, finish="stop")
        case "calls-without-any" if not reply.calls:
            return replace(reply, finish="tool_calls")
        case "odd-text":
            odd = draw.choice(["\ud83d", "\x00", "<|endoftext|>", "\ufeff", "👩‍👩‍👧"])
            return replace(reply, text=reply.text + odd)
        case "refusal" if not reply.calls:
            return Reply(extra={"refusal": "I won't say that."})
        case "arguments" | "ids" | "unknown-tool" if reply.calls:
            return replace(reply, calls=tuple(_odd_call(call, fault, draw) for call in reply.calls))
    return reply


def _odd_call(call: Call, fault: str, draw: Random) -> Call:
    match fault:
        case "arguments":
            return replace(call, arguments=draw.choice([*ARGUMENTS, call.arguments, call.arguments]))
        case "ids":
            return replace(call, id=draw.choice(["", "call_0", "call_1"]))
    return replace(call, name=draw.choice(["nothing", "", "lok", "a.b c"]))


def _broken_stream(reply: Reply, draw: Random) -> Raw:
    deltas = list(reply.deltas())[: draw.randrange(1, 6)]
    chunks: list[object] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"error": {"message": "overloaded", "code": draw.choice([503, 500])}})
    return events(*chunks, done=False)


def _two_choices(reply: Reply, *, streamed: bool) -> Answered:
    """A completion with a second choice that says something else."""
    other = {"role": "assistant", "content": "the other choice"}
    if not streamed:
        first = {"index": 0, "message": reply.message(), "finish_reason": reply.finish_reason}
        second = {"index": 1, "message": other, "finish_reason": "stop"}
        return Fault(status=200, body={"object": "chat.completion", "choices": [first, second]})
    chunks: list[object] = []
    for delta in reply.deltas():
        chunks.append({"choices": [{"index": 0, "delta": delta}]})
        chunks.append({"choices": [{"index": 1, "delta": other}]})
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish_reason}]})
    return events(*chunks)
