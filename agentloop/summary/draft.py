"""One summary being written: the conversation is read in pieces, and one text is made of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from agentloop._plumbing.aio import in_thread
from agentloop.context import Budget, Context, Entry, TokenCounter, count_request, fitted, neutral, to_wire
from agentloop.errors import ContextTooLongError, SummaryRefusedError
from agentloop.events import ModelCalled
from agentloop.messages import Message
from agentloop.model_call import OnPart, call
from agentloop.models import ChatModel, ModelRequest
from agentloop.pieces import BETWEEN, RESULT_CHARS, WHOLE, Bounds, Reading, reading_of, record_block
from agentloop.prompts import SUMMARY_PART, SUMMARY_PARTS, SUMMARY_REPAIR, SUMMARY_SYSTEM
from agentloop.refusal import fault_in, fault_of, without_thinking
from agentloop.strategies import Summary, left_unread, trimmed
from agentloop.summary.questions import question_of
from agentloop.summary.room import smaller

MOST_TRIES = 3
"""So often a conversation is read at the most, in smaller pieces after each overflow."""

RECORD_OVERHEAD = 8
"""Tokens around a record among others."""

TakeNote: TypeAlias = Callable[[ModelCalled], None]
"""Takes note of each request that was answered."""

Check: TypeAlias = Callable[[str, str | None], str | None]
"""Why a text with this finish reason cannot be used, in words; None where it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a summary is asked for: the entries it stands for, those it is made from, and how.

    `longest` caps its prose, in tokens, where that is less than the model may write.
    """

    covered: Sequence[Entry]
    reads: Sequence[Entry]
    context: Context
    spec: Summary
    focus: str | None
    longest: int
    note: TakeNote


class Draft:
    """One summary being written: the budget as far as it is learnt, and the records of the pieces read.

    `sent` is the last request's size in tokens, the longest answer to it included.
    """

    def __init__(
        self, *, model: ChatModel, counter: TokenCounter, budget: Budget, on_part: OnPart, asked: Asked
    ) -> None:
        self.model, self.counter, self.budget, self.on_part = model, counter, budget, on_part
        self.asked, self.spec = asked, asked.spec
        self.parts: list[str] = []
        self.sent = 0

    async def done(self) -> tuple[str, tuple[int, ...]]:
        """The prose, and what was not read for it."""
        reading = await self._read()
        for _ in range(MOST_TRIES):
            try:
                return await self._prose(reading), reading.unread
            except ContextTooLongError as error:
                self.budget = smaller(self.budget, error.window, refused=self.sent)
                # The records of all pieces are there: only the last request was too long.
                reading = reading if self.parts else await self._read()
        raise SummaryRefusedError("the summariser's own request is too long for its window")

    async def _read(self) -> Reading:
        before, room = self.asked.reads, self._room()
        after = before
        if self.spec.trims:
            after = await in_thread(trimmed, before, self.spec.trims, room, self.counter)
        first = self.spec.message_chars or (WHOLE if self.spec.trims else RESULT_CHARS[0])
        bounds = Bounds(
            room=room,
            piece_tokens=self.spec.piece_tokens,
            message_chars=self.spec.message_chars,
            result_chars=(first, *(chars for chars in RESULT_CHARS if chars < first)),
        )
        reading = reading_of(after, bounds=bounds, counter=self.counter)
        unread = left_unread(before, after) | set(reading.unread)
        return replace(reading, unread=self._unread(unread))

    def _unread(self, unread: set[int]) -> tuple[int, ...]:
        """Of these and of what was not to be read, the positions that nothing but the summary stands for."""
        asked = self.asked
        covered = {entry.seq for entry in asked.covered if entry.kind == "said"}
        read = {entry.seq for entry in asked.reads if entry.kind == "said"}
        in_sight = {entry.seq for entry in asked.context.visible} - covered
        return tuple(sorted((unread & read | covered - read) - in_sight))

    async def _prose(self, reading: Reading) -> str:
        if not reading.pieces and not reading.records:
            raise SummaryRefusedError("there is nothing to be read for a summary")
        if material := self._whole(reading):
            question = self._question(material, self._longest)
        else:
            self.parts = self.parts or [
                await self._part(reading, number) for number in range(len(reading.pieces))
            ]
            question = self._question(self._records(reading), self._longest, self._told_parts())
        text = await self._accepted(question, self._fault)
        return neutral(fitted(text, max_tokens=self._longest, counter=self.counter))

    def _whole(self, reading: Reading) -> str | None:
        """All that is to be read, where one request holds it."""
        if len(reading.pieces) > 1:
            return None
        whole = BETWEEN.join(filter(None, (reading.records, *reading.pieces)))
        return whole if self.counter(whole) <= self._room() else None

    async def _part(self, reading: Reading, number: int) -> str:
        parts = len(reading.pieces)
        told = SUMMARY_PART.format(part=number + 1, parts=parts)
        longest = min(self._longest, self._room_of_part(reading, parts))
        return await self._accepted(self._question(reading.pieces[number], longest, told), fault_in)

    def _records(self, reading: Reading) -> str:
        """The earlier records and those of the parts, oldest first, capped so that they fit together."""
        most = self._room_of_part(reading, len(self.parts))
        parts = (fitted(part, max_tokens=most, counter=self.counter) for part in self.parts)
        return BETWEEN.join(filter(None, (self._earlier(reading), *map(record_block, parts))))

    def _earlier(self, reading: Reading) -> str:
        return fitted(reading.records, max_tokens=self._room() // 2, counter=self.counter)

    def _room_of_part(self, reading: Reading, parts: int) -> int:
        left = self._room() - self.counter(self._earlier(reading))
        return max(1, left // max(1, parts) - RECORD_OVERHEAD)

    def _told_parts(self) -> str:
        return SUMMARY_PARTS.format(parts=len(self.parts)) if len(self.parts) > 1 else ""

    @property
    def _longest(self) -> int:
        """The longest prose, in tokens."""
        return min(self.budget.reserve, self.asked.longest)

    def _room(self) -> int:
        """What one request may hold of the conversation, in tokens of our own count."""
        told = (self.spec.system, self.spec.instruction, self.asked.focus)
        return self.budget.room(self.asked.context) - sum(self.counter(text) for text in told if text)

    def _question(self, material: str, longest: int, told: str = "") -> str:
        return question_of(material, self.spec, focus=self.asked.focus, max_tokens=longest, told=told)

    def _fault(self, text: str, finish: str | None) -> str | None:
        return fault_of(text, finish, self.asked.covered, self.asked.context, self.counter)

    async def _accepted(self, question: str, check: Check) -> str:
        """The answer; where it cannot be used, that to the same question with its fault."""
        text, finish = await self._ask(question)
        if fault := check(text, finish):
            repair = SUMMARY_REPAIR.format(fault=fault)
            text, finish = await self._ask(f"{question}{BETWEEN}{repair}")
            if fault := check(text, finish):
                raise SummaryRefusedError(f"the summary was refused: {fault}")
        return text

    async def _ask(self, question: str) -> tuple[str, str | None]:
        system = Message(role="system", content=self.spec.system or SUMMARY_SYSTEM)
        request = ModelRequest(
            messages=(to_wire(system), to_wire(Message.user(question))),
            purpose="summary",
            max_output_tokens=self.budget.reserve,
        )
        counted = count_request(request, self.counter)
        self.sent = counted + self.budget.reserve
        answer, called = await call(self.model, request, counted=counted, on_part=self.on_part)
        self.asked.note(called)
        if answer.message.tool_calls:
            return "", "tool_calls"
        return without_thinking(answer.message.text), answer.finish
