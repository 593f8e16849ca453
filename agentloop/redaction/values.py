"""Secrets inside of messages, events and errors: only where people, models and programs speak.

Roles, statuses, kinds, reasons, finish reasons, names of tools, models and callbacks, and ids of sessions,
runs and calls make up a session. They are never rewritten, whatever they look like: a value that happens to
be `assistant` would leave no message anybody can read. Files and folders are found by their names.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from agentloop.errors import UsageError
from agentloop.media import is_media_url, with_words
from agentloop.redaction.secrets import KnowsValues, Redact

T = TypeVar("T")

FREE_TEXT: Mapping[str, tuple[str, ...]] = {
    "Message": ("content", "tool_calls", "extra"),
    "ToolCall": ("arguments", "extra"),
    "Record": ("event",),
    "MessageRecord": ("message",),
    "ClearedItem": ("message",),
    "Cleared": ("items",),
    "Compacted": ("replacement", "answer", "cleared", "why", "lost", "fault"),
    "NotCompacted": ("why", "error"),
    "Restored": (),
    "ModelCalled": (),
    "RunStartRecord": ("setup",),
    "RunSetup": ("server",),
    "RunEndRecord": ("reason",),
    "ApprovalAsked": ("arguments",),
    "ApprovalAnswered": ("arguments", "text"),
    "Pending": ("arguments",),
    "Described": ("title",),
    "Noted": ("data",),
    "MediaRecord": (),
    "Unknown": ("body",),
    "RunStarted": (),
    "RunEnded": ("output", "error"),
    "MessageAdded": ("message",),
    "TextDelta": ("text",),
    "OutputDelta": ("output",),
    "ToolStarted": ("arguments",),
    "ToolProgress": ("text",),
    "CallRepeated": (),
    "ToolEnded": (),
    "ApprovalNeeded": ("arguments",),
    "ApprovalGiven": ("text",),
    "ResultsCleared": (),
    "CompactionStarted": ("why",),
    "CompactionEnded": ("lost", "error"),
    "CompactionSkipped": ("why", "error"),
    "ContextWarning": ("text",),
    "Retrying": ("error",),
    "CallbackFailed": ("error",),
    "SessionInfo": ("title",),
    "CompactionRequest": ("why", "messages", "focus"),
    "Positioned": ("message",),
    "Occasion": ("why", "focus"),
    "Replacement": ("text", "shadow", "fault"),
}
"""The fields that hold free text, by the name of the type; of a type that is not here it is every field."""

PROVIDER_FIELDS = ("content", "extra", "body")
"""Fields whose mappings have keys that a provider or this library gave them: those stay."""

STRUCTURE = frozenset(
    {
        *("role", "type", "kind", "id", "object", "index", "name", "model", "status", "format", "media_type"),
        *("call_id", "tool_call_id", "item_id", "response_id", "session_id", "run_id", "request_hash"),
        *("finish", "finish_reason", "stop_reason", "reason", "purpose", "strategy", "made", "encoding"),
    }
)
"""Keys in those mappings whose texts stay too."""

USERS_OWN = frozenset({"input", "arguments", "args"})
"""Keys in those mappings behind which a tool's own fields stand: nothing there is a provider's."""

_SEALED_KEYS = frozenset(
    {
        *("encrypted_content", "encrypted_index", "encrypted_stdout", "reasoning_opaque", "signature"),
        *("thought_signature", "thought_signatures", "thoughtSignature", "thoughtSignatures"),
        *("redacted_content", "redactedContent"),
    }
)
_SEALED_DATA = ("reasoning.encrypted", "redacted_thinking")


def is_sealed(key: object, value: object, beside: Mapping[Any, Any]) -> bool:
    """Whether a provider alone can read the text behind this key of a mapping, and wants it back as it is.

    It is base64 as a rule, which has the shape of a key now and then. Documented at
    https://platform.openai.com/docs/guides/reasoning (`encrypted_content`),
    https://docs.claude.com/en/docs/build-with-claude/extended-thinking (`signature`, `redacted_thinking`),
    https://docs.claude.com/en/docs/agents-and-tools/tool-use/web-search-tool (`encrypted_index`),
    https://ai.google.dev/gemini-api/docs/thought-signatures,
    https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ReasoningContentBlock.html and
    https://openrouter.ai/docs/use-cases/reasoning-tokens (`reasoning.encrypted`).
    """
    texts = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(text, str) for text in texts):
        return False
    return beside.get("type") in _SEALED_DATA if key == "data" else key in _SEALED_KEYS


_MOST_PAIR_CHARS = 1_000
"""A longer text that stands alone behind a key is looked at without that key."""

_JSON_TEXTS = ("arguments", "body")
"""Fields and keys that hold JSON as text: the arguments of a call, a record of a kind not known."""

_OWN_TEXTS = ("filename", "filename2", "strerror", "msg", "text", "object", "value")
"""Texts that errors of Python keep beside their `args`."""


def redacted(value: T, redact: Redact | None) -> T:
    """The value with every text inside redacted, itself where that changes nothing or `redact` is None.

    Mappings, lists, tuples and dataclasses are looked into, these where `FREE_TEXT` says that somebody
    speaks; arguments that are JSON stay JSON. From what a provider has sealed known values alone are taken,
    where the redaction can tell them apart.
    """
    clean: T = value if redact is None else _inside(value, redact)
    return clean


def redacted_or_said_why(value: T, redact: Redact | None) -> T:
    """The same; where the redaction fails, its error's words stand for every text."""
    return redacted(value, redact and _SayingWhy(redact))


