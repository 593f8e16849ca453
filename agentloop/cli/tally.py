"""What a run came to so far, added up from its events, and the status line made of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agentloop.cli.output import printable
from agentloop.events import Ranges, holds, united
from agentloop.messages import Usage
from agentloop.stream import (
    CompactionEnded,
    ContextStatus,
    MessageAdded,
    ResultsCleared,
    RunEnded,
    RunStarted,
    StreamEvent,
)

_BAR = 10


@dataclass(slots=True, kw_only=True)
class Tally:
    """Sums over the events seen; grows with each.

    `earlier` are compactions of the session before them; `goes_on` says that it was there before them.
    """

    model: str = ""
    session_id: str = ""
    run_id: str = ""
    steps: int = 0
    earlier: int = 0
    goes_on: bool = False
    compactions: int = 0
    clearings: int = 0
    seqs: list[int] = field(default_factory=list)
    hidden: Ranges = ()
    transcripts: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    context: ContextStatus | None = None
    ended: RunEnded | None = None

    def add(self, event: StreamEvent) -> None:
        """Take one more event into account."""
        self.session_id, self.run_id = event.session_id or self.session_id, event.run_id or self.run_id
        match event:
            case RunStarted():
                self.model, self.ended = event.model, None
            case MessageAdded():
                self._add_message(event)
            case ResultsCleared():
                self.clearings += 1
            case CompactionEnded(status="done"):
                self._add_compaction(event)
            case RunEnded():
                self.ended = event

    def _add_compaction(self, event: CompactionEnded) -> None:
        self.compactions += 1
        self.hidden = united(self.hidden, event.archived)
        self.transcripts += event.transcript is not None

    def _add_message(self, event: MessageAdded) -> None:
        self.context = event.context
        self.seqs.append(event.seq)
        if event.message.role == "assistant":
            self.steps += 1
            self.usage += event.usage or Usage()
            if event.cost is not None:
                self.cost = (self.cost or 0.0) + event.cost


def status_line(tally: Tally) -> str:
    """E.g. `gpt-5-mini · 52.1k/128k 41% (measured) · auto at 102k · 2 compactions · $0.42 · cache 91%`."""
    parts = [part(tally) for part in _PARTS]
    return printable(" · ".join(part for part in parts if part))


def compacted_and_kept(tally: Tally, transcripts: Path) -> tuple[str, ...]:
    """What the run's compactions hid of its messages, and where all of them can still be read."""
    if not tally.compactions:
        return ()
    hidden = sum(holds(tally.hidden, seq) for seq in tally.seqs)
    times = "once" if tally.compactions == 1 else f"{tally.compactions} times"
    files = f"{tally.transcripts} transcript{'' if tally.transcripts == 1 else 's'}"
    return (
        f"compacted {times}: a summary stands for {hidden} of the {len(tally.seqs)} messages of this run",
        printable(f"kept: all {len(tally.seqs)} in the session's log, and {files} in {transcripts}"),
    )


def bar(context: ContextStatus) -> str:
    """The filling of the window, with a mark where automatic compaction fires."""
    cells = ["━" if cell < _cell(context.tokens, context) else "─" for cell in range(_BAR)]
    if context.threshold is not None:
        cells[min(_BAR - 1, _cell(context.threshold, context))] = "┃"
    return "".join(cells)


def short(tokens: int) -> str:
    """Tokens as people read them: 812, 52.1k, 128k, 1.05m."""
    if tokens < 1_000:
        return str(tokens)
    unit, size = ("k", tokens / 1_000) if tokens < 999_500 else ("m", tokens / 1_000_000)
    digits = 1 if size < 100 else 0
    return f"{size:.{digits}f}".removesuffix(".0") + unit


def _cell(tokens: int, context: ContextStatus) -> int:
    return round(_BAR * min(1.0, tokens / context.window)) if context.window else 0


def _filling(tally: Tally) -> str:
    if tally.context is None:
        return ""
    tokens, window = tally.context.tokens, tally.context.window
    percent = round(100 * tokens / window) if window else 100
    kind = "measured" if tally.context.measured else "estimated"
    return f"{short(tokens)}/{short(window)} {percent}% ({kind})"


def _line(tally: Tally) -> str:
    if tally.context is None:
        return ""
    threshold = tally.context.threshold
    return "auto off" if threshold is None else f"auto at {short(threshold)}"


def _compactions(tally: Tally) -> str:
    count = tally.earlier + tally.compactions
    return f"{count} compaction{'' if count == 1 else 's'}"


def _cost(tally: Tally) -> str:
    if tally.cost is None:
        return ""
    return f"${tally.cost:.2f}" if tally.cost >= 0.1 or tally.cost == 0 else f"${tally.cost:.4f}"


def _cache(tally: Tally) -> str:
    if not tally.usage.cached_tokens or not tally.usage.input_tokens:
        return ""
    return f"cache {round(100 * tally.usage.cached_tokens / tally.usage.input_tokens)}%"


_PARTS: tuple[Callable[[Tally], str], ...] = (
    lambda tally: " ".join(tally.model.split()),
    _filling,
    _line,
    _compactions,
    _cost,
    _cache,
)
