"""The summary: what is asked of the model, in pieces that fit it, and when its text is refused."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from agentloop.budget import Budget
from agentloop.calling import OnPart, call
from agentloop.context import Context
from agentloop.entries import Entry
from agentloop.errors import AgentLoopError, BadAnswerError, ContextTooLongError
from agentloop.events import ModelCalled
from agentloop.labelled import labelled, neutral, summary_in
from agentloop.models import ChatModel, ModelRequest
from agentloop.prompts import (
    COMPRESSED,
    SUMMARY_FOCUS,
    SUMMARY_INSTRUCTION,
    SUMMARY_MESSAGE,
    SUMMARY_REPAIR,
    SUMMARY_SYSTEM,
)
from agentloop.tokens import TokenCounter
from agentloop.tool_results import shortened

MAX_PIECES = 6
"""The most requests of one summary: what is longer is cut to head and tail, block by block."""

RESULT_CHARS = 2_000
"""What the summariser sees of one result or one call's arguments, head and tail together."""

PROMPT_TOKENS = 400
"""What our own texts take in a summary's request, rounded up."""

WORDS_PER_TOKEN = 0.6
"""Below the 0.75 that OpenAI's documentation gives for English, so that the cap holds elsewhere too."""


class SummaryRefusedError(AgentLoopError):
    """The model's text cannot stand for the conversation; the text says why."""