def redact_error(error: BaseException, redact: Redact | None) -> None:
    """Redact what an error and those behind it say, in place, so that no traceback shows more."""
    if redact is None:
        return
    for each in _chain(error):
        each.args = tuple(_said(argument, redact) for argument in each.args)
        for name in (*vars(each), *_OWN_TEXTS):
            value = getattr(each, name, None)
            if isinstance(value, str | Mapping | list | tuple):
                with suppress(AttributeError, TypeError):  # some keep theirs for reading only
                    setattr(each, name, _said(value, redact))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes and contexts, and the members of groups."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += (each.__cause__, each.__context__)
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


@dataclass(frozen=True, slots=True)
class _SayingWhy:
    """A redaction whose failure stands in place of the text."""

    redact: Redact

    def __call__(self, text: str, /) -> str:
        try:
            return self.redact(text)
        except UsageError as failed:
            return str(failed)

    def known(self, text: str, /) -> str:
        """The same without known values alone."""
        return _SayingWhy(_of_values(self.redact))(text)


def _of_values(redact: Redact) -> Redact:
    """Takes known values alone out; all that it takes for a secret where it knows no values."""
    return redact.known if isinstance(redact, KnowsValues) else redact


def _said(value: Any, redact: Redact) -> Any:
    try:
        return _inside(value, _SayingWhy(redact))
    except RecursionError:
        # What a server nests so deep nobody has looked through: it goes whole.
        return "…"


def _inside(value: Any, redact: Redact, *, provided: bool = False) -> Any:
    """The value; `provided` says that a provider named its keys."""
    match value:
        case str():
            return _same_or(value, with_words(value, redact) if is_media_url(value) else redact(value))
        case Mapping():
            return _same_or(value, _mapping(value, redact, provided=provided))
        case list():
            return _same_or(value, [_inside(item, redact, provided=provided) for item in value])
        case tuple() if type(value) is tuple:
            return _same_or(value, tuple(_inside(item, redact, provided=provided) for item in value))
    if is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value, redact)
    return value


def _mapping(value: Mapping[Any, Any], redact: Redact, *, provided: bool) -> dict[Any, Any]:
    if not provided:
        return {_key(key, redact): _pair(key, item, redact) for key, item in value.items()}
    return {key: _provided(key, item, value, redact) for key, item in value.items()}


def _provided(key: Any, item: Any, beside: Mapping[Any, Any], redact: Redact) -> Any:
    """The item behind a key that a provider named."""
    if key in STRUCTURE and isinstance(item, str):
        return item
    if is_sealed(key, item, beside):
        redact = _of_values(redact)
    return _pair(key, item, redact, provided=key not in USERS_OWN)


def _same_or(value: Any, clean: Any) -> Any:
    return value if clean == value else clean


def _key(key: Any, redact: Redact) -> Any:
    return redact(key) if isinstance(key, str) else key


def _pair(key: Any, value: Any, redact: Redact, *, provided: bool = False) -> Any:
    """The value; a short text also as it would stand behind its key in JSON."""
    if key in _JSON_TEXTS and isinstance(value, str):
        return _json_text(value, redact)
    clean = _inside(value, redact, provided=provided)
    is_short = isinstance(clean, str) and len(clean) <= _MOST_PAIR_CHARS and not is_media_url(clean)
    if not is_short or not isinstance(key, str):
        return clean
    before = f'"{key if provided else _key(key, redact)}": "'
    written = redact(f'{before}{clean}"')
    held = written.startswith(before) and written.endswith('"')
    return written[len(before) : -1] if held else clean


def _dataclass(value: Any, redact: Redact) -> Any:
    """The value with its free text redacted: all fields of a type that does not say where that is."""
    names = FREE_TEXT.get(type(value).__name__)
    changed = {}
    for name in (each.name for each in fields(value) if each.init and (names is None or each.name in names)):
        item = getattr(value, name)
        clean = _field(name, item, redact)
        if clean is not item:
            changed[name] = clean
    return replace(value, **changed) if changed else value


def _field(name: str, item: Any, redact: Redact) -> Any:
    provided = name in PROVIDER_FIELDS
    if name in _JSON_TEXTS and isinstance(item, str):
        return _json_text(item, redact, provided=provided)
    return _inside(item, redact, provided=provided)


def _json_text(text: str, redact: Redact, *, provided: bool = False) -> str:
    """JSON text redacted inside of its strings, as they are read and as they are written; else as text."""
    twice: list[str] = []

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            twice.append(text)
        return found

    try:
        value = json.loads(text, object_pairs_hook=noted)
    except (ValueError, RecursionError):
        return redact(text)
    try:
        clean = _inside(value, redact, provided=provided)
        if clean is not value or (twice and "\\" in text):
            text = json.dumps(clean, ensure_ascii=False)
    except RecursionError:  # Python's decoder goes deeper than we can follow
        return redact(text)
    if provided:
        return text
    written = redact(text)
    return written if written == text or _is_json(written) else json.dumps({"redacted": written})


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
