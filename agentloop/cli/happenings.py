"""What is worth a line while a run goes on, in words."""

import json
from dataclasses import dataclass, field

from rich.text import Text

from agentloop.cli.output import printable
from agentloop.cli.tally import short
from agentloop.stream import (
    CallbackFailed,
    CompactionEnded,
    CompactionStarted,
    ContextWarning,
    MessageAdded,
    ResultsCleared,
    Retrying,
    RunStarted,
    StreamEvent,
    ToolEnded,
    ToolStarted,
)

_ARGUMENT_CHARS = 40
_LINE_CHARS = 100
_CUT_SHORT = {"length": "the output limit", "content_filter": "a content filter"}


@dataclass(slots=True)
class Happenings:
    """Turns events into lines; remembers the calls under way by their ids."""

    calls: dict[str, str] = field(default_factory=dict)

    def line(self, event: StreamEvent) -> Text | None:
        """The line for this event, None where it is worth none."""
        match event:
            case RunStarted():
                return Text(f"{event.model} · session {event.session_id}", style="dim")
            case ToolStarted():
                self.calls[event.call_id] = call_in_brief(event.name, event.arguments)
            case ToolEnded():
                return self._tool(event)
            case CompactionStarted():
                return Text(f"⇣ compacting ({event.reason}: {event.why or event.strategy})", style="yellow")
            case CompactionEnded():
                return _compacted(event)
            case ResultsCleared():
                return _cleared(event)
            case _:
                return _trouble(event)
        return None

    def _tool(self, event: ToolEnded) -> Text:
        call = self.calls.pop(event.call_id, event.name)
        text = f"• {call} {seconds(event.duration_seconds)}"
        return Text(text) if event.status == "ok" else Text(f"{text} {event.status}", style="red")


def call_in_brief(name: str, arguments: str) -> str:
    """E.g. `read_file(path="a.py", offset=200)`, long values cut, on one line whatever is in them."""
    try:
        values = json.loads(arguments or "{}")
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return _cut(f"{name}({_cut(' '.join(printable(arguments).split()), _ARGUMENT_CHARS)})", _LINE_CHARS)
    pairs = ", ".join(f"{key}={_value(value)}" for key, value in values.items())
    return _cut(f"{printable(name)}({printable(pairs)})", _LINE_CHARS)


def seconds(duration: float) -> str:
    """E.g. `0.1s`, `75s`."""
    return f"{duration:.1f}s" if duration < 10 else f"{duration:.0f}s"


def _value(value: object) -> str:
    return _cut(json.dumps(value, ensure_ascii=False), _ARGUMENT_CHARS)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _cleared(event: ResultsCleared) -> Text:
    count = len(event.positions)
    what = f"⇣ micro: {count} old message{'' if count == 1 else 's'} shortened"
    return Text(f"{what}, {short(event.tokens_before)} → {short(event.tokens_after)} tokens", style="yellow")


def _compacted(event: CompactionEnded) -> Text:
    if event.status != "done":
        reason = f": {_cut(' '.join(printable(event.error).split()), 200)}" if event.error else ""
        return Text(f"⇣ not compacted, {event.status}{reason}", style="red")
    sizes = f"{short(event.tokens_before)} → {short(event.tokens_after)} tokens"
    messages = f"{event.messages_before} → {event.messages_after} messages"
    text = f"⇣ compacted: {sizes}, {messages}, {seconds(event.duration_seconds)}"
    kept = f", {event.transcript}" if event.transcript else ""
    return Text(text + kept, style="yellow")


def _trouble(event: StreamEvent) -> Text | None:
    match event:
        case Retrying():
            wait = seconds(event.wait_seconds)
            return _red(f"↻ try {event.attempt} failed, again in {wait}: {event.error}")
        case CallbackFailed():
            return _red(f"! callback {event.callback}.{event.point}: {event.error}")
        case MessageAdded(finish=finish) if finish in _CUT_SHORT:
            return _red(f"! the answer was cut off by {_CUT_SHORT[finish]}")
        case ContextWarning(level="critical"):
            return _red(f"! the window is nearly full: {short(event.tokens)} of {short(event.window)} tokens")
    return None


def _red(text: str) -> Text:
    return Text(_cut(" ".join(printable(text).split()), 300), style="red")
