"""What this server takes, learnt from its refusals; bodies rewritten to it.

A `Dialect` is what is known of a server. `Dialect.adapt_body` gives a body in it, and `Dialect.after` what a
refusal adds to it: the first lesson of the table at the end of this file that the refusal is of.

The ids of calls go back as they came: a server's own mean something to it. Those of Kimi's models name the
tool and number the call, and a model that sees others loses its own form; some gateways carry signatures in
them that they want back (https://ai.google.dev/gemini-api/docs/thought-signatures). Those of another
server are refused then by some: OpenAI takes at most 40 characters, Anthropic letters, digits, `_` and `-`,
Mistral exactly nine letters and digits. Only such a refusal changes them, in the request and not in the log.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

from agentloop.context import SYSTEM_ROLES
from agentloop.messages import Json, labelled_part, text_of
from agentloop.models import ModelRequest
from agentloop.prompts import (
    CALLED_IN_TEXT,
    FINAL_ANSWER,
    INSTRUCTIONS_IN_FRONT,
    MEDIA_NOT_TAKEN,
    around_result,
)
from agentloop.providers.openai.fields import OWN_FIELDS, FieldPath
from agentloop.providers.openai.reasoning import (
    AMOUNTS,
    Returned,
    less_for,
    less_where_it_points,
    with_less_reasoning,
)
from agentloop.providers.openai.refusals import (
    CALL_IDS,
    CONTENT_PART,
    MEDIA,
    NINE_LETTERS,
    NO_STREAMS,
    ONLY_STREAMS,
    REASONING_MISSED,
    Refusal,
    may_refuse_format,
    may_refuse_tools,
    refused_fields,
    refused_words,
    refuses_format,
    refuses_tools,
)
from agentloop.providers.openai.schemas import without_keys, without_words

IdForm: TypeAlias = Literal["as they came", "short", "nine letters"]
"""In what form ids are sent: `short` ones have at most 40 letters, digits, `_` and `-`."""

ID_FORMS: tuple[IdForm, ...] = ("as they came", "short", "nine letters")
"""In the order in which they are tried: one that is refused is not gone back to."""

_TAKEN_AS_THEY_ARE: Mapping[IdForm, re.Pattern[str]] = {
    "short": re.compile(r"[a-zA-Z0-9_-]{1,40}"),
    "nine letters": re.compile(r"[a-zA-Z0-9]{9}"),
}
_HASHED: Mapping[IdForm, Callable[[str], str]] = {
    "short": lambda digest: f"call_{digest[:24]}",
    "nine letters": lambda digest: digest[:9],
}


def with_ids(said: Sequence[Json], form: IdForm) -> Sequence[Json]:
    """The messages of chat completions, or the items of the Responses API, with ids of calls in this form.

    Calls and their results change alike, and ids that differ stay different. One that has the form stays;
    any other becomes a hash of itself, so that a call has one id in all requests.

    Example:
        >>> with_ids([{"role": "tool", "tool_call_id": "call_1", "content": "5"}], "short")
        [{'role': 'tool', 'tool_call_id': 'call_1', 'content': '5'}]
        >>> with_ids([{"role": "tool", "tool_call_id": "call_1", "content": "5"}], "nine letters")
        [{'role': 'tool', 'tool_call_id': 'ec23f0d3d', 'content': '5'}]
    """
    if form == "as they came":
        return said
    names = _Names(form)
    return [_renamed(each, names) for each in said]


class _Names:
    """The ids of one request, by those that they stand for."""

    def __init__(self, form: IdForm) -> None:
        self._fits, self._hashed = _TAKEN_AS_THEY_ARE[form], _HASHED[form]
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, call_id: str) -> str:
        if call_id not in self._names:
            name = call_id
            while name in self._taken or not self._fits.fullmatch(name):
                name = self._hashed(hashlib.sha256(f"{call_id}{name}".encode()).hexdigest())
            self._taken.add(name)
            self._names[call_id] = name
        return self._names[call_id]


def _renamed(said: Json, names: _Names) -> Json:
    changed: dict[str, Any] = {
        key: names.of(said[key]) for key in ("tool_call_id", "call_id") if isinstance(said.get(key), str)
    }
    if calls := said.get("tool_calls"):
        changed["tool_calls"] = [{**call, "id": names.of(call["id"])} for call in calls]
    return {**said, **changed} if changed else said


Instructions: TypeAlias = Literal["as they come", "system", "in front"]
"""Who says the instructions: whoever does in the request, a system message, or the first user message."""

WAYS: tuple[Instructions, ...] = ("as they come", "system", "in front")
"""In the order in which they are tried: one that is refused is not gone back to."""


def without(value: Any, path: FieldPath) -> Any:
    """The value without what stands at this path, in every item of the lists on the way."""
    if isinstance(value, list | tuple):
        return [without(item, path) for item in value]
    if not isinstance(value, Mapping) or path[0] not in value:
        return value
    if len(path) == 1:
        return {key: item for key, item in value.items() if key != path[0]}
    return {**value, path[0]: without(value[path[0]], path[1:])}


def with_instructions(messages: Sequence[Json], way: Instructions) -> Sequence[Json]:
    """The messages with the instructions that begin them said in that way."""
    if way == "as they come" or not messages or messages[0].get("role") not in SYSTEM_ROLES:
        return messages
    first, *rest = messages
    if way == "system":
        return [{**first, "role": "system"}, *rest]
    label = INSTRUCTIONS_IN_FRONT.format(instructions=text_of(first.get("content")))
    at = next((at for at, message in enumerate(rest) if message.get("role") == "user"), None)
    if at is None:
        return [{"role": "user", "content": label.strip()}, *rest]
    return [*rest[:at], {**rest[at], "content": _with_label(label, rest[at].get("content"))}, *rest[at + 1 :]]


def with_reasoning(messages: Sequence[Json]) -> Sequence[Json]:
    """The messages with empty reasoning in those with calls that have none."""
    return [
        {**message, "reasoning_content": ""}
        if message.get("tool_calls") and not isinstance(message.get("reasoning_content"), str)
        else message
        for message in messages
    ]


def _with_label(label: str, content: object) -> str | list[Any]:
    if isinstance(content, list | tuple):
        return [{"type": "text", "text": label}, *content]
    return f"{label}{content or ''}"


LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
"""The two names of an answer's limit in chat completions, the one tried first first."""

