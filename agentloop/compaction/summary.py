"""A model writes the summary: asked, checked (`faults.py`), and asked once more where its text cannot stand.

`Summariser` writes one summary. Below it stand the room of its requests and their words.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Protocol, TypeAlias

from agentloop._plumbing.aio import in_thread
from agentloop._plumbing.truncate import ends
from agentloop.compaction.faults import (
    fault_in,
    is_json,
    room_left,
    size_fault,
    speaks_of,
    summary_fault,
    without_thinking,
)
from agentloop.compaction.plan import SHARE_OF_COVERED
from agentloop.compaction.reading import (
    BETWEEN,
    BETWEEN_TOKENS,
    RESULT_CHARS,
    WHOLE,
    Reading,
    reading_of,
)
from agentloop.compaction.replacement import Replacement
from agentloop.context import (
    Budget,
    Context,
    Entry,
    Labelled,
    RequestPrefix,
    TokenCounter,
    count_request,
    earlier_record,
    fitted,
    labelled,
    stands_below,
    to_wire,
)
from agentloop.errors import BadAnswerError, ContextTooLongError, ModelRefusedError, SummaryRefusedError
from agentloop.events import ModelCalled
from agentloop.messages import Message
from agentloop.models import Answer, ChatModel, ModelRequest
from agentloop.prompts import (
    SUMMARY_BESIDE,
    SUMMARY_FOCUS,
    SUMMARY_INSTRUCTION,
    SUMMARY_ON_PREFIX,
    SUMMARY_PART,
    SUMMARY_PARTS,
    SUMMARY_RECORD,
    SUMMARY_REPAIR,
    SUMMARY_SYSTEM,
)
from agentloop.strategies import Summary, left_unread, trimmed

TakeNote: TypeAlias = Callable[[ModelCalled], None]
"""Takes note of each request that was answered."""


class AsksModel(Protocol):
    """Asks a model, as `call_model` does, whoever is told of it."""

    async def __call__(
        self, model: ChatModel, request: ModelRequest, /, *, counted: int
    ) -> tuple[Answer, ModelCalled]: ...


RequestFor: TypeAlias = Callable[[str], ModelRequest]
"""The request that asks a question."""

RecordWithin: TypeAlias = Callable[[int, str], str]
"""The record computed from what is covered, in at most so many tokens, to stand beside this text."""

SummaryCheck: TypeAlias = Callable[[str, str | None], str | None]
"""Why a text with this finish reason cannot be used, in words; None where it can."""

MOST_TRIES = 3
"""So often a conversation is read at the most, in smaller chunks after each overflow."""

RECORD_OVERHEAD = 8
"""Tokens around a record among others."""

FOCUS_CHARS = 1_000
"""So much of a focus is passed on, head and tail together."""

LINE_OVERHEAD = 8
"""Tokens around the line above the record, and what two counts may come to more as one."""

LEAST_BESIDE = 20
"""Below so many tokens no record stands beside the prose."""

TOLD_SHARE = 1 / 5
"""The model is told of this share of the longest summary of the record; a prose in doubt takes no more."""

WORDS_PER_TOKEN = 0.6
"""Below the 0.75 that OpenAI's documentation gives for English, so that the cap holds elsewhere too."""

PROMPT_TOKENS = 500
"""What our own texts take in a summary's request, rounded up."""

LEAST_OUTPUT = 100


class NotSmallerError(SummaryRefusedError):
    """The text takes no less than what it is to stand for: there is too little to compact."""


