"""What a refusal names: what it is of, as one table, and the fields of a request that have to go.

Servers say what they refuse of a request's form in words of their own. Some name a field in `param`, some in
`loc` as pydantic does, some in a path such as `messages[2].reasoning_content`, and some in their sentence
alone. What a refusal is of stands in the table of `Subject`s; which fields go, `refused_fields` says: only
those that were sent, and can be left out.

A path, in `param`, in `loc` or in the words, is followed down the body. A name alone is looked for in the
words: one with an underscore as it is, an English word only where it is quoted or called a parameter.
What nobody but us asked for goes wherever it is named, whatever is said of it, and so do the ids of items;
fields that a server put into its answers go where they are called invalid too. That nothing be stored is
asked for until the server says that it does not know `store` at all.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import KW_ONLY, dataclass
from typing import Any

from agentloop.messages import Json
from agentloop.providers.openai.fields import (
    OWN_FIELDS,
    SEALED_FIELDS,
    FieldPath,
    FieldPlace,
    locations_in,
    on_one_line,
    said,
    texts_in,
    tokens_in,
)
from agentloop.providers.openai.schemas import NAMED_BY_USERS, REFERENCES, WORDS, asks_for_answer, keys_in


@dataclass(frozen=True, slots=True)
class Subject:
    """What a refusal may be of: words for it, and the statuses with which a request is refused in them.

    Where `also` is given it must stand in the words too, and `never` must not. The patterns are compiled when
    they are first looked for.
    """

    statuses: Set[int]
    words: str
    _: KW_ONLY
    also: str = ""
    never: str = r"\b\B"

    def is_said(self, status: int, text: str) -> bool:
        return status in self.statuses and self.stands_in(text)

    def stands_in(self, text: str) -> bool:
        words, also, never = (
            re.search(each, text, re.IGNORECASE) for each in (self.words, self.also, self.never)
        )
        return bool(words and also and not never)


_FORM = frozenset({400, 422})
_FORM_OR_TEMPLATE = _FORM | {500}
"""The template of a model that fails on what it does not know is a server's fault to some servers."""

UNKNOWN = Subject(
    _FORM,
    r"\bun(supported|known|recogni[sz]ed|expected|available)|\b(for|pro)(bidden|hibited)\b|_forbidden\b"
    r"|\b(dis|un)allowed\b|\bincompatible\b|\bobsolete\b|\bdeprecated\b"
    r"|\b(replaced|superseded) (by|with)\b|\brenamed to\b"
    r"|\b(not|no longer) (an? |be |yet |currently )*(support(ed)?|permitted|allowed|accepted|recogni[sz]ed|"
    r"known|enabled|available|implemented|valid|used|specified|set)\b"
    r"|\b(must|may|should) not be (given|included|passed|present|provided|sent)\b"
    r"|\bcannot be (set|used|specified|changed|modified|provided|passed|included|combined)\b"
    r"|\bmust be (omitted|removed|absent|unset|left out)\b|\b(please|must|to) omit\b"
    r"|n't (supported|allowed|permitted|accepted|available|recogni[sz]ed)\b"
    r"|\b(do(es)?n't|do(es)? not|cannot) (support|accept|allow|know|use|take|permit|recogni[sz]e)\b"
    r"|\bextra (inputs?|fields?|param|properties|keys?)|\badditional propert|\bno such (field|param|argument)"
    r"|\bcannot find field\b|\bremove\b|must be verified"
    r"|\bonly the default\b|\bonly \d+(\.\d+)? is (allowed|supported|accepted)\b"
    r"|\bonly (be|accepts?|supports?|takes?|allows?) (an? |the |set to |equal to |value |temperature )*"
    r"['\"`]?\d+(\.\d+)?\b(?!\.\d)(?!\W*(and|or|to|tokens|characters|-|–)(?!\w))"
    r"|\b(is|are) fixed (at|to)\b"
    r"|不支持|不允许|无法识别|(未知|多余)的?(参数|字段)",
)
"""Something in the request that the server does not know or take."""

