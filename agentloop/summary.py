"""The summary: what is asked of the model, in pieces that fit it, and what is made of its text."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from agentloop.budget import Budget
from agentloop.calling import OnPart, call
from agentloop.context import Context
from agentloop.entries import Entry
from agentloop.errors import BadAnswerError, ContextTooLongError, SummaryRefusedError
from agentloop.events import ModelCalled
from agentloop.fitting import fitted
from agentloop.labelled import neutral
from agentloop.messages import Message
from agentloop.models import ChatModel, ModelRequest
from agentloop.pieces import Reading, reading_of
from agentloop.prompts import (
    SUMMARY_FOCUS,
    SUMMARY_INSTRUCTION,
    SUMMARY_REPAIR,
    SUMMARY_SYSTEM,
)
from agentloop.refusal import fault_of, without_thinking
from agentloop.tokens import TokenCounter
from agentloop.tool_results import shortened
from agentloop.wire_form import to_wire

PROMPT_TOKENS = 400
"""What our own texts take in a summary's request, rounded up."""

FOCUS_CHARS = 1_000
"""So much of a focus is passed on, head and tail together."""

FOCUS_TOKENS = 1_000

WORDS_PER_TOKEN = 0.6
"""Below the 0.75 that OpenAI's documentation gives for English, so that the cap holds elsewhere too."""

Note: TypeAlias = Callable[[ModelCalled], None]
"""Takes note of each request that was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What stands instead, and the positions that were too much to be read for it."""

    text: str
    unread: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a summary is asked for: the entries it stands for, with a focus, and the fault of a first try."""

    covered: Sequence[Entry]
    context: Context
    focus: str | None
    note: Note
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summariser:
    """Writes the summary of what a compaction covers.

    `budget` is the summariser's own (its window, and as its output the longest summary); `limit_seconds`
    bounds one summary, all of its requests together.
    """

    model: ChatModel
    counter: TokenCounter
    budget: Budget
    limit_seconds: float
    on_part: OnPart

    async def write(
        self, covered: Sequence[Entry], context: Context, focus: str | None, note: Note
    ) -> Written:
        """The summary of these entries, as the log holds them.

        Raises:
            SummaryRefusedError: two texts in a row were blank, cut off, too long, a call, an error, or old.
            ModelError: the model gave no answer at all, or none in time.
        """
        asked = Asked(covered=covered, context=context, focus=focus, note=note)
        try:
            async with asyncio.timeout(self.limit_seconds):
                return await self._tried(asked)
        except TimeoutError as error:
            raise BadAnswerError(f"the summary took longer than {self.limit_seconds:g} s") from error

    async def _tried(self, asked: Asked) -> Written:
        for _ in range(2):
            text, finish, reading = await self._read_in_pieces(asked)
            fault = fault_of(text, finish, asked.covered, asked.context, self.counter)
            if fault is None:
                return Written(text=neutral(self._capped(text)), unread=reading.unread)
            asked = replace(asked, fault=fault)
        raise SummaryRefusedError(f"the summary was refused: {asked.fault}")

    def _capped(self, text: str) -> str:
        return fitted(text, max_tokens=self.budget.reserve, counter=self.counter)

    async def _read_in_pieces(self, asked: Asked) -> tuple[str, str | None, Reading]:
        room = self.budget.room(asked.context)
        for _ in range(3):
            left = room - self.budget.reserve - (FOCUS_TOKENS if asked.focus else 0)
            reading = reading_of(asked.covered, room=left, counter=self.counter)
            try:
                text, finish = await self._fold(reading, asked)
            except ContextTooLongError as error:
                smaller = (error.window or self.budget.window) - self.budget.reserve - self.budget.fixed
                room = min(room // 2, max(smaller, room // 4))
            else:
                return text, finish, reading
        raise SummaryRefusedError("the summariser's own request is too long for its window")

    async def _fold(self, reading: Reading, asked: Asked) -> tuple[str, str | None]:
        record, finish = "", None
        for piece in reading.pieces:
            record, finish = await self._ask(self._question(piece, self._capped(record), asked), asked.note)
            if finish in ("length", "tool_calls") or not record.strip():
                break
        return record, finish

    def _question(self, piece: str, record: str, asked: Asked) -> str:
        before = f"Earlier record: {neutral(record)}\n\n" if record else ""
        lines = [
            f"<conversation>\n{before}{piece}\n</conversation>",
            SUMMARY_INSTRUCTION.format(max_words=int(self.budget.reserve * WORDS_PER_TOKEN)),
        ]
        if asked.focus:
            focus = neutral(shortened(asked.focus, max_chars=FOCUS_CHARS))
            lines.append(SUMMARY_FOCUS.format(focus=focus))
        if asked.fault:
            lines.append(SUMMARY_REPAIR.format(fault=asked.fault))
        return "\n\n".join(lines)

    async def _ask(self, question: str, note: Note) -> tuple[str, str | None]:
        said = (Message(role="system", content=SUMMARY_SYSTEM), Message.user(question))
        request = ModelRequest(
            messages=tuple(to_wire(message) for message in said),
            purpose="summary",
            max_output_tokens=self.budget.reserve,
        )
        counted = PROMPT_TOKENS + self.counter(question)
        answer, called = await call(self.model, request, counted=counted, on_part=self.on_part)
        note(called)
        if answer.message.tool_calls:
            return "", "tool_calls"
        return without_thinking(answer.message.text), answer.finish


def summary_budget(model: ChatModel, agent: Budget, *, longest: int) -> Budget:
    """The room of a summary's requests: the summariser's window, the longest summary as its output."""
    window = min(model.window or agent.window, agent.window) if model.name == agent.model else model.window
    window = window or agent.window
    # A record is read and written again in one request, beside a piece of what is new.
    third = max(100, (window - PROMPT_TOKENS) // 3)
    return replace(
        agent,
        window=window,
        max_output_tokens=min(longest, third),
        fixed=PROMPT_TOKENS,
        model=model.name,
    )