@dataclass(slots=True, kw_only=True)
class Summariser:
    """Writes one summary: of what a compaction covers in this context, made from what it `reads`.

    `budget` is the summariser's own: its window, its counter, and as its output the longest prose; an
    overflow teaches more of it. `limit_seconds` bounds all requests together, and `note` takes note of each
    that was answered. `spec` says how it is to be written and read. `beside` computes the record that stands
    below the prose, in `beside_tokens` and what the prose leaves; the model is told what stands there.
    With it the whole takes at most `whole_tokens`. `prefix` is what the agent's requests begin with, where
    the summary is to share it.
    """

    model: ChatModel
    budget: Budget
    limit_seconds: float
    ask: AsksModel
    note: TakeNote
    covered: Sequence[Entry]
    reads: Sequence[Entry]
    context: Context
    focus: str | None
    spec: Summary
    beside: RecordWithin
    beside_tokens: int
    whole_tokens: int
    prefix: RequestPrefix | None
    _below: str = field(default="", init=False)
    """The record as the model is told of it."""
    _parts: list[str] = field(default_factory=list, init=False)
    """The records of the chunks read."""
    _sent: int = field(default=0, init=False)
    """The last request's size in tokens, the longest answer to it included."""

    def __post_init__(self) -> None:
        # One line, so that a wish which a model was talked into adds no line to our instruction.
        self.focus = ends(" ".join(self.focus.split()), max_chars=FOCUS_CHARS) if self.focus else None

    async def write(self) -> Replacement:
        """The summary that stands for the covered entries.

        What fits into one request, earlier records too, is read by one. Else each chunk is read by one of its
        own, and one more makes one record of theirs, with the earlier ones: n chunks, n + 1 requests. A text
        that cannot be used is asked for once more.

        Raises:
            SummaryRefusedError: two texts in a row were blank, cut off, too long, a call, an error, or old.
            ModelError: the model gave no answer at all, or none in time.
            StoreError: a trim could not keep what it cut.
        """
        try:
            async with asyncio.timeout(self.limit_seconds):
                self._below = await self._record(self._told_tokens)
                prose, unread = await self._draft()
        except TimeoutError as error:
            raise BadAnswerError(f"the summary took longer than {self.limit_seconds:g} s") from error
        text = await self._with_record(prose)
        return Replacement(text=text, made="summary", unread=unread, shadow=self.spec.shadow)

    async def _draft(self) -> tuple[str, tuple[int, ...]]:
        """The prose, and what was not read for it."""
        if self.prefix is not None and await in_thread(self._fits_behind, self.prefix):
            with suppress(ContextTooLongError, ModelRefusedError):  # it is asked for by itself then
                return await self._prose_behind(self.prefix), self._shortened()
        reading = await in_thread(self._read)
        for _ in range(MOST_TRIES):
            try:
                return await self._prose(reading), reading.unread
            except ContextTooLongError as error:
                self.budget = smaller(self.budget, error.window, refused=self._sent)
                # The records of all chunks are there: only the last request was too long.
                reading = reading if self._parts else await in_thread(self._read)
        raise SummaryRefusedError("the summariser's own request is too long for its window")

    def _fits_behind(self, prefix: RequestPrefix) -> bool:
        """Whether the window holds the agent's messages, the question and the longest answer."""
        counted = count_request(self._behind(prefix, self._question_behind()), self._counter)
        return ceil(self.budget.ratio(self.context) * counted) + self.budget.reserve <= self.budget.window

    async def _prose_behind(self, prefix: RequestPrefix) -> str:
        text = await self._accepted(
            self._question_behind(), self._fault, lambda question: self._behind(prefix, question)
        )
        return fitted(text, max_tokens=self._longest, counter=self._counter)

    def _question_behind(self) -> str:
        newest = max(entry.at for entry in self.covered)
        kept = sum(entry.at > newest for entry in self.context.visible)
        told = BETWEEN.join(filter(None, (self.spec.system, SUMMARY_ON_PREFIX.format(kept=kept))))
        return self._question((), self._longest, told, below=self._below)

    def _behind(self, prefix: RequestPrefix, question: str) -> ModelRequest:
        """The agent's request for what is in sight, and behind it the question."""
        request = prefix.request(self.context, Message.user(question), recalls=self.budget.recall > 0)
        most = self.budget.reserve
        asks_for_text = replace(request, needs_tools=False, answer_schema=None, answer_words=None)
        return replace(asks_for_text, purpose="summary", max_output_tokens=most)

    def _shortened(self) -> tuple[int, ...]:
        """The positions of the results covered of which the agent sees less than their heads and tails."""
        results = (entry for entry in self.covered if entry.original.role == "tool")
        return tuple(entry.seq for entry in results if entry.cleared)

    def _read(self) -> Reading:
        before, room, spec = self.reads, self._room(), self.spec
        after = trimmed(before, spec.trims, room, self._counter)
        reading = reading_of(
            after,
            room=room,
            chunk_tokens=spec.chunk_tokens,
            message_chars=spec.message_chars,
            result_chars=spec.message_chars or (WHOLE if spec.trims else RESULT_CHARS[0]),
            counter=self._counter,
        )
        unread = left_unread(before, after) | set(reading.unread)
        return replace(reading, unread=self._unread(unread))

    def _unread(self, unread: set[int]) -> tuple[int, ...]:
        """Of these and of what was not to be read, the positions that nothing but the summary stands for."""
        covered = {entry.seq for entry in self.covered if entry.kind == "said"}
        read = {entry.seq for entry in self.reads if entry.kind == "said"}
        in_sight = {entry.seq for entry in self.context.visible} - covered
        return tuple(sorted((unread & read | covered - read) - in_sight))

    async def _prose(self, reading: Reading) -> str:
        if not reading.chunks and not reading.records:
            raise SummaryRefusedError("there is nothing to be read for a summary")
        if material := await in_thread(self._whole, reading):
            told = ""
        else:
            self._parts = self._parts or [
                await self._part(reading, number) for number in range(len(reading.chunks))
            ]
            material, parts = self._records(reading), len(self._parts)
            told = SUMMARY_PARTS.format(parts=parts) if parts > 1 else ""
        question = await in_thread(self._question, material, self._longest, told, below=self._below)
        text = await self._accepted(question, self._fault)
        return fitted(text, max_tokens=self._longest, counter=self._counter)

    def _whole(self, reading: Reading) -> Sequence[Labelled] | None:
        """All that is to be read, where one request holds it."""
        if len(reading.chunks) > 1:
            return None
        whole = [earlier_record(reading.records)] if reading.records else []
        whole += [each for chunk in reading.chunks for each in chunk]
        tokens = sum(self._counter(str(each)) + BETWEEN_TOKENS for each in whole)
        return whole if tokens <= self._room() else None

    async def _part(self, reading: Reading, number: int) -> str:
        parts = len(reading.chunks)
        told = SUMMARY_PART.format(part=number + 1, parts=parts)
        longest = min(self._longest, self._room_of_part(reading, parts))
        question = await in_thread(self._question, reading.chunks[number], longest, told)
        return await self._accepted(question, fault_in)

    def _records(self, reading: Reading) -> Sequence[Labelled]:
        """The earlier records and those of the parts, oldest first, capped so that they fit together."""
        most = self._room_of_part(reading, len(self._parts))
        parts = (fitted(part, max_tokens=most, counter=self._counter) for part in self._parts)
        return [earlier_record(text) for text in (self._earlier(reading), *parts) if text]

    def _earlier(self, reading: Reading) -> str:
        return fitted(reading.records, max_tokens=self._room() // 2, counter=self._counter)

    def _room_of_part(self, reading: Reading, parts: int) -> int:
        left = self._room() - self._counter(self._earlier(reading))
        return max(1, left // max(1, parts) - RECORD_OVERHEAD)

    def _room(self) -> int:
        """What one request may hold of the conversation, in tokens of our own count."""
        told = (self.spec.system, self.spec.instruction, self.focus)
        taken = self._told_tokens + sum(self._counter(text) for text in told if text)
        return self.budget.room(self.context) - taken

    def _question(
        self, material: Sequence[Labelled], longest: int, told: str = "", *, below: str = ""
    ) -> str:
        """The question, which tells what stands `below` the answer."""
        if below:
            material = [stands_below(below), *material]
            told = BETWEEN.join(filter(None, (told, SUMMARY_BESIDE)))
        return question_of(material, self.spec, focus=self.focus, max_tokens=longest, told=told)

    def _fault(self, text: str, finish: str | None) -> str | None:
        asked = f"{self.spec.system} {self.spec.instruction} {self.focus}".lower()
        if "json" not in asked and is_json(text):
            return "it was JSON, which nobody asked for"
        return summary_fault(text, finish, self.covered, self.context, self._counter)

    async def _accepted(
        self, question: str, check: SummaryCheck, request_for: RequestFor | None = None
    ) -> str:
        """The answer; where it cannot be used, that to the same question with its fault."""
        request_for = request_for or self._by_itself
        text, finish = await self._ask(request_for(question))
        if fault := await in_thread(check, text, finish):
            repair = SUMMARY_REPAIR.format(fault=fault)
            text, finish = await self._ask(request_for(f"{question}{BETWEEN}{repair}"))
            if fault := await in_thread(check, text, finish):
                if fault == size_fault(text, self.covered, self._counter):
                    raise NotSmallerError(f"a summary is not worth it: {fault}")
                raise SummaryRefusedError(f"the summary was refused: {fault}")
        return text

    def _by_itself(self, question: str) -> ModelRequest:
        system = Message(role="system", content=self.spec.system or SUMMARY_SYSTEM)
        return ModelRequest(
            messages=(to_wire(system), to_wire(Message.user(question))),
            purpose="summary",
            max_output_tokens=self.budget.reserve,
        )

    async def _ask(self, request: ModelRequest) -> tuple[str, str | None]:
        counted = await in_thread(count_request, request, self._counter)
        self._sent = counted + self.budget.reserve
        if ceil(self.budget.ratio(self.context) * counted) + self.budget.reserve > self.budget.window:
            raise SummaryRefusedError("the summariser's own request is too long for its window")
        answer, called = await self.ask(self.model, request, counted=counted)
        self.note(called)
        if answer.message.tool_calls:
            return "", "tool_calls"
        return without_thinking(answer.message.text), answer.finish

    @property
    def _longest(self) -> int:
        """The longest prose, in tokens."""
        return self.budget.reserve

    @property
    def _told_tokens(self) -> int:
        """What the model is told of the record takes at most so many tokens."""
        return min(self.beside_tokens, int(TOLD_SHARE * (self._longest + self.beside_tokens)))

    @property
    def _counter(self) -> TokenCounter:
        return self.budget.counter

    async def _record(self, max_tokens: int, prose: str = "") -> str:
        """The record of at most so many tokens beside this prose, nothing where that is too little."""
        return await in_thread(self.beside, max_tokens, prose) if max_tokens >= LEAST_BESIDE else ""

    def _is_told(self, prose: str) -> bool:
        """Whether the prose surely speaks of what is covered."""
        asked = f"{self.spec.system or SUMMARY_SYSTEM}\n{self.spec.instruction or SUMMARY_INSTRUCTION}"
        return speaks_of(prose, (*self.covered, *self.reads), beside=asked)

    async def _with_record(self, prose: str) -> str:
        """The prose without lines that stand in the record below it, which takes what the prose leaves.

        Names and numbers that the prose says are not said again. The whole keeps to the longest summary, and
        to most of what it newly stands for. Of a prose in doubt only a part stays.
        """
        if self.beside_tokens >= LEAST_BESIDE and not await in_thread(self._is_told, prose):
            prose = fitted(prose, max_tokens=self._told_tokens, counter=self._counter)
        line = f"{BETWEEN}{SUMMARY_RECORD}\n"
        new = sum(entry.tokens for entry in self.covered if entry.kind != "summary")
        to_gain = int((1 - SHARE_OF_COVERED) * new)
        saved = room_left(prose, self.covered, self._counter) - to_gain
        most = min(saved, self.whole_tokens - self._counter(prose)) - self._counter(line) - LINE_OVERHEAD
        below = await self._record(most, prose)
        record = [SUMMARY_RECORD, *below.split("\n")]
        lines = (line for line in prose.split("\n") if not _stands_in(line, record))
        prose = "\n".join(lines).strip() or prose
        return f"{prose}{line}{below}" if below else prose


def _stands_in(line: str, record: Sequence[str]) -> bool:
    """Whether a line says something, and is one of the record's or the beginning of one."""
    return bool(line.strip()) and any(one.startswith(line) for one in record)


def summary_budget(model: ChatModel, agent: Budget, *, longest: int, learnt: int | None = None) -> Budget:
    """The room of a summary's requests: the summariser's window, the longest summary as its output.

    The window is at most what was `learnt` of it.
    """
    window = min(model.window or agent.window, agent.window) if model.name == agent.model else model.window
    window = min(filter(None, (window or agent.window, learnt)))
    return replace(
        agent,
        window=window,
        max_output_tokens=min(longest, longest_in(window)),
        lowered_reserve=None,
        fixed=PROMPT_TOKENS,
        model=model.name,
    )


def longest_in(window: int) -> int:
    """The longest summary in such a window: one request reads it, beside what is new, and writes it again."""
    return max(LEAST_OUTPUT, (window - PROMPT_TOKENS) // 3)


def smaller(budget: Budget, window: int | None, *, refused: int) -> Budget:
    """The budget after an overflow, in which the next request is a smaller one.

    `refused` is the request that was too long, answer included, by our own count. The window is the one that
    the server named where that explains the refusal, else half of what was refused.
    """
    known = min(budget.window, refused)
    learnt = window if window is not None and window < known else known // 2
    longest = min(budget.reserve, longest_in(learnt))
    return replace(budget, window=learnt, max_output_tokens=longest)


def question_of(
    material: Sequence[Labelled], spec: Summary, *, focus: str | None, max_tokens: int, told: str = ""
) -> str:
    """The question; `told` says what of the conversation the material is, or where it stands without any.

    What is ours around the material is known by a mark that is in none of it. Where an instruction of the
    user's own names `{max_words}`, that is filled in; other braces are text.
    """
    words = str(max(1, int(max_tokens * WORDS_PER_TOKEN)))
    instruction = (spec.instruction or SUMMARY_INSTRUCTION).replace("{max_words}", words)
    wish = SUMMARY_FOCUS.format(focus=focus) if focus else ""
    wishes = BETWEEN.join(filter(None, (told, instruction, wish)))
    return f"{labelled(material, beside=wishes)}{BETWEEN}{wishes}" if material else wishes