Note: TypeAlias = Callable[[ModelCalled], None]
"""Takes note of each request that was answered."""


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

    async def write(self, covered: Sequence[Entry], context: Context, focus: str | None, note: Note) -> str:
        """The summary of these entries, as the log holds them.

        Raises:
            SummaryRefusedError: two texts in a row were blank, cut off, too long, a call, an error, or old.
            ModelError: the model gave no answer at all, or none in time.
        """
        fault = None
        try:
            async with asyncio.timeout(self.limit_seconds):
                for _ in range(2):
                    text, finish = await self._read_in_pieces(covered, context, focus, fault, note)
                    fault = fault_of(text, finish, covered, self.counter)
                    if fault is None:
                        return neutral(shortened(text.strip(), max_chars=self._most_chars(text)))
        except TimeoutError as error:
            raise BadAnswerError(f"the summary took longer than {self.limit_seconds:g} s") from error
        raise SummaryRefusedError(f"the summary was refused: {fault}")

    def _most_chars(self, text: str) -> int:
        tokens = self.counter(text)
        return len(text) if tokens <= self.budget.reserve else len(text) * self.budget.reserve // tokens

    async def _read_in_pieces(
        self, covered: Sequence[Entry], context: Context, focus: str | None, fault: str | None, note: Note
    ) -> tuple[str, str | None]:
        room = self.budget.own(self.budget.for_context, context)
        for _ in range(3):
            try:
                return await self._fold(covered, room, focus, fault, note)
            except ContextTooLongError as error:
                smaller = (error.window or self.budget.window) - self.budget.reserve - self.budget.fixed
                room = min(room // 2, max(smaller, room // 4))
        raise SummaryRefusedError("the summariser's own request is too long for its window")

    async def _fold(
        self, covered: Sequence[Entry], room: int, focus: str | None, fault: str | None, note: Note
    ) -> tuple[str, str | None]:
        record, finish = "", None
        for piece in pieces(covered, room=room - self.budget.reserve, counter=self.counter):
            question = _question(piece, record, focus, fault, self.budget.reserve)
            record, finish = await self._ask(question, note)
            if finish == "length" or not record.strip():
                break
        return record, finish

    async def _ask(self, question: str, note: Note) -> tuple[str, str | None]:
        request = ModelRequest(
            messages=(
                {"role": "system", "content": SUMMARY_SYSTEM},
                {"role": "user", "content": question},
            ),
            purpose="summary",
            max_output_tokens=self.budget.reserve,
        )
        counted = PROMPT_TOKENS + self.counter(question)
        answer, called = await call(self.model, request, counted=counted, on_part=self.on_part)
        note(called)
        if answer.message.tool_calls:
            return "", "tool_calls"
        return answer.message.text, answer.finish


def summary_budget(model: ChatModel, agent: Budget, *, longest: int) -> Budget:
    """The room of a summary's requests: the summariser's window, the longest summary as its output."""
    window = min(model.window or agent.window, agent.window) if model.name == agent.model else model.window
    return replace(
        agent, window=window or agent.window, max_output_tokens=longest, fixed=PROMPT_TOKENS, model=model.name
    )


def summary_message(text: str, transcript: str | None) -> str:
    """The message that stands in the place of what was covered."""
    header = COMPRESSED.format(transcript=transcript or "none")
    return SUMMARY_MESSAGE.format(header=header, summary=text)


def pieces(covered: Sequence[Entry], *, room: int, counter: TokenCounter) -> list[str]:
    """The covered entries as labelled text, in as few pieces of at most `room` tokens as they need.

    A block that fills more than a piece goes on in the next; over `MAX_PIECES`, the longest blocks are
    cut to head and tail.
    """
    room = max(room, 200)
    blocks = labelled(covered, max_result_chars=min(RESULT_CHARS, room))
    sized = [(block, counter(block) + 2) for block in blocks]
    total = sum(tokens for _, tokens in sized)
    if total > room * MAX_PIECES:
        most = room * MAX_PIECES // max(1, len(sized))
        sized = [_cut(block, tokens, most, counter) for block, tokens in sized]
    packed: list[list[str]] = [[]]
    left = room
    for block, tokens in (part for pair in sized for part in _split(*pair, room)):
        if tokens > left and packed[-1]:
            packed.append([])
            left = room
        packed[-1].append(block)
        left -= tokens
    return ["\n\n".join(piece) for piece in packed]


def _cut(block: str, tokens: int, most: int, counter: TokenCounter) -> tuple[str, int]:
    if tokens <= most:
        return block, tokens
    short = shortened(block, max_chars=len(block) * most // tokens)
    return short, counter(short) + 2


def _split(block: str, tokens: int, room: int) -> list[tuple[str, int]]:
    if tokens <= room:
        return [(block, tokens)]
    parts = -(-tokens // (room * 9 // 10))
    size = -(-len(block) // parts)
    return [(block[at : at + size], -(-tokens // parts)) for at in range(0, len(block), size)]


def _question(piece: str, record: str, focus: str | None, fault: str | None, most_tokens: int) -> str:
    before = f"Earlier record: {neutral(record)}\n\n" if record else ""
    lines = [
        f"<conversation>\n{before}{piece}\n</conversation>",
        SUMMARY_INSTRUCTION.format(max_words=int(most_tokens * WORDS_PER_TOKEN)),
    ]
    if focus:
        lines.append(SUMMARY_FOCUS.format(focus=neutral(focus)))
    if fault:
        lines.append(SUMMARY_REPAIR.format(fault=fault))
    return "\n\n".join(lines)


_ERROR_TEXT = re.compile(
    r"\s*(\W*error\b|traceback\b|exception\b|\{\s*\"error\""
    r"|i(?:'|’)?m sorry\b|sorry,|i can(?:'|’)?t\b|i cannot\b)",
    re.IGNORECASE,
)


def fault_of(text: str, finish: str | None, covered: Sequence[Entry], counter: TokenCounter) -> str | None:
    """Why the text cannot stand for the covered entries, in words; None where it can."""
    if finish == "tool_calls":
        return "it was a tool call"
    if not text.strip():
        return "it was blank"
    if finish in ("length", "content_filter"):
        return "it was cut off"
    if len(text) < 300 and _ERROR_TEXT.match(text):
        return "it was an error text"
    if text.strip() in _known_texts(covered):
        return "it repeats an old message"
    covered_tokens = sum(entry.tokens for entry in covered)
    if (tokens := counter(summary_message(text, _LONGEST_NAME))) >= covered_tokens:
        return f"it takes {tokens:,} tokens, what it stands for takes {covered_tokens:,}"
    return None


_LONGEST_NAME = "transcript_1700000000-100.jsonl"


def _known_texts(covered: Sequence[Entry]) -> set[str]:
    return {summary_in(entry.original.text).strip() for entry in covered}
