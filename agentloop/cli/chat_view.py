"""Shows one answer in the chat: its text as it comes, what tools do above a live line."""

from rich.console import Console

from agentloop.cli.output import StandardOutput
from agentloop.cli.progress import progress_on
from agentloop.cli.tally import Tally
from agentloop.stream import MessageAdded, Retrying, StreamEvent, TextDelta


class ChatView:
    """Text goes to standard output; while it comes, the live line is away, since both are one terminal."""

    def __init__(self, console: Console, output: StandardOutput, tally: Tally) -> None:
        self._console = console
        self._output = output
        self._tally = tally
        self._progress = progress_on(console, tally)
        self._text = ""

    async def show(self, event: StreamEvent) -> None:
        """Something happened; the tally has taken it in already."""
        match event:
            case TextDelta():
                if not self._text:
                    self._progress.stop()
                self._text += event.text
                await self._output.write(event.text)
                return
            case Retrying() if self._text:
                await self._output.write("\n[broken off: what stands above is void]")
            case MessageAdded() if event.message.role == "assistant" and not self._text:
                await self._whole(event.message.text)
        await self._end_text()
        self._progress.show(event)

    async def stop(self) -> None:
        """Leave the terminal as it was, on a new line."""
        await self._end_text()
        self._progress.stop()

    async def _whole(self, text: str) -> None:
        if text.strip():
            self._progress.stop()
            self._text = text
            await self._output.write(text)

    async def _end_text(self) -> None:
        if self._text:
            await self._output.write("\n")
            self._text = ""
            self._progress.go_on()