INVALID = Subject(
    _FORM,
    r"\b(invalid|illegal|bad|malformed|not valid|not from)\b",
)
"""Something that it calls invalid: a field, or the value that it has."""

ITEM_IDS = Subject(
    frozenset({400, 404}),
    r"required 'reasoning' item|item with id .{0,200} not found",
)
"""An item that is looked for by its id, or what belongs to that id: another server gave it."""

REASONING_MISSED = Subject(
    _FORM,
    r"reasoning_content\W.{0,80}\b(missing|required|must be (passed|provided|present|included|returned|set))"
    r"|\b(missing|requires?|without)\W.{0,60}\breasoning_content\b",
)
"""Reasoning that is missed in a message that never had any: another server made it, as a rule."""

_SYSTEM_ROLE = (
    r"(?:['\"`“]?\b(?:system|developer)['\"`”]? (?:roles?|messages?|prompts?|instructions?)\b"
    r"|\broles?\W{1,4}(?:system|developer)\b)"
)
SYSTEM_ROLE = Subject(
    _FORM_OR_TEMPLATE,
    rf"{_SYSTEM_ROLE}.{{0,40}}((\bnot|n't|\bcannot) (yet |currently |be )*"
    r"(supported|accepted|enabled|available|allowed(?! to)|permitted|recogni[sz]ed)\b"
    r"|\b(unsupported|disallowed|forbidden|disabled)\b)"
    r"|(\bnot|n't|\bcannot) (support|accept|allow|permit|contain|include|have|use|take|recogni[sz]e|know) "
    rf"(?!.{{0,16}}\b(more|multiple|several|two)\b).{{0,12}}({_SYSTEM_ROLE}|['\"`](system|developer)['\"`])"
    r"|\b(unsupported|unexpected|unknown|unrecogni[sz]ed|invalid|illegal)\b.{0,20}\brole\b"
    r".{0,20}\b(system|developer)\b"
    r"|\brole\W{1,4}(system|developer)\b.{0,12}\b(invalid|unknown|not (a )?(valid|known))\b"
    r"|\binvalid value\W{1,4}(system|developer)\b"
    r"|\bunknown variant `(system|developer)`|['\"`](system|developer)['\"`] is not one of"
    rf"|\b(remove|omit) (the |any |all )?{_SYSTEM_ROLE}"
    r"|\bonly user,? (and )?assistant\b.{0,20}role"
    r"|不支持\s?['\"`“]?(system|developer|系统(消息|提示|角色))"
    r"|\A(?!.*optional system).*roles must alternate",
)
"""System messages, which the server, or the template of its model, does not know.

One that wants user and assistant by turns, which they are, takes the system message for one of them.
"""

CONTENT_PART = Subject(
    _FORM_OR_TEMPLATE,
    r"\b(unsupported|unknown|unrecogni[sz]ed|invalid|unexpected) (content )?part( type)?\b"
    r"|\b(unsupported|unknown|invalid) content\[\]\.type\b"
    r"|\bcontent\b.{0,30}\b(must|should|has to) be (a |an? valid |of type )*str(ing)?\b"
    r"|\bonly\W{1,3}text\b.{0,40}\b(supported|allowed|accepted|permitted)\b",
)
"""A kind of part of a message's content that is not known, where none but text is taken as a rule."""

MEDIA = Subject(
    _FORM_OR_TEMPLATE | {404},
    r"\b(image|file|pdf|vision|multi-?modal)s?( content| inputs?)?\b.{0,30}"
    r"(\bnot|n't|\bonly)( be)? (support|enabl|allow|accept)"
    r"|\bnot support.{0,20}\b(image|vision|multi-?modal|file|pdf)"
    r"|\bsupports? (image|vision|file|pdf)s?( inputs?)?\b"
    r"|\bnot (a )?multi-?modal\b|\bat most 0 (image|file)|\bimage_url\b.{0,20}\bonly supported\b"
    r"|\b(unknown|unsupported|invalid)\b.{0,30}\b(image_url|input_image|input_file)\b",
    never=r"\b(size|large[rst]*|format|media[_ ]type|mime|decode|download|pixels|dimensions?|bytes)\b",
)
"""Images or files, where the model takes none of them, and not this one alone: OpenAI, vLLM ("is not a
multimodal model"), llama.cpp ("image input is not supported"), DeepSeek ("unknown variant `image_url`") and
OpenRouter ("No endpoints found that support image input") say it so."""

