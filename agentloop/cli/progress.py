"""A run shown on standard error: a line for each event that is worth one, and in a terminal a live one below.

`RunFigures` are what is summed up over a run; the status line and the report at its end are made of them.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from agentloop._plumbing.strict_json import lenient_value
from agentloop._plumbing.truncate import beginning
from agentloop.approvals import Pending
from agentloop.cli.terminal import counted, line_of, printable
from agentloop.messages import Usage
from agentloop.stream import (
    ApprovalGiven,
    CallbackFailed,
    CallRepeated,
    CompactionEnded,
    CompactionResult,
    CompactionStarted,
    ContextStatus,
    ContextWarning,
    Level,
    MessageAdded,
    ResultsCleared,
    Retrying,
    RunEnded,
    RunStarted,
    StreamEvent,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)

_BAR = 10
_ARGUMENT_CHARS = 40
_LINE_CHARS = 100
_REASON_CHARS = 200
_CUT_SHORT = {"length": "the output limit", "content_filter": "a content filter"}
_REFRESHES_PER_SECOND = 8
_TAIL_CHARS = 60
_LEAST_SHOWN = 0.0001
"""Less is named by this, in US dollars."""


@dataclass(slots=True, kw_only=True)
class RunFigures:
    """Sums over the events seen; grows with each.

    `earlier` are compactions of the session before them; `goes_on` says that it was there before them,
    `stored` that it is there behind them. `refused` says that the server will not take what is asked. `asked`
    are the ids of calls that an answer is given to, until it is taken.
    """

    model: str = ""
    session_id: str = ""
    run_id: str = ""
    steps: int = 0
    earlier: int = 0
    goes_on: bool = False
    stored: bool = True
    refused: bool = False
    compactions: int = 0
    seqs: list[int] = field(default_factory=list)
    callback_failures: list[CallbackFailed] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)
    transcripts: set[str] = field(default_factory=set)
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    context: ContextStatus | None = None
    ended: RunEnded | None = None
    waiting: Sequence[Pending] = ()
    asked: Sequence[str] = ()

    def add(self, event: StreamEvent) -> None:
        """Take one more event into account."""
        self.session_id, self.run_id = event.session_id or self.session_id, event.run_id or self.run_id
        match event:
            case RunStarted():
                self.model, self.ended = event.model, None
            case MessageAdded():
                self.context = event.context
                self.seqs.append(event.seq)
                if event.message.role == "assistant":
                    self.steps += 1
                    self.usage += event.usage or Usage()
                    if event.cost is not None:
                        self.cost = (self.cost or 0.0) + event.cost
            case ApprovalGiven():
                self.asked = ()
            case CompactionEnded(status="done"):
                self.compactions += 1
                self.hidden.update(event.archived)
                if event.transcript:
                    self.transcripts.add(event.transcript)
            case CallbackFailed():
                self.callback_failures.append(event)
            case RunEnded():
                self.ended = event


class Progress:
    """Shows one run: a line for what is worth one.

    In a terminal one lives below them: what is under way, and how full the window is.
    """

    def __init__(self, console: Console, tally: RunFigures) -> None:
        self._console = console
        self._tally = tally
        self._lines = EventLines(stored=tally.stored)
        self._first: Text | None = None
        self._doing = "starting"
        self._since = time.monotonic()
        self._text = ""
        self._spinner = Spinner("dots")
        self._away = False
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                console=console,
                get_renderable=self._live_line,
                refresh_per_second=_REFRESHES_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
        self.go_on()

    def show(self, event: StreamEvent) -> None:
        """Something happened, which the tally has taken in already: print its line, if it has one.

        The line that names the session waits for what comes of it: a prompt that is refused begins none.
        """
        self._follow(event)
        line = self._lines.line(event)
        if isinstance(event, RunStarted):
            self._first = line
            return
        if self._first is not None and not isinstance(event, RunEnded):
            self._console.print(self._first)
            self._first = None
        if line is not None:
            self._console.print(line)

    def stop(self) -> None:
        """Leave the terminal as it was; harmless when called again."""
        if self._live:
            self._live.stop()

    def go_on(self) -> None:
        """After `stop`: take the terminal again."""
        if self._live and not self._away:
            self._live.start()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Within it no line lives below, whatever is shown."""
        self._away = True
        self.stop()
        try:
            yield
        finally:
            self._away = False
            self.go_on()

    def _follow(self, event: StreamEvent) -> None:
        match event:
            case TextDelta():
                self._text = (self._text + event.text)[-_TAIL_CHARS:]
                self._doing = line_of(self._text)
                return
            case ToolStarted():
                self._do(f"{event.name} …")
            case ToolProgress():
                self._do(event.text)
            case CompactionStarted():
                self._do("compacting …")
            case Retrying():
                self._do(f"waiting, try {event.attempt + 1}")
            case MessageAdded() | ToolEnded() | CompactionEnded():
                self._do(f"step {self._tally.steps + 1}")
        if self._live and self._live.is_started:
            self._live.refresh()

    def _do(self, what: str) -> None:
        self._doing, self._since, self._text = printable(what), time.monotonic(), ""

    def _live_line(self) -> Spinner:
        text = final_line(self._tally).append(f" · {self._doing} {seconds(time.monotonic() - self._since)}")
        text.truncate(max(10, self._console.width - 3), overflow="ellipsis")
        self._spinner.update(text=text)
        return self._spinner


