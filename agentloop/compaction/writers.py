"""Summary, digest, lines or note: who writes what."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from agentloop._plumbing.truncate import beginning, head
from agentloop.compaction.digest import digest
from agentloop.compaction.plan import Plan, Rungs, Standing
from agentloop.compaction.summary import Summariser, TakeNote, summary_budget
from agentloop.context import (
    Context,
    Entry,
    TokenCounter,
    neutral,
    originals_of,
    summary_in,
    turns_of,
    without_a_log,
    written_by_a_model,
)
from agentloop.errors import ModelError
from agentloop.model_call import OnPart
from agentloop.models import ChatModel
from agentloop.prompts import NOTE
from agentloop.strategies import Computed, Digest, Lines, Note, Summary

ASKED_CHARS, ANSWERED_CHARS = 120, 160
"""So much is shown of what a user asked, and of the last thing the assistant said to it."""


def turn_lines(covered: Sequence[Entry], *, max_tokens: int, counter: TokenCounter) -> str:
    """The turns, one line each, the newest that fit into `max_tokens`, oldest first.

    Of an entry of kind "summary", which no log is behind, the lines stay as they are.
    """
    earlier = (summary_in(entry.original.text) for entry in covered if entry.kind == "summary")
    lines = [line for text in earlier for line in text.split("\n") if line.strip()]
    lines += [_line(turn) for turn in turns_of(entry for entry in covered if entry.kind == "said")]
    kept: list[str] = []
    for line in reversed(lines):
        max_tokens -= counter(line) + 1
        if max_tokens < 0:
            break
        kept.append(line)
    return neutral("\n".join(reversed(kept)))


def _line(turn: Sequence[Entry]) -> str:
    asked = next((entry.original.text for entry in turn if entry.is_user), "")
    said = [entry.original for entry in turn if entry.original.role == "assistant"]
    names = dict.fromkeys(call.name for message in said for call in message.tool_calls)
    answered = next((message.text for message in reversed(said) if message.text.strip()), "")
    parts = (_short(asked, ASKED_CHARS), ", ".join(names), _short(answered, ANSWERED_CHARS))
    return "- " + " → ".join(part for part in parts if part)


def _short(text: str, max_chars: int) -> str:
    return beginning(" ".join(head(text, max_chars * 4).split()), max_chars)


Writer: TypeAlias = Callable[[Plan, Context, str | None, TakeNote], Awaitable[Standing]]
"""Writes what stands for a plan's entries in this context, with the focus asked for; notes its requests."""

INDEX_SHARE = 0.15
"""The index beside a summary may take this share of the longest summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writers:
    """Writes what a plan of these rungs says; nothing is longer than the longest summary.

    `model` is the agent's, which writes where the policy names no other; None where there is none. `on_part`
    is shown that a request is tried again.
    """

    rungs: Rungs
    model: ChatModel | None
    counter: TokenCounter
    on_part: OnPart

    async def write(self, plan: Plan, context: Context, focus: str | None, take_note: TakeNote) -> Standing:
        """What stands instead.

        Raises:
            ModelError: the model wrote nothing that can stand, and nothing else was to stand in that case.
        """
        match plan.instead:
            case Summary() as spec:
                return await self._summary(spec, plan, context, focus, take_note)
            case other:
                return self.without_a_model(other, plan, context)

    def without_a_model(self, instead: Computed, plan: Plan, context: Context) -> Standing:
        """What stands instead where no model is asked."""
        if isinstance(instead, Note):
            gone = originals_of(context, plan.entries)
            seqs = tuple(entry.seq for entry in gone)
            return Standing(text=NOTE.format(count=len(gone)), made="note", unread=seqs)
        read = originals_of(context, plan.reads)
        earlier = without_a_log(context, plan.reads)
        if isinstance(instead, Digest):
            known = {entry.seq for entry in earlier}
            written = written_by_a_model(context, plan.reads)
            earlier += [entry for entry in written if entry.seq not in known]
        text = self._digest(instead, [*earlier, *read], plan, context)
        return Standing(text=text, made="digest")

    async def _summary(
        self, spec: Summary, plan: Plan, context: Context, focus: str | None, take_note: TakeNote
    ) -> Standing:
        summariser = self._summariser(spec, plan)
        if summariser is None:
            return self.without_a_model(spec.on_failure or Digest(), plan, context)
        try:
            written = await summariser.write(plan.entries, context, focus, take_note, reads=plan.reads)
        except ModelError as error:
            if spec.on_failure is None:
                raise
            return replace(self.without_a_model(spec.on_failure, plan, context), fault=str(error))
        return Standing(text=written.text, made="summary", unread=written.unread, shadow=spec.shadow)

    def _summariser(self, spec: Summary, plan: Plan) -> Summariser | None:
        policy, longest = self.rungs.policy, self.rungs.longest(plan)
        model = policy.model or self.model
        if model is None:
            return None
        index = int(longest * INDEX_SHARE)
        return Summariser(
            model=model,
            counter=self.counter,
            budget=summary_budget(model, self.rungs.budget, longest=longest - index),
            limit_seconds=policy.summary_seconds,
            on_part=self.on_part,
            spec=spec,
            index_tokens=index,
        )

    def _digest(self, spec: Digest | Lines, read: Sequence[Entry], plan: Plan, context: Context) -> str:
        longest = self.rungs.longest(plan)
        most = min(spec.max_tokens or longest, longest)
        if isinstance(spec, Lines):
            return turn_lines(read, max_tokens=most, counter=self.counter)
        gone = {entry.seq for entry in plan.entries}
        kept = [entry for entry in context.visible if entry.seq not in gone]
        return digest(read, max_tokens=most, counter=self.counter, kept=kept)
