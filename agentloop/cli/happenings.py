"""What is worth a line while a run goes on, in words."""

import json
from dataclasses import dataclass, field

from rich.text import Text

from agentloop.cli.output import printable
from agentloop.cli.tally import short
from agentloop.stream import (
    CallbackFailed,
    CompactionEnded,
    CompactionResult,
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
_REASON_CHARS = 200
_CUT_SHORT = {"length": "the output limit", "content_filter": "a content filter"}


@dataclass(slots=True)
class Happenings:
    """Turns events into lines; remembers the calls under way by their ids."""

    calls: dict[str, str] = field(default_factory=dict)

    def line(self, event: StreamEvent) -> Text | None:
        """The line for this event, None where it is worth none."""
        match event:
            case RunStarted():
                return Text(_one_line(f"{event.model} · session {event.session_id}"), style="dim")
            case ToolStarted():
                self.calls[event.call_id] = call_in_brief(event.name, event.arguments)
            case ToolEnded():
                return self._tool(event)
            case CompactionStarted():
                why = _one_line(event.why or event.strategy)
                return Text(f"⇣ compacting ({event.reason}: {why})", style="yellow")
            case CompactionEnded():
                return _compacted(event)
            case ResultsCleared():
                return _cleared(event)
            case _:
                return _trouble(event)
        return None

    def _tool(self, event: ToolEnded) -> Text:
        call = self.calls.pop(event.call_id, None) or _cut(_one_line(event.name), _LINE_CHARS)
        text = f"• {call} {seconds(event.duration_seconds)}"
        return Text(text) if event.status == "ok" else Text(f"{text} {event.status}", style="red")


def call_in_brief(name: str, arguments: str) -> str:
    """E.g. `read_file(path="a.py", offset=200)`, long values cut, on one line whatever is in them."""
    try:
        values = json.loads(arguments or "{}")
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return _cut(f"{_one_line(name)}({_cut(_one_line(arguments), _ARGUMENT_CHARS)})", _LINE_CHARS)
    pairs = ", ".join(f"{key}={_value(value)}" for key, value in values.items())
    return _cut(f"{_one_line(name)}({_one_line(pairs)})", _LINE_CHARS)


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


def compacted_line(what: CompactionEnded | CompactionResult) -> str:
    """What a compaction came to, on one line."""
    if what.status != "done":
        reason = _cut(_one_line(what.error or "the history is as it was"), _REASON_CHARS)
        return f"not compacted, {what.status}: {reason}"
    sizes = f"{short(what.tokens_before)} → {short(what.tokens_after)} tokens"
    messages = f"{what.messages_before} → {what.messages_after} messages"
    kept = f", {_one_line(what.transcript)}" if what.transcript else ""
    return f"compacted: {sizes}, {messages}, {seconds(what.duration_seconds)}{kept}"


def _compacted(event: CompactionEnded) -> Text:
    return Text(f"⇣ {compacted_line(event)}", style="yellow" if event.status == "done" else "red")


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
    return Text(_cut(_one_line(text), 300), style="red")


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())
