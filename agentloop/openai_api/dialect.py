"""What differs between servers in the form of a request, learnt from what they refuse."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from agentloop.context import SYSTEM_ROLES
from agentloop.messages import Json
from agentloop.openai_api.error_bodies import FieldPath
from agentloop.openai_api.named_fields import refused_fields, without_keys
from agentloop.openai_api.reasoning import (
    AMOUNTS,
    Returned,
    less_for,
    less_where_it_points,
    returned,
)
from agentloop.openai_api.refused import Refusal
from agentloop.openai_api.request_fields import OWN_FIELDS
from agentloop.openai_api.rewritten import WAYS, Instructions, at_most, instructed, with_reasoning, without
from agentloop.openai_api.sent_ids import ID_FORMS, IdForm, with_ids

LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
"""The two names of an answer's limit in chat completions, the one tried first first."""

_LIMITS = (*LIMIT_FIELDS, "max_output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between servers, learnt from a refusal and kept.

    `without` are fields of a request that the server does not know, `without_inside` those inside of messages
    and other fields, by their paths, and `without_in_tools` the keys of tools and schemas. `most_output` is
    the longest answer in tokens that may be asked for. `streams` says whether it must (True) or cannot
    (False) stream, `instructions` who says them, `reasoning` how it goes back. `wants_reasoning` says
    that no message with calls may lack it, `call_ids` what form the ids of calls must have.
    """

    without: frozenset[str] = frozenset()
    without_inside: frozenset[FieldPath] = frozenset()
    without_in_tools: frozenset[str] = frozenset()
    most_output: int | None = None
    streams: bool | None = None
    instructions: Instructions = "as they come"
    reasoning: Returned = "as it came"
    wants_reasoning: bool = False
    call_ids: IdForm = "as they came"

    @property
    def limit_field(self) -> str:
        """The name of an answer's limit in chat completions."""
        return next((name for name in LIMIT_FIELDS if name not in self.without), LIMIT_FIELDS[0])

    @property
    def returns_reasoning(self) -> bool:
        """Whether reasoning goes back at all."""
        return self.reasoning != "none"

    def streams_where(self, wished: bool) -> bool:
        """Whether requests stream where that is `wished`, or is not: as the server must or can have it."""
        return wished if self.streams is None else self.streams

    def after(self, refusal: Refusal, sent: Json) -> "Dialect":
        """The dialect to speak after this refusal of `sent`; the same where it is about something else.

        What a request cannot do without is never left out: model, messages and tools. The limit is,
        where both of its names are refused. `sent` may be of an older dialect, beside a request that found
        this one: what was found out is never given up again.
        """
        # What names reasoning names its role, its part or its field too, and often calls that unknown.
        if (less := less_for(refusal, sent)) is not None:
            return self._returning(less)
        # The next three need another value, though they name a field as if it had to go.
        if refusal.is_of_the_system_role and (way := _other_way(refusal, sent)) is not None:
            return replace(self, instructions=max(self.instructions, way, key=WAYS.index))
        if refusal.wants_reasoning and not self.wants_reasoning:
            return replace(self, wants_reasoning=True)
        if refusal.is_of_call_ids and (form := _other_ids(refusal, sent)) is not None:
            return replace(self, call_ids=max(self.call_ids, form, key=ID_FORMS.index))
        # A limit that is too high is named as a field that is unknown is, and has to stay.
        if (most := self._most_output(refusal, sent)) is not None:
            return replace(self, most_output=min(most, self.most_output or most))
        learnt = self._without(refused_fields(refusal, sent), sent)._streaming(refusal, sent)
        # A place tells less than a name: all that is wrong with a message is said of its place.
        if learnt == self and (less := less_where_it_points(refusal, sent)) is not None:
            return self._returning(less)
        return learnt

    def taken_back(self, before: "Dialect", after: "Dialect") -> "Dialect":
        """The dialect without a change that did not help, as far as nobody had asked for what it left out."""
        own = (after.without - before.without) & OWN_FIELDS.keys()
        reasoning = before.reasoning if self.reasoning == after.reasoning else self.reasoning
        return replace(self, without=self.without - own, reasoning=reasoning)

    def spoken(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body in this dialect."""
        body = {name: value for name, value in body.items() if name not in self.without}
        if self.streams is False:
            body.pop("stream_options", None)
        for path in sorted(self.without_inside):
            body = without(body, path)
        if self.without_in_tools and "tools" in body:
            body["tools"] = without_keys(body["tools"], self.without_in_tools)
        if self.most_output is not None:
            body = at_most(body, _LIMITS, self.most_output)
        if isinstance(body.get("messages"), Sequence):
            body["messages"] = self._said(body["messages"])
        if isinstance(body.get("input"), Sequence):
            body["input"] = with_ids(body["input"], self.call_ids)
        return body

    def changes(self, before: "Dialect") -> dict[str, Any]:
        """What is other than in the dialect before, as plain values by name."""
        ours = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: value for name, value in ours.items() if value != getattr(before, name)}
        return {name: _plain(value) for name, value in changed.items()}

    def _said(self, messages: Sequence[Json]) -> Sequence[Json]:
        messages = returned(instructed(messages, self.instructions), self.reasoning)
        messages = with_ids(messages, self.call_ids)
        return with_reasoning(messages) if self.wants_reasoning else messages

    def _most_output(self, refusal: Refusal, sent: Json) -> int | None:
        asked = next((sent[name] for name in _LIMITS if isinstance(sent.get(name), int)), None)
        return None if asked is None else refusal.most_output(asked)

    def _returning(self, less: Returned) -> "Dialect":
        return replace(self, reasoning=max(self.reasoning, less, key=AMOUNTS.index))

    def _without(self, paths: frozenset[FieldPath], sent: Json) -> "Dialect":
        names = {path[0] for path in paths if len(path) == 1} - {"stream"}
        return replace(
            self,
            without=self.without | names,
            without_in_tools=self.without_in_tools | {path[1] for path in paths if path[0] == "tools"},
            without_inside=self.without_inside
            | {path for path in paths if len(path) > 1 and path[0] != "tools"},
            streams=False if ("stream",) in paths and sent.get("stream") else self.streams,
        )

    def _streaming(self, refusal: Refusal, sent: Json) -> "Dialect":
        if sent.get("stream") and refusal.is_of_streams:
            return replace(self, streams=False)
        if not sent.get("stream") and refusal.wants_streams:
            return replace(self, streams=True)
        return self


Change: TypeAlias = tuple[Dialect, Dialect]
"""The dialects before and after something was learnt."""


def _other_way(refusal: Refusal, sent: Json) -> Instructions | None:
    """The way to try after the one in which `sent` gave its instructions; None where it gave none."""
    messages = sent.get("messages")
    role = messages[0].get("role") if messages else None
    if role == "developer" and ("developer" in refusal.text or "system" not in refusal.text):
        return "system"
    return "in front" if role in SYSTEM_ROLES else None


def _other_ids(refusal: Refusal, sent: Json) -> IdForm | None:
    """The first form that the ids in `sent` do not all have; None where they have every form."""
    forms = ID_FORMS[-1:] if refusal.wants_nine_letters else ID_FORMS[1:]
    said = next((sent[name] for name in ("messages", "input") if name in sent), ())
    return next((form for form in forms if with_ids(said, form) != list(said)), None)


def _plain(value: object) -> object:
    if not isinstance(value, frozenset):
        return value
    return sorted(item if isinstance(item, str) else ".".join(item) for item in value)