CALL_IDS = Subject(
    _FORM_OR_TEMPLATE,
    r"\btool[ _-]?(call|use)s?(\[\d+\]|\.\d+)?[ _.-]?ids?\b|\b(function[ _-]?)?call[ _-]?ids?\b",
    also=(
        r"\bpattern\b|\btoo long\b|\blength\b|\bcharacters?\b|\bletters\b|\bregular expression\b"
        r"|\balphanumeric\b|\binvalid\b|\bformat\b|\bmust (be|match|have|begin|start)\b"
    ),
    never=(
        r"\brespon(se|d|ses|ding)\b|\bfollowed\b|\bpreced|\bnot found\b|\brequired\b|\bmissing\b|\bduplicate"
    ),
)
"""The form of calls' ids, and no missing call or result: another server made them, as a rule."""

NINE_LETTERS = Subject(
    _FORM_OR_TEMPLATE,
    r"\blength (of |must be |exactly )?9\b|\b9 (alphanumeric|letters|characters)\b|\{9\}",
)
"""Ids of exactly nine characters, which are asked for."""

NO_STREAMS = Subject(
    _FORM,
    r"(?<!non-)(?<!non )\bstream(ing|ed|s| mode| requests?)\b.{0,40}(\bnot\b|n't|\bunsupported|\bdisabled)"
    r"|(\bnot|n't) (support|allow|accept|permit|offer).{0,40}\bstream(s|ing| mode)\b"
    r"|\bstream\b['\"`]?(\s?[:=]\s?|\s(set to )?)['\"`]?true\b.{0,20}(\bnot\b|n't|\bunsupported|\bdisabled)"
    r"|\bstream\b.{0,20} must be (set to )?false|\b(cannot|can't) (be )?stream(ed)?\b"
    r"|\bonly (supports? )?(the )?non-?\s?stream|\bdisable (the )?stream|不支持\s?流式",
)
"""Streams, which the server does not have."""

ONLY_STREAMS = Subject(
    _FORM,
    r"\bonly (supports? |accepts? )?(the )?stream(ing|s|ed)?\b|\bstream(ing)? (mode )?is (required|mandatory)"
    r"|\bstreaming only\b|\b(set|use|pass|with) ['\"`]?stream['\"`]?( ?[=:] ?| to )['\"`]?true\b"
    r"|\b(enable|requires?) (the )?stream(ing)?\b"
    r"|\bstream\b.{0,20} must be (set to )?true|\b(must|has to|have to) be streamed\b"
    r"|\bnon-?\s?stream(ing|ed|s)?\b.{0,40}(\bnot\b|n't|\bunsupported|\bdisabled)"
    r"|\b(not|n't) (support|allow|accept) non-?\s?stream"
    r"|\bstream\b.{0,30}\bfalse\b.{0,20}(\bnot\b|n't|\bunsupported)"
    r"|\bstream\b.{0,4} does not support false\b"
    r"|\bonly (available|supported) (in|with|via|for|when)\b.{0,12}\bstream|[只仅]支持\s?(流式|stream)",
)
"""Streams, which are all that the server has."""