_LIMITS = (*LIMIT_FIELDS, "max_output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between servers, learnt from a refusal and kept.

    `without` are fields that the server does not know, by their paths; one of tools is `("tools", name)`, a
    key of theirs or of their schemas. What `other_words` say in schemas is said without them. `most_output`
    is the longest answer in tokens that may be asked for. `streams` says whether it must (True) or cannot
    (False) stream, `instructions` who says them, `reasoning` how it goes back. `wants_reasoning` says that
    no message with calls may lack it, `call_ids` what form the ids of calls must have, `without_media` that
    images and files are named in their place. `without_tools` says that requests which can do without tools
    have none, `without_format` that answers are asked for in words.
    """

    without: frozenset[FieldPath] = frozenset()
    other_words: frozenset[str] = frozenset()
    most_output: int | None = None
    streams: bool | None = None
    instructions: Instructions = "as they come"
    reasoning: Returned = "as it came"
    wants_reasoning: bool = False
    without_media: bool = False
    without_tools: bool = False
    without_format: bool = False
    call_ids: IdForm = "as they came"

    @property
    def limit_field(self) -> str:
        """The name of an answer's limit in chat completions."""
        return next((name for name in LIMIT_FIELDS if (name,) not in self.without), LIMIT_FIELDS[0])

    def after(self, refusal: Refusal, sent: Json, *, needs_tools: bool = True) -> "Dialect":
        """The dialect to speak after this refusal of `sent`; the same where it is about something else.

        What a request cannot do without is never left out: model, messages and the tools that it needs. The
        limit is, where both of its names are refused. `sent` may be of an older dialect, beside a request
        that found this one: what was found out is never given up again. Tools that are not needed are left
        out too where the refusal speaks of them in words that nobody here knows.
        """
        lessons = _LESSONS if needs_tools else (*_LESSONS, _once("without_tools", may_refuse_tools))
        learnt = (lesson(self, refusal, sent) for lesson in lessons)
        return next((dialect for dialect in learnt if dialect is not None), self)

    def taken_back(self, before: "Dialect", after: "Dialect") -> "Dialect":
        """The dialect without a change that did not help, as far as nobody had asked for what it left out."""
        own = (after.without - before.without) & {(name,) for name in OWN_FIELDS}
        reasoning = before.reasoning if self.reasoning == after.reasoning else self.reasoning
        return replace(
            self,
            without=self.without - own,
            reasoning=reasoning,
            without_tools=self.without_tools and before.without_tools >= after.without_tools,
            without_format=self.without_format and before.without_format >= after.without_format,
        )

    def adapt_request(self, request: ModelRequest) -> ModelRequest:
        """The request without the tools and the format that this server does not take, in words instead."""
        said = request
        if self.without_tools and not request.needs_tools:
            said = replace(said, tools=(), messages=without_calls(said.messages))
        if self.without_format:
            said = replace(said, answer_schema=None)
        by_tool = request.answer_schema is None
        is_asked = said.tools if by_tool else said.answer_schema
        if request.answer_words is None or is_asked:
            return said
        return replace(said, messages=with_answer_words(said.messages, request.answer_words))

    def adapt_body(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body in this dialect."""
        body = dict(body)
        of_tools = {path for path in self.without if path[0] == "tools"}
        for path in sorted(self.without - of_tools):
            body = without(body, path)
        if self.streams is False:
            body.pop("stream_options", None)
        if self.other_words and "tools" in body:
            body["tools"] = without_words(body["tools"], self.other_words)
        if of_tools and "tools" in body:
            body["tools"] = without_keys(body["tools"], {path[1] for path in of_tools})
        for name in _LIMITS:
            if self.most_output is not None and isinstance(body.get(name), int):
                body[name] = min(body[name], self.most_output)
        if self.without_media:
            body |= {name: named_media(body[name]) for name in _SAID if name in body}
        if isinstance(body.get("messages"), Sequence):
            body["messages"] = self._said(body["messages"])
        if isinstance(body.get("input"), Sequence):
            body["input"] = with_ids(body["input"], self.call_ids)
        return body

    def changes(self, before: "Dialect") -> dict[str, Any]:
        """What is other than in the dialect before, as plain values by name."""
        ours = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: value for name, value in ours.items() if value != getattr(before, name)}
        return {name: _json_value(value) for name, value in changed.items()}

    def _said(self, messages: Sequence[Json]) -> Sequence[Json]:
        messages = with_less_reasoning(with_instructions(messages, self.instructions), self.reasoning)
        messages = with_ids(messages, self.call_ids)
        return with_reasoning(messages) if self.wants_reasoning else messages


def with_answer_words(messages: Sequence[Json], words: str) -> tuple[Json, ...]:
    """The messages with these words behind the instructions.

    Example:
        >>> with_answer_words([{"role": "system", "content": "Be brief."}], "Give JSON.")[0]["content"]
        'Be brief.\\n\\nGive JSON.'
    """
    if not messages or messages[0].get("role") not in SYSTEM_ROLES:
        return {"role": "system", "content": words}, *messages
    first, *rest = messages
    return {**first, "content": f"{text_of(first.get('content'))}\n\n{words}"}, *rest


def without_calls(messages: Sequence[Json]) -> tuple[Json, ...]:
    """The messages with calls and their results in words, the results of one message in one of a user.

    Example:
        >>> call = {"id": "a", "function": {"name": "look", "arguments": "{}"}}
        >>> said = [{"role": "assistant", "content": "", "tool_calls": [call]}]
        >>> without_calls([*said, {"role": "tool", "tool_call_id": "a", "content": "A door."}])[1]
        {'role': 'user', 'content': '[result of a call, up to 788113228]\\nA door.\\n[788113228]'}
    """
    said: list[Json] = []
    answers: set[str] = set()
    results: list[Json] = []
    for message in messages:
        if message.get("role") == "tool":
            results += _parts_of(message, label=message["tool_call_id"] not in answers)
            continue
        said += _as_user_message(results)
        results = []
        if calls := message.get("tool_calls"):
            answers = {call["id"] for call in calls if _gives_answer(call)}
            message = {"role": "assistant", "content": _with_calls(text_of(message.get("content")), calls)}
        said.append(message)
    return *said, *_as_user_message(results)


def _gives_answer(call: Json) -> bool:
    return bool(call["function"]["name"].startswith(FINAL_ANSWER))


def _with_calls(text: str, calls: Sequence[Json]) -> str:
    """The text and the calls behind it; one that gives an answer is that answer, unless it was in vain."""
    lines = [text]
    for call in calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if not _gives_answer(call):
            lines.append(CALLED_IN_TEXT.format(name=name, arguments=arguments))
        elif arguments != "{}" or not text:
            lines.append(arguments)
    return "\n".join(filter(None, lines))


def _parts_of(result: Json, *, label: bool) -> list[Json]:
    content = result["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
    if not label:
        return parts
    begins, ends = ({"type": "text", "text": text} for text in around_result(text_of(content)))
    return [begins, *parts, ends]


def _as_user_message(parts: Sequence[Json]) -> list[Json]:
    """The results as one message of a user, as text where they are text alone."""
    texts = [part["text"] for part in parts if part.get("type") == "text"]
    content = "\n".join(texts) if len(texts) == len(parts) else [*parts]
    return [{"role": "user", "content": content}] if parts else []


_SAID = ("messages", "input")
"""What is said, in chat completions and in the Responses API."""


def named_media(said: Any) -> Any:
    """The messages or items with a text in place of each image and file.

    Example:
        >>> image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
        >>> named_media([{"role": "user", "content": [image]}])[0]["content"][0]["text"]
        '[image https://example.com/a.png, which this model does not take]'
    """
    if isinstance(said, list | tuple):
        return [named_media(each) for each in said]
    if not isinstance(said, Mapping):
        return said
    if said.get("type") in ("input_image", "input_file"):
        chat = {"type": "image_url", "image_url": said.get("image_url") or said.get("file_id")}
        named = labelled_part(chat, MEDIA_NOT_TAKEN) if said["type"] == "input_image" else None
        text = (
            named["text"]
            if named
            else MEDIA_NOT_TAKEN.format(what=f"file {said.get('filename', '')}".strip())
        )
        return {"type": "input_text", "text": text}
    if named := labelled_part(said, MEDIA_NOT_TAKEN):
        return named
    changed = {name: named_media(said[name]) for name in ("content", "output") if name in said}
    return {**said, **changed} if changed else said


BodyChange: TypeAlias = tuple[Dialect, Dialect]
"""The dialects before and after something was learnt."""


def _json_value(value: object) -> object:
    if not isinstance(value, frozenset):
        return value
    return sorted(item if isinstance(item, str) else ".".join(item) for item in value)


Lesson: TypeAlias = Callable[[Dialect, Refusal, Json], Dialect | None]
"""Gives the dialect after a refusal of what was sent, None where the refusal is of something else."""


def _once(change: str, is_refused: Callable[[Refusal, Json], bool]) -> Lesson:
    """Turns this on, unless that is so already."""
    on: dict[str, Any] = {change: True}

    def lesson(dialect: Dialect, refusal: Refusal, sent: Json) -> Dialect | None:
        is_new = not getattr(dialect, change) and is_refused(refusal, sent)
        return replace(dialect, **on) if is_new else None

    return lesson


def _returning(less_by: Callable[[Refusal, Json], Returned | None]) -> Lesson:
    """Sends less reasoning back than was refused."""

    def lesson(dialect: Dialect, refusal: Refusal, sent: Json) -> Dialect | None:
        if (less := less_by(refusal, sent)) is None:
            return None
        return replace(dialect, reasoning=max(dialect.reasoning, less, key=AMOUNTS.index))

    return lesson


def _misses_reasoning(refusal: Refusal, _: Json) -> bool:
    return refusal.is_of(REASONING_MISSED)


def _refuses_media(refusal: Refusal, sent: Json) -> bool:
    holds = any(named_media(sent[name]) != list(sent[name]) for name in _SAID if name in sent)
    return holds and (refusal.is_of(MEDIA) or refusal.is_of(CONTENT_PART))


def _other_instructions(dialect: Dialect, refusal: Refusal, sent: Json) -> Dialect | None:
    """The way to try after the one in which `sent` gave its instructions."""
    messages = sent.get("messages")
    role = messages[0].get("role") if messages else None
    if role not in SYSTEM_ROLES or not refusal.is_of_the_system_role:
        return None
    speaks_of_developer = "developer" in refusal.text or "system" not in refusal.text
    way: Instructions = "system" if role == "developer" and speaks_of_developer else "in front"
    return replace(dialect, instructions=max(dialect.instructions, way, key=WAYS.index))


def _other_call_ids(dialect: Dialect, refusal: Refusal, sent: Json) -> Dialect | None:
    """The first form that the ids in `sent` do not all have."""
    if not refusal.is_of(CALL_IDS):
        return None
    forms = ID_FORMS[-1:] if refusal.is_of(NINE_LETTERS) else ID_FORMS[1:]
    said = next((sent[name] for name in ("messages", "input") if name in sent), ())
    form = next((form for form in forms if with_ids(said, form) != list(said)), None)
    if form is None:
        return None
    return replace(dialect, call_ids=max(dialect.call_ids, form, key=ID_FORMS.index))


def _shorter_answer(dialect: Dialect, refusal: Refusal, sent: Json) -> Dialect | None:
    asked = next((sent[name] for name in _LIMITS if isinstance(sent.get(name), int)), None)
    if asked is None or (most := refusal.most_output(asked)) is None:
        return None
    return replace(dialect, most_output=min(most, dialect.most_output or most))


def _plainer_schemas(dialect: Dialect, refusal: Refusal, sent: Json) -> Dialect | None:
    words = refused_words(refusal, sent)
    return replace(dialect, other_words=dialect.other_words | words) if words else None


def _left_out(dialect: Dialect, refusal: Refusal, sent: Json) -> Dialect | None:
    """The dialect without the fields that are named, and streaming or not as the server has it."""
    paths = refused_fields(refusal, sent)
    streams = dialect.streams
    if sent.get("stream") and (("stream",) in paths or refusal.is_of(NO_STREAMS)):
        streams = False
    elif not sent.get("stream") and refusal.is_of(ONLY_STREAMS):
        streams = True
    learnt = replace(
        dialect,
        without=dialect.without | paths - {("stream",)},
        streams=streams,
    )
    return learnt if learnt != dialect else None


_LESSONS: tuple[Lesson, ...] = (
    # What names reasoning names its role, its part or its field too, and often calls that unknown.
    _returning(less_for),
    _once("without_media", _refuses_media),
    # The next three need another value, though they name a field as if it had to go.
    _other_instructions,
    _once("wants_reasoning", _misses_reasoning),
    _other_call_ids,
    # A limit that is too high is named as a field that is unknown is, and has to stay.
    _shorter_answer,
    # A schema that is refused in the format is no tool's.
    _once("without_format", refuses_format),
    # References and choices in schemas are said otherwise: without them a tool would take anything.
    _plainer_schemas,
    _left_out,
    # What is wrong with one tool, or one field beside them, is said of tools too.
    _once("without_tools", refuses_tools),
    # A place tells less than a name: all that is wrong with a message is said of its place.
    _returning(less_where_it_points),
    # What it says of the format is not known: to go on without may help, and is given up where it does not.
    _once("without_format", may_refuse_format),
)
"""In this order: the first that a refusal is of is learnt."""
