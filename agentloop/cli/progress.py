"""Showing a run on standard error while it goes on: plain lines, or lines above a live one."""

import time
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from agentloop.cli.happenings import Happenings, seconds
from agentloop.cli.output import printable
from agentloop.cli.tally import Tally, bar, status_line
from agentloop.stream import (
    CompactionEnded,
    CompactionStarted,
    MessageAdded,
    Retrying,
    StreamEvent,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)

_REFRESHES_PER_SECOND = 8
_TAIL_CHARS = 60


class Progress(Protocol):
    """Shows one run."""

    def show(self, event: StreamEvent, /) -> None:
        """Something happened; the tally has taken it in already."""
        ...

    def stop(self) -> None:
        """Leave the terminal as it was; harmless when called again."""
        ...

    def go_on(self) -> None:
        """After `stop`: take the terminal again."""
        ...


class PlainProgress:
    """A line for what is worth one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._happenings = Happenings()

    def show(self, event: StreamEvent) -> None:
        """Print its line, if it has one."""
        line = self._happenings.line(event)
        if line is not None:
            self._console.print(line)

    def stop(self) -> None:
        """Nothing to take back."""

    def go_on(self) -> None:
        """Nothing to take."""


class LiveProgress:
    """The same lines, and below them one that lives: what is under way, and how full the window is."""

    def __init__(self, console: Console, tally: Tally) -> None:
        self._console = console
        self._plain = PlainProgress(console)
        self._tally = tally
        self._doing = "starting"
        self._since = time.monotonic()
        self._text = ""
        self._spinner = Spinner("dots")
        self._live = Live(
            console=console,
            get_renderable=self._line,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def show(self, event: StreamEvent) -> None:
        """Bring the live line up to date, and print the event's own above it, if it has one."""
        match event:
            case TextDelta():
                self._text += event.text
                self._doing = " ".join(printable(self._text[-_TAIL_CHARS:]).split())
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
        if self._live.is_started:
            self._live.refresh()
        self._plain.show(event)

    def stop(self) -> None:
        """Take the live line away."""
        self._live.stop()

    def go_on(self) -> None:
        """Show the live line again."""
        self._live.start()

    def _do(self, what: str) -> None:
        self._doing, self._since, self._text = printable(what), time.monotonic(), ""

    def _line(self) -> Spinner:
        took = seconds(time.monotonic() - self._since)
        filling = f"{bar(self._tally.context)} " if self._tally.context else ""
        text = Text(f"{filling}{status_line(self._tally)} · {self._doing} {took}", style="cyan")
        text.truncate(max(10, self._console.width - 3), overflow="ellipsis")
        self._spinner.update(text=text)
        return self._spinner


def progress_on(console: Console, tally: Tally) -> Progress:
    """Live on a terminal, plain elsewhere."""
    alive = console.is_terminal and not console.is_dumb_terminal
    return LiveProgress(console, tally) if alive else PlainProgress(console)


def final_line(tally: Tally) -> Text:
    """The status line as it stands when a run is over, its bar in front."""
    filling = f"{bar(tally.context)} " if tally.context else ""
    return Text(filling + status_line(tally), style="cyan")