_TOOLS = r"(tools?( (use|usage|calls?|calling))|tools|function[ -]?(calls?|calling)|functions)"
_ALL_TOOLS = (
    rf"(?<!parallel )(?<!multiple )(?<![\w.]){_TOOLS}['\"`]?( param(eter)?s?)?( with function calling)?"
)
NO_TOOLS = Subject(
    _FORM_OR_TEMPLATE | {404},
    r"(\bnot|\bno longer|n't) (yet |currently |fully )*(support|allow|enable|have) (the |any |native )*"
    rf"{_TOOLS}\b(?! (choice|types?|results?|messages?|names?|of|with|whose|schemas?|in stream))"
    rf"|{_ALL_TOOLS}( (is|are|was|were))?(n't| not| no longer)( yet| currently| fully)? "
    r"(support(ed|ing)?|enabled|available|allowed|implemented)\b"
    rf"|{_ALL_TOOLS}( feature)? (is|are) (unsupported|unavailable|disabled)\b"
    rf"|\b(not capable of|incapable of|unable to use) {_TOOLS}\b|\bno tool support\b"
    r"|\b(unsupported param|argument not supported[\w ]*): tools\b|\btools param requires\b"
    r"|\bauto\W{1,4}tool choice requires\b"
    rf"|\bno (endpoints?|models?|providers?)\b.{{0,20}} that support {_TOOLS}"
    r"|不支持\s?(调用)?(工具|函数|tools?|function)",
    never=r"\bstreaming mode\b",
)
"""Tools, which the model or its server does not have: Ollama ("does not support tools"), OpenAI ("tools is
not supported in this model"), llama.cpp ("tools param requires --jinja flag"), vLLM ("auto tool choice
requires --enable-auto-tool-choice") and OpenRouter ("No endpoints found that support tool use") say it so."""

NO_FORMAT = Subject(
    _FORM,
    r"response[ _]?formats?\b|\bjson[ _-]?(schema|mode)\b|\bstructured[ _-]outputs?\b|\btext\.format\b"
    r"|\bresponse mime type\b",
    never=r"\btools?(\[|\.)\d|\binput_schema\b",
)
"""The form that an answer is to have."""

SPEAKS_OF_TOOLS = Subject(
    _FORM,
    r"(?<![\w.])(tools?|function[ -]?call(s|ing)?|functions)(?!\.?[\w\[])|outil|herramienta|ferramenta"
    r"|werkzeug|strument|narzędzi|verktyg|hulpmiddel|araçlar|công cụ|инструмент|أدوات|टूल|ツール|도구|工具"
    r"|fonction|funci[oó]n|funç|funzion|funktion|funkcj|fonksiyon|функци|関数|함수|函[数數]",
    never=r"\btools?(\[|\.)\d",
)
"""Tools at all, in any of some languages, whatever is said of them."""

SPEAKS_OF_FORMAT = Subject(_FORM, r"json|response_format|text\.format", never=r"\btools?(\[|\.)\d")
"""The form of an answer, by what has no other name in any language, whatever is said of it."""

_FIRST_ROLE: FieldPlace = ("messages", 0, "role")
_MOST_DIGITS = 10
_WRITTEN = re.compile(
    r"(?<![\w$])[A-Za-z_$][\w$]*(?:(?:\.?\[\d+\])?\.[\w$]+|\[\d+\])+"
    r"|\((?:'[^']{1,200}'|\d{1,9})(?:, ?(?:'[^']{1,200}'|\d{1,9})){1,20}\)",
    re.ASCII,
)
"""A place in words, as `messages[2].name`, `messages.2.name` and `('body', 'messages', 2, 'name')`."""


