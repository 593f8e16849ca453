"""The tools of fuzzed conversations, which note each time that they run."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentloop.errors import RetryTool
from agentloop.messages import Message, SeenMessage
from agentloop.tools import ToolSet, tool
from tests.fuzz_texts import text

ODD_VALUES: tuple[Any, ...] = (
    None, {1, 2}, b"\xff\x00", float("nan"), [1] * 50, object, "\ud800", "\x00", ""
)  # fmt: skip


@dataclass(kw_only=True)
class Effects:
    """How often the call of each number ran, with how many words, and what those returned that ended."""

    did: Counter[int] = field(default_factory=Counter)
    ran: list[tuple[int, int]] = field(default_factory=list)
    returned: dict[int, str] = field(default_factory=dict)


class FuzzedPins(ToolSet):
    """Pins the first words of the newest hidden results, and reminds now and then."""

    def __init__(self, words: int) -> None:
        self._words = words

    def pinned(self, said: Sequence[SeenMessage], fits: Callable[[str], bool]) -> str:
        hidden = [each.message for each in said if not each.in_sight and each.message.role == "tool"]
        return " ".join(" ".join(message.text for message in hidden[-5:]).split()[: self._words])

    def reminder(self, messages: Sequence[Message]) -> str:
        return "go on" if len(messages) % 5 == 0 else ""


async def pause(turns: int) -> str:
    """Let others go on for so many turns."""
    for _ in range(turns):
        await asyncio.sleep(0)
    return f"{turns} turns later"


class FuzzedTools:
    """Tools of many kinds; `is_cut` says, once one has done its work, whether the run ends there."""

    def __init__(self, effects: Effects, is_cut: Callable[[], bool]) -> None:
        self._effects, self._is_cut = effects, is_cut

    def all(self) -> list[Any]:
        """The tools."""

        def look(number: int, words: int = 10, script: str = "words", text: str = "") -> str:
            """Look."""
            return self._did(number, words, script)

        async def slow_look(number: int, words: int = 10, script: str = "words", text: str = "") -> str:
            """Look slowly."""
            await asyncio.sleep(0)
            return await self.did_later(number, words, script)

        side = self.later("side", "Change something.")
        again = tool(idempotent=True)(self.later("again", "Look again."))

        @tool(keep=True)
        async def note(number: int, words: int = 10, script: str = "words", text: str = "") -> str:
            """Note."""
            return await self.did_later(number, min(words, 50), script)

        async def fails(number: int, words: int = 10, script: str = "words", text: str = "") -> str:
            """Fail."""
            self._effects.did[number] += 1
            raise [ValueError(""), RuntimeError("\ud800"), RetryTool("other numbers")][number % 3]

        @tool(timeout_seconds=0.01)
        async def stalls(number: int, words: int = 10, script: str = "words", text: str = "") -> str:
            """Stall."""
            self._effects.did[number] += 1
            await asyncio.Event().wait()
            return ""

        async def odd(number: int, words: int = 10, script: str = "words", text: str = "") -> Any:
            """Say something odd."""
            self._effects.did[number] += 1
            return ODD_VALUES[number % len(ODD_VALUES)]

        return [look, slow_look, side, again, note, fails, stalls, odd]

    def later(self, name: str, words: str) -> Callable[..., Any]:
        """A function of this name that does its work, in which a run may be cut off."""

        async def work(number: int, words: int = 10, script: str = "words", text: str = "") -> str:
            return await self.did_later(number, words, script)

        work.__name__, work.__doc__ = name, words
        return work

    def _did(self, number: int, words: int, script: str) -> str:
        self._effects.did[number] += 1
        self._effects.ran.append((number, words))
        said = text(script, words, f"FACT-{0xC00000 + number:06x}")
        self._effects.returned[number] = said
        return said

    async def did_later(self, number: int, words: int, script: str) -> str:
        """The same, where the run may be cut off once it is done and before it is told."""
        said = self._did(number, words, script)
        if self._is_cut():
            del self._effects.returned[number]
            await asyncio.Event().wait()
        return said