@dataclass(slots=True)
class EventLines:
    """Turns events into lines; remembers the calls under way by their ids.

    What is said of a call that has ended, such as of work that it left in the background, has a line.

    `stored` says that the session can be gone on with by its id.
    """

    stored: bool = True
    calls: dict[str, str] = field(default_factory=dict)
    compacts: bool = False
    """Whether nothing was said since the compaction before."""

    def line(self, event: StreamEvent) -> Text | None:
        """The line for this event, None where it is worth none."""
        match event:
            case RunStarted():
                where = f"session {event.session_id}" if self.stored else "nothing is stored"
                return Text(line_of(f"{event.model} · {where}"), style="dim")
            case ToolStarted():
                self.calls[event.call_id] = call_text(event.name, event.arguments)
            case ToolEnded():
                return self._tool(event)
            case ApprovalGiven():
                by = f" by {event.by}" if event.by else ""
                return Text(line_of(f"? {event.name}: {event.verdict}{by}"), style="dim")
            case ToolProgress(call_id=call_id) if call_id not in self.calls:
                return Text(line_of(event.text), style="yellow")
            case CompactionStarted():
                return self._compacting(event)
            case CompactionEnded():
                self.compacts = True
                return Text(
                    f"⇣ {compaction_line(event)}", style="yellow" if event.status == "done" else "red"
                )
            case ResultsCleared():
                what = f"⇣ micro: {counted(len(event.positions), 'old message')} shortened"
                sizes = f"{short(event.tokens_before)} → {short(event.tokens_after)} tokens"
                return Text(f"{what}, {sizes}", style="yellow")
            case _:
                self.compacts = self.compacts and not isinstance(event, MessageAdded)
                return _trouble(event)
        return None

    def _compacting(self, event: CompactionStarted) -> Text:
        """What the trigger said; of a further step of the same compaction that more is to go."""
        why = f"{event.reason}: {line_of(event.why or event.strategy)}"
        if self.compacts:
            why = f"{short(event.tokens_before)} tokens are still over the target"
        return Text(f"⇣ compacting{' on' if self.compacts else ''} ({why})", style="yellow")

    def _tool(self, event: ToolEnded) -> Text:
        call = self.calls.pop(event.call_id, None) or beginning(line_of(event.name), _LINE_CHARS)
        text = f"• {call} {seconds(event.duration_seconds)}"
        return Text(text) if event.status == "ok" else Text(f"{text} {event.status}", style="red")


def pending_text(pending: Pending) -> str:
    """A call that waits: its tool, whose that is, its arguments, and its id."""
    call = call_text(pending.tool, json.dumps(pending.arguments, ensure_ascii=False))
    whose = f"MCP server {line_of(pending.server)}, " if pending.server else ""
    return f"{call} ({whose}{line_of(pending.call_id)})"


def compaction_line(what: CompactionEnded | CompactionResult) -> str:
    """What a compaction came to, on one line."""
    if what.status != "done":
        reason = beginning(line_of(what.error or "the history is as it was"), _REASON_CHARS)
        return f"not compacted, {what.status}: {reason}"
    sizes = f"{short(what.tokens_before)} → {short(what.tokens_after)} tokens"
    messages = f"compacted: {sizes}, {what.messages_before} → {what.messages_after} messages"
    if what.shortened and not what.archived:
        messages = f"compacted: {sizes}, {counted(len(what.shortened), 'old message')} shortened"
    kept = f", {line_of(what.transcript)}" if what.transcript else ""
    return f"{messages}, {seconds(what.duration_seconds)}{kept}"


def failure_line(event: CallbackFailed) -> str:
    """Which callback failed, where, and how, in one line."""
    at = f" at {event.where}" if event.where else ""
    return f"! callback {event.callback}.{event.point} failed{at}: {event.error}"


def _trouble(event: StreamEvent) -> Text | None:
    match event:
        case Retrying():
            wait = seconds(event.wait_seconds)
            return _red(f"↻ try {event.attempt} failed, again in {wait}: {event.error}")
        case CallbackFailed():
            return _red(failure_line(event))
        case CallRepeated():
            return _red(f"! {event.name} gave the same result {event.times} times for the same arguments")
        case MessageAdded(finish=finish) if finish in _CUT_SHORT:
            return _red(f"! the answer was cut off by {_CUT_SHORT[finish]}")
        case ContextWarning(text=str(text)):
            return _red(f"! {text}")
        case ContextWarning(level="critical", of="window"):
            return _red(f"! the window is nearly full: {short(event.tokens)} of {short(event.window)} tokens")
    return None


