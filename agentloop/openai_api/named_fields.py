"""Which fields of a request a refusal names: only those that were sent, and can be left out.

A path, in `param`, in `loc` or in the words, is followed down the body. A name alone is looked for in the
words: one with an underscore as it is, an English word only where it is quoted or called a parameter.
What nobody but us asked for goes wherever it is named, whatever is said of it, and so do the ids of items;
fields that a server put into its answers go where they are called invalid too. That nothing be stored is
asked for until the server says that it does not know `store` at all.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from agentloop.messages import Json
from agentloop.openai_api.error_bodies import FieldPath
from agentloop.openai_api.refused import Refusal
from agentloop.openai_api.request_fields import OWN_FIELDS
from agentloop.openai_api.thoughts import SEALED_FIELDS

_STORE: FieldPath = ("store",)
_CONVERSATIONS = ("messages", "input")
_NEEDED = frozenset({"model", "messages", "input", "instructions", "tools"})
_NEEDED_IN_MESSAGES = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "type", "function", "arguments"}
    | {"call_id", "output", "summary", "text", "refusal", "image_url", "input_audio", "file", "url"}
    | {"encrypted_content"}
)
_NEEDED_INSIDE = frozenset({"id", "thinking", "reasoning", "signature", "data"})
"""Needed in calls and parts of content, not in messages and items themselves."""

_ITEM_IDS: frozenset[FieldPath] = frozenset({("input", "id")})
_IDS = _ITEM_IDS | {("messages", "id")}
_NEEDED_IN_TOOLS = frozenset(
    {"type", "function", "name", "description", "parameters", "properties", "items", "required", "enum"}
    | {"anyOf", "oneOf", "allOf", "$ref", "$defs"}
)
_NAMED_BY_USERS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_PLAIN = re.compile(r"[a-z]+")
_OF_TOOLS = re.compile(r"\b(tools?|functions?|schemas?|function_declarations)\b", re.IGNORECASE)
_OF_MESSAGES = re.compile(r"\b(messages?|input|assistant)\b", re.IGNORECASE)
_OTHER_STORE = re.compile(
    r"\b(?!(?:parameters?|arguments?|fields?|property|properties|options?|keys?|supplied|supports?|accepts?"
    r"|allows?|uses?|the(?= store (?:parameter|argument|field|property|option)))\b)[a-z]+ store\b",
    re.IGNORECASE,
)
"""Vector stores and their like are no fields."""

_OF_ITS_VALUE = re.compile(
    r"\bunsupported value\b|\b(?:fixed|cannot be|only be)\b"
    r"|\b(?:when|if|unless|while|with|without)\W{1,3}store\b"
    r"|\bstore\b\W{0,3}(?:(?:is|was|set|must|be|to|should|has|have|needs?|requires?)\W{0,3}){0,5}"
    r"\b(?:true|false|set|enabled|disabled)\b",
    re.IGNORECASE,
)
_INSTEAD_OF = re.compile(
    r"\b(?:rather than|instead of|in place of)\W{1,3}(?:the |parameter )*[\"'`]?([a-z_]+)\b",
    re.IGNORECASE | re.ASCII,
)
_QUOTES_THE_REQUEST = re.compile(r"[\"'](messages|input)[\"']\s*:")


def refused_fields(refusal: Refusal, sent: Json) -> frozenset[FieldPath]:
    """The fields that this refusal of `sent` names; one of tools is `("tools", name)`, wherever it stands."""
    if refusal.is_of_item_ids and any("id" in item for item in _objects(sent.get("input"))):
        return _ITEM_IDS
    if not refusal.is_of_what_was_sent:
        return frozenset()
    followed = (_followed(path, sent) for path in refusal.all_paths)
    found = frozenset(path for path in followed if path)
    sure = _own(found, refusal.text, sent) | (found & _IDS) | _replaced(refusal.text, sent)
    if not refusal.is_of_the_form:
        return sure | _of_answers(found, refusal, sent)
    unknown = found or frozenset(_in_words(refusal.text, sent))
    named = sure | {path for path in unknown if (path[0],) not in sure}
    keeps_nothing = sent.get("store") is False and _STORE in named
    return named - {_STORE} if keeps_nothing and not _only_store(named, found, refusal.text) else named


def _only_store(named: Set[FieldPath], found: Set[FieldPath], text: str) -> bool:
    """Whether this field alone is said to be unknown, and neither its value nor another kind of store."""
    if named != {_STORE} or _OF_ITS_VALUE.search(text):
        return False
    return _STORE in found or _speaks_of("store", _OTHER_STORE.sub("", text))


def _own(found: frozenset[FieldPath], text: str, sent: Json) -> frozenset[FieldPath]:
    """The fields that we added and that are named; a refusal that quotes the request names all of them."""
    ours = {name for name, value in OWN_FIELDS.items() if name in sent and sent[name] == value}
    named = {path[0] for path in found} & ours
    if not named and not _QUOTES_THE_REQUEST.search(text):
        named = {name for name in ours if _speaks_of(name, text)}
    return frozenset((name,) for name in named)


def _replaced(text: str, sent: Json) -> frozenset[FieldPath]:
    """The fields in place of which another one is wanted."""
    found = set(_INSTEAD_OF.findall(text)) & (sent.keys() - _NEEDED - {*_STORE})
    return frozenset((name,) for name in found)


def _of_answers(found: frozenset[FieldPath], refusal: Refusal, sent: Json) -> frozenset[FieldPath]:
    """The fields of what a server answered that this refusal calls invalid: no user asked for them."""
    text = refusal.text
    if not refusal.is_of_something_invalid or refusal.wants_reasoning or _QUOTES_THE_REQUEST.search(text):
        return frozenset()
    ours = {path for part in _CONVERSATIONS for path in _answer_paths(part, sent.get(part))}
    return frozenset((found & ours) or (path for path in ours if _speaks_of(path[-1], text)))


def _answer_paths(part: str, messages: object) -> Iterator[FieldPath]:
    answered = [each for each in _objects(messages) if each.get("role") == "assistant"]
    return (path for path in _message_paths(part, answered) if path[-1] != "name")


def _followed(named: FieldPath, sent: Json) -> FieldPath | None:
    """The path as far as there are such keys; None where its last one is missing, or cannot be left out."""
    values: list[Any] = [sent]
    path: list[str] = []
    for key in named:
        if inner := [value[key] for value in values if isinstance(value, Mapping) and key in value]:
            path.append(key)
            values = [item for value in inner for item in _items(value)]
    if not path or path[-1] != named[-1]:
        return None
    return _dispensable(tuple(path))


def _dispensable(path: FieldPath) -> FieldPath | None:
    match path:
        case ("tools", *above, name):
            named_by_users = bool(above) and above[-1] in _NAMED_BY_USERS
            return None if name in _NEEDED_IN_TOOLS or named_by_users else ("tools", name)
        case ("messages", field, *_) if field in SEALED_FIELDS:
            return path[:2]
        case (("messages" | "input"), *above, name):
            inside = above and name in _NEEDED_INSIDE
            needed = inside or name in _NEEDED_IN_MESSAGES or ("function" in above and name == "name")
            return None if needed else path
        case (name, *_):
            return None if name in _NEEDED else path
    return None


def _in_words(text: str, sent: Json) -> Iterator[FieldPath]:
    """The sent fields whose names stand in the words; of several of one name those that are spoken of."""
    places: dict[str, list[FieldPath]] = {}
    for path in _sent_paths(sent):
        places.setdefault(path[-1], []).append(path)
    for name, paths in places.items():
        if _speaks_of(name, text):
            spoken_of = [path for path in paths if _fits(path, text)]
            yield from spoken_of or [path for path in paths if len(path) == 1] or paths


def _fits(path: FieldPath, text: str) -> bool:
    """Whether the words speak of the part of the request in which the field stands."""
    if not _PLAIN.fullmatch(path[-1]):
        return True
    if path[0] == "tools":
        return bool(_OF_TOOLS.search(text))
    if path[0] in _CONVERSATIONS and len(path) > 1:
        return bool(_OF_MESSAGES.search(text))
    return not (_OF_MESSAGES.search(text) or _OF_TOOLS.search(text))


def _speaks_of(name: str, text: str) -> bool:
    word = rf"(?<![\w$]){re.escape(name)}(?![\w$])"
    if not _PLAIN.fullmatch(name):
        return re.search(word, text, re.ASCII) is not None
    ways = (
        rf"[\"'`“‘]{name}[\"'`”’]",
        rf"(parameter|argument|field|property|option|key)s?( supplied)?:? {word}",
        rf"{word} (parameter|argument|field|property|option)\b",
        rf"{word}(\s?[=:]\s?[\w.]+)? (is |are )?(not|un|no longer|deprecated|fixed|cannot)",
        rf"{word} (may|can|must) (only|not)",
        rf"\b(support|accept|allow|use|take)s? (the )?{word}",
        rf"\b(allowed|supported|permitted|recogni[sz]ed|known|accepted|forbidden|unexpected): ?{word}",
        rf"\bto {word} this model",
        rf"{word}: (extra|un|not|field|property)",
        rf"\b(invalid|bad|wrong|illegal) (value (for|of) )?(the )?{word}",
        rf"(参数|字段|不支持)[\s:：]*{word}|{word}\s?(参数|字段)",
    )
    return any(re.search(way, text, re.IGNORECASE | re.ASCII) for way in ways)


def _sent_paths(sent: Json) -> Iterator[FieldPath]:
    """Where fields stand that can be left out."""
    yield from ((name,) for name in sent if name not in _NEEDED)
    for part in _CONVERSATIONS:
        yield from dict.fromkeys(_message_paths(part, sent.get(part)))
    yield from (("tools", name) for name in dict.fromkeys(_schema_keys(sent.get("tools"))))


def _message_paths(part: str, messages: object) -> Iterator[FieldPath]:
    for message in _objects(messages):
        yield from (path for name in message if (path := _dispensable((part, name))))
        for call in _objects(message.get("tool_calls")):
            yield from (path for name in call if (path := _dispensable((part, "tool_calls", name))))
            for function in _objects([call.get("function")]):
                inner = ((part, "tool_calls", "function", name) for name in function)
                yield from (path for each in inner if (path := _dispensable(each)))


def _schema_keys(schema: object) -> Iterator[str]:
    """The keys of a schema and of all within it that could be left out; names that users gave are none."""
    for value in schema if isinstance(schema, list | tuple) else [schema]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key not in _NEEDED_IN_TOOLS:
                    yield key
                yield from _schema_keys(list(inner.values()) if _is_of_users(key, inner) else inner)


def _is_of_users(key: str, inner: object) -> bool:
    return key in _NAMED_BY_USERS and isinstance(inner, Mapping)


def without_keys(schema: Any, keys: frozenset[str]) -> Any:
    """The schema without these keys, wherever they are keys of a schema."""
    if isinstance(schema, list | tuple):
        return [without_keys(each, keys) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: {name: without_keys(each, keys) for name, each in inner.items()}
        if _is_of_users(key, inner)
        else without_keys(inner, keys)
        for key, inner in schema.items()
        if key not in keys
    }


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _objects(values: object) -> Iterable[Mapping[str, Any]]:
    values = values if isinstance(values, list | tuple) else ()
    return (value for value in values if isinstance(value, Mapping))