_SPOKEN = frozenset({"code", "type", "message", "msg", "description", "reason", "status"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal: its HTTP status, all that was said, on one line, and the places named beside the words."""

    status: int
    text: str
    places: tuple[FieldPlace, ...] = ()

    @classmethod
    def of(cls, status: int, body: object) -> "Refusal":
        """What a server said in the error that came with this status."""
        texts = list(texts_in(body))
        words = dict.fromkeys([said(body), *(text for key, text in texts if key in _SPOKEN)])
        named = (_place_of(text) for key, text in texts if key in ("param", "field"))
        return cls(status=status, text=on_one_line(words), places=(*named, *locations_in(body)))

    @property
    def all_places(self) -> tuple[FieldPlace, ...]:
        return (*self.places, *(_place_of(found) for found in _WRITTEN.findall(self.text)))

    @property
    def is_of_what_was_sent(self) -> bool:
        """Whether its status is one that is said of what stands in a request."""
        return self.status in _FORM

    @property
    def is_of_the_system_role(self) -> bool:
        """Whether it speaks of system messages, or points at the role of the first message."""
        points = self.is_of_what_was_sent and any(place[-3:] == _FIRST_ROLE for place in self.all_places)
        return points or self.is_of(SYSTEM_ROLE)

    def is_of(self, subject: Subject) -> bool:
        return subject.is_said(self.status, self.text)

    def most_output(self, asked: int) -> int | None:
        """The longest answer in tokens that may be asked for, less than `asked`; None where none is named."""
        return most_output_in(self.text, asked) if self.is_of_what_was_sent else None


def _place_of(text: str) -> FieldPlace:
    """The keys and places in a path as servers write them: `messages[2].name` or `body -> temperature`."""
    parts = (part for part in re.split(r"[^\w$]+", text) if part)
    return tuple(int(part) if part.isdecimal() and len(part) < _MOST_DIGITS else part for part in parts)


def path_of(place: FieldPlace) -> FieldPath:
    return tuple(part for part in place if isinstance(part, str) and not part.isdecimal())


_LIMIT = re.compile(
    r"max_?(completion_?|output_?|new_?)?tokens|maximum tokens|\brequested (completion|output) tokens\b"
    r"|\bmodel\b.{0,80}\b(completion|output) tokens|\b(completion|output) tokens\b.{0,80}\bmodel\b",
    re.IGNORECASE,
)
_ALLOWANCE = re.compile(
    r"\b(monthly|daily|hourly|weekly|quota|tier|per (second|minute|hour|day|month)|allowance|credits?)\b",
    re.IGNORECASE,
)
_LOWER_BOUND = re.compile(
    r"(\b(must|should|has to|have to|needs? to) be (greater|more|larger|higher|bigger|above)\b( than)?"
    r"|\bat least\b|>=|≥|\bminimum\b|\bno less than\b)[^\d]{0,60}(?:\d[\d,]*)",
    re.IGNORECASE,
)
_LEAST_OUTPUT = 16
"""No model's answer is limited to fewer tokens, and OpenAI's own take no smaller limit."""

_BOUND = re.compile(
    r"at most|less than|lower|<=|≤|>|range|maximum|exceed|too (large|high|big)|up to|between|limit",
    re.IGNORECASE,
)

_NUMBER = re.compile(r"(?<![\w.-])(\d{1,3}(?:,\d{3})+|\d+)(?![\w-]|\.\d)( \(exclusive\))?")


def most_output_in(text: str, asked: int) -> int | None:
    """The longest answer in tokens that may be asked for, less than `asked`; None where none is named.

    A number counts where the words are of this limit, and neither of what may be used in a month nor of
    the least that may be asked for.

    Example:
        >>> most_output_in("max_tokens must be at most 8192", 100_000)
        8192
    """
    if _ALLOWANCE.search(text) or not (_LIMIT.search(text) and _BOUND.search(text)):
        return None
    text = _LOWER_BOUND.sub("", text)
    named = ((tokens_in(number) or 0) - bool(exclusive) for number, exclusive in _NUMBER.findall(text))
    return max((number for number in named if _LEAST_OUTPUT <= number < asked), default=None)


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

_ITEM_ID_FIELDS: frozenset[FieldPath] = frozenset({("input", "id")})
_IDS = _ITEM_ID_FIELDS | {("messages", "id")}
_NEEDED_IN_TOOLS = frozenset(
    {"type", "function", "name", "description", "parameters", "properties", "items", "required", "enum"}
    | {"anyOf", "oneOf", "allOf", "$ref", "$defs"}
)
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
    if refusal.is_of(ITEM_IDS) and any("id" in item for item in _objects(sent.get("input"))):
        return _ITEM_ID_FIELDS
    if not refusal.is_of_what_was_sent:
        return frozenset()
    followed = (_followed(path_of(place), sent) for place in refusal.all_places)
    found = frozenset(path for path in followed if path)
    sure = _own(found, refusal.text, sent) | (found & _IDS) | _replaced(refusal.text, sent)
    if not refusal.is_of(UNKNOWN):
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
    found = set(_INSTEAD_OF.findall(text)) & (sent.keys() - _NEEDED - {*_STORE})
    return frozenset((name,) for name in found)


def _of_answers(found: frozenset[FieldPath], refusal: Refusal, sent: Json) -> frozenset[FieldPath]:
    """The fields of what a server answered that this refusal calls invalid: no user asked for them."""
    text = refusal.text
    if not refusal.is_of(INVALID) or refusal.is_of(REASONING_MISSED) or _QUOTES_THE_REQUEST.search(text):
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
            named_by_users = bool(above) and above[-1] in NAMED_BY_USERS
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
    yield from ((name,) for name in sent if name not in _NEEDED)
    for part in _CONVERSATIONS:
        yield from dict.fromkeys(_message_paths(part, sent.get(part)))
    names = dict.fromkeys(keys_in(sent.get("tools")))
    yield from (("tools", name) for name in names if name not in _NEEDED_IN_TOOLS)


def _message_paths(part: str, messages: object) -> Iterator[FieldPath]:
    for message in _objects(messages):
        yield from (path for name in message if (path := _dispensable((part, name))))
        for call in _objects(message.get("tool_calls")):
            yield from (path for name in call if (path := _dispensable((part, "tool_calls", name))))
            for function in _objects([call.get("function")]):
                inner = ((part, "tool_calls", "function", name) for name in function)
                yield from (path for each in inner if (path := _dispensable(each)))


_FORMATS = (("response_format",), ("text", "format"))


def refuses_format(refusal: Refusal, sent: Json) -> bool:
    """Whether it is of the form in which `sent` asks for an agent's answer."""
    if not asks_for_answer(sent) or not (refusal.is_of(UNKNOWN) or refusal.is_of(INVALID)):
        return False
    return refusal.is_of(NO_FORMAT) or _points_at(refusal, _FORMATS)


def may_refuse_format(refusal: Refusal, sent: Json) -> bool:
    """Whether it may be of that form, in whatever language: to be tried without."""
    return asks_for_answer(sent) and (refusal.is_of(SPEAKS_OF_FORMAT) or _points_at(refusal, _FORMATS))


def refuses_tools(refusal: Refusal, sent: Json) -> bool:
    """Whether it is of all the tools in `sent`: the server has none, or does not know the field."""
    if "tools" not in sent:
        return False
    if refusal.is_of(NO_TOOLS):
        return True
    named = ("tools",) in _paths_in(refusal) or _speaks_of("tools", refusal.text)
    return named and refusal.is_of(UNKNOWN)


def may_refuse_tools(refusal: Refusal, sent: Json) -> bool:
    """Whether it may be of all the tools in `sent`, in whatever language: to be tried without."""
    is_of_field = refusal.is_of_what_was_sent and ("tools",) in _paths_in(refusal)
    return "tools" in sent and (is_of_field or refusal.is_of(SPEAKS_OF_TOOLS))


def _points_at(refusal: Refusal, fields: Iterable[FieldPath]) -> bool:
    """Whether a place that it names lies in one of these fields of what was sent."""
    paths = _paths_in(refusal)
    return refusal.is_of_what_was_sent and any(path[: len(each)] == each for path in paths for each in fields)


def _paths_in(refusal: Refusal) -> list[FieldPath]:
    """The paths named, from the body down."""
    paths = map(path_of, refusal.all_places)
    return [path[1:] if path[:1] == ("body",) else path for path in paths]


def refused_words(refusal: Refusal, sent: Json) -> frozenset[str]:
    """The words of tool schemas that this refusal of `sent` names, of those that can be said otherwise."""
    if not (refusal.is_of(UNKNOWN) or refusal.is_of(INVALID)):
        return frozenset()
    placed = {path[-1] for place in refusal.all_places if (path := path_of(place))}
    sayable = WORDS.intersection(keys_in(sent.get("tools")))
    named = frozenset(word for word in sayable if word in placed or _speaks_of(word, refusal.text))
    return named | REFERENCES if named & REFERENCES else named


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _objects(values: object) -> Iterable[Mapping[str, Any]]:
    values = values if isinstance(values, list | tuple) else ()
    return (value for value in values if isinstance(value, Mapping))