def _red(text: str) -> Text:
    return Text(beginning(line_of(text), 300), style="red")


def call_text(name: str, arguments: str) -> str:
    """E.g. `read_file(path="a.py", offset=200)`, long values cut, on one line whatever is in them."""
    values = lenient_value(arguments or "{}")
    if not isinstance(values, dict):
        return beginning(f"{line_of(name)}({beginning(line_of(arguments), _ARGUMENT_CHARS)})", _LINE_CHARS)
    shown = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    pairs = ", ".join(f"{key}={beginning(value, _ARGUMENT_CHARS)}" for key, value in shown.items())
    return beginning(f"{line_of(name)}({line_of(pairs)})", _LINE_CHARS)


def seconds(duration: float) -> str:
    """E.g. `0.1s`, `75s`."""
    return f"{duration:.1f}s" if duration < 10 else f"{duration:.0f}s"


def final_line(tally: RunFigures) -> Text:
    """The status line as it stands when a run is over, its bar in front."""
    filling = f"{bar(tally.context)} " if tally.context else ""
    return Text(filling + status_line(tally), style="cyan")


def status_line(tally: RunFigures) -> str:
    """E.g. `gpt-5-mini · 52.1k/128k 41% (measured) · auto at 102k · 2 compactions · $0.42 · cache 91%`."""
    parts = (
        " ".join(tally.model.split()),
        *((_filling(tally.context), _threshold(tally.context)) if tally.context else ()),
        counted(tally.earlier + tally.compactions, "compaction"),
        "" if tally.cost is None else dollars(tally.cost),
        _cache(tally.usage),
    )
    return printable(" · ".join(filter(None, parts)))


def _filling(context: ContextStatus) -> str:
    tokens, window = context.tokens, context.window
    percent = round(100 * tokens / window) if window else 100
    kind = "measured" if context.measured else "estimated"
    return f"{short(tokens)}/{short(window)} {percent}% ({kind}){_level(context.window_level)}"


def _threshold(context: ContextStatus) -> str:
    tokens, threshold = context.tokens, context.threshold
    if threshold is None:
        return "auto off"
    level = _level(context.threshold_level)
    reached = f", {round(100 * tokens / threshold)}% of it{level}" if level and threshold else ""
    return f"auto at {short(threshold)}{reached}"


def _level(level: Level) -> str:
    return "" if level == "none" else f": {level}"


def dollars(cost: float) -> str:
    """US dollars as people read them: $0.00, less than $0.0001, $0.0421, $1.20."""
    if 0 < cost < _LEAST_SHOWN:
        return f"less than ${_LEAST_SHOWN}"
    return f"${cost:.2f}" if cost >= 0.1 or cost == 0 else f"${cost:.4f}"


def _cache(usage: Usage) -> str:
    if not usage.cached_tokens or not usage.input_tokens:
        return ""
    return f"cache {round(100 * usage.cached_tokens / usage.input_tokens)}%"


def bar(context: ContextStatus) -> str:
    """The filling of the window, with a mark where automatic compaction fires."""
    cells = ["━" if cell < _cell(context.tokens, context) else "─" for cell in range(_BAR)]
    if context.threshold is not None:
        cells[min(_BAR - 1, _cell(context.threshold, context))] = "┃"
    return "".join(cells)


def _cell(tokens: int, context: ContextStatus) -> int:
    return round(_BAR * min(1.0, tokens / context.window)) if context.window else 0


def short(tokens: int) -> str:
    """Tokens as people read them: 812, 52.1k, 128k, 1.05m."""
    if tokens < 1_000:
        return str(tokens)
    unit, size = ("k", tokens / 1_000) if tokens < 999_500 else ("m", tokens / 1_000_000)
    digits = 1 if size < 100 else 0
    return f"{size:.{digits}f}".removesuffix(".0") + unit


def compaction_report(tally: RunFigures, transcripts: Path) -> tuple[str, ...]:
    """What the run's compactions hid, of its own messages and of earlier ones, and where all can be read."""
    if not tally.compactions:
        return ()
    own = len(tally.hidden.intersection(tally.seqs))
    earlier = len(tally.hidden) - own
    times = "once" if tally.compactions == 1 else f"{tally.compactions} times"
    whole = len(tally.seqs)
    hidden = f"{own} of this run's {whole} messages" + (f" and {earlier} of earlier runs" if earlier else "")
    files = counted(len(tally.transcripts), "transcript")
    return (
        f"compacted {times}: {hidden} are no longer shown to the model",
        printable(
            f"kept: all {'of them' if earlier else whole} in the session's log, and {files} in {transcripts}"
        ),
    )
