"""What a server says that it refuses of a request's form, in the words of many servers.

Some name a field in `param`, some in `loc` as pydantic does, some in a path such as
`messages[2].reasoning_content`, and some in their sentence alone.
"""

import re
from dataclasses import dataclass

from agentloop.openai_api.error_bodies import (
    FieldPath,
    Place,
    locations_in,
    on_one_line,
    said,
    texts_in,
)
from agentloop.openai_api.named_limits import most_output_in

_FORM = frozenset({400, 422})
_SPOKEN = frozenset({"code", "type", "message", "msg", "description", "reason", "status"})

_UNKNOWN = re.compile(
    r"\bun(supported|known|recogni[sz]ed|expected|available)|\b(for|pro)(bidden|hibited)\b|_forbidden\b"
    r"|\b(dis|un)allowed\b|\bincompatible\b|\bobsolete\b|\bdeprecated\b"
    r"|\b(replaced|superseded) (by|with)\b|\brenamed to\b"
    r"|\b(not|no longer) (an? |be |yet |currently )*(support(ed)?|permitted|allowed|accepted|recogni[sz]ed|"
    r"known|enabled|available|implemented|valid|used|specified|set)\b"
    r"|\b(must|may|should) not be (given|included|passed|present|provided|sent)\b"
    r"|\bcannot be (set|used|specified|changed|modified|provided|passed|included)\b"
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
    re.IGNORECASE,
)
_INVALID = re.compile(r"\b(invalid|illegal|bad|malformed|not valid|not from)\b", re.IGNORECASE)
_ITEM_IDS = re.compile(r"required 'reasoning' item|item with id .{0,200} not found", re.IGNORECASE)
_REASONING_WANTED = re.compile(
    r"reasoning_content\W.{0,80}\b(missing|required|must be (passed|provided|present|included|returned|set))"
    r"|\b(missing|requires?|without)\W.{0,60}\breasoning_content\b",
    re.IGNORECASE,
)
_SYSTEM_ROLE = (
    r"(?:['\"`“]?\b(?:system|developer)['\"`”]? (?:roles?|messages?|prompts?|instructions?)\b"
    r"|\broles?\W{1,4}(?:system|developer)\b)"
)
_SYSTEM = re.compile(
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
    r"|不支持\s?['\"`“]?(system|developer|系统(消息|提示|角色))",
    re.IGNORECASE,
)
_PART = re.compile(
    r"\b(unsupported|unknown|unrecogni[sz]ed|invalid|unexpected) (content )?part( type)?\b"
    r"|\b(unsupported|unknown|invalid) content\[\]\.type\b"
    r"|\bcontent\b.{0,30}\b(must|should|has to) be (a |an? valid |of type )*str(ing)?\b"
    r"|\bonly\W{1,3}text\b.{0,40}\b(supported|allowed|accepted|permitted)\b",
    re.IGNORECASE,
)
_BY_TURNS = re.compile(r"roles must alternate", re.IGNORECASE)
_OPTIONAL_SYSTEM = re.compile(r"optional system", re.IGNORECASE)
_CALL_ID = re.compile(
    r"\btool[ _-]?(call|use)s?(\[\d+\]|\.\d+)?[ _.-]?ids?\b|\b(function[ _-]?)?call[ _-]?ids?\b",
    re.IGNORECASE,
)
_FORM_OF_AN_ID = re.compile(
    r"\bpattern\b|\btoo long\b|\blength\b|\bcharacters?\b|\bletters\b|\bregular expression\b|\balphanumeric\b"
    r"|\binvalid\b|\bformat\b|\bmust (be|match|have|begin|start)\b",
    re.IGNORECASE,
)
_NO_FORM_OF_AN_ID = re.compile(
    r"\brespon(se|d|ses|ding)\b|\bfollowed\b|\bpreced|\bnot found\b|\brequired\b|\bmissing\b|\bduplicate",
    re.IGNORECASE,
)
_NINE = re.compile(
    r"\blength (of |must be |exactly )?9\b|\b9 (alphanumeric|letters|characters)\b|\{9\}", re.IGNORECASE
)
_NO_STREAMS = re.compile(
    r"(?<!non-)(?<!non )\bstream(ing|ed|s| mode| requests?)\b.{0,40}(\bnot\b|n't|\bunsupported|\bdisabled)"
    r"|(\bnot|n't) (support|allow|accept|permit|offer).{0,40}\bstream(s|ing| mode)\b"
    r"|\bstream\b['\"`]?(\s?[:=]\s?|\s(set to )?)['\"`]?true\b.{0,20}(\bnot\b|n't|\bunsupported|\bdisabled)"
    r"|\bstream\b.{0,20} must be (set to )?false|\b(cannot|can't) (be )?stream(ed)?\b"
    r"|\bonly (supports? )?(the )?non-?\s?stream|\bdisable (the )?stream|不支持\s?流式",
    re.IGNORECASE,
)
_ONLY_STREAMS = re.compile(
    r"\bonly (supports? |accepts? )?(the )?stream(ing|s|ed)?\b|\bstream(ing)? (mode )?is (required|mandatory)"
    r"|\bstreaming only\b|\b(set|use|pass|with) ['\"`]?stream['\"`]?( ?[=:] ?| to )['\"`]?true\b"
    r"|\b(enable|requires?) (the )?stream(ing)?\b"
    r"|\bstream\b.{0,20} must be (set to )?true|\b(must|has to|have to) be streamed\b"
    r"|\bnon-?\s?stream(ing|ed|s)?\b.{0,40}(\bnot\b|n't|\bunsupported|\bdisabled)"
    r"|\b(not|n't) (support|allow|accept) non-?\s?stream"
    r"|\bstream\b.{0,30}\bfalse\b.{0,20}(\bnot\b|n't|\bunsupported)"
    r"|\bstream\b.{0,4} does not support false\b"
    r"|\bonly (available|supported) (in|with|via|for|when)\b.{0,12}\bstream|[只仅]支持\s?(流式|stream)",
    re.IGNORECASE,
)
_FIRST_ROLE: Place = ("messages", 0, "role")
_MOST_DIGITS = 10
_WRITTEN = re.compile(
    r"(?<![\w$])[A-Za-z_$][\w$]*(?:(?:\.?\[\d+\])?\.[\w$]+|\[\d+\])+"
    r"|\((?:'[^']{1,200}'|\d{1,9})(?:, ?(?:'[^']{1,200}'|\d{1,9})){1,20}\)",
    re.ASCII,
)
"""A place in words, as `messages[2].name`, `messages.2.name` and `('body', 'messages', 2, 'name')`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal: its HTTP status, all that was said, on one line, and the places named beside the words."""

    status: int
    text: str
    places: tuple[Place, ...] = ()

    @classmethod
    def of(cls, status: int, body: object) -> "Refusal":
        """What a server said in the error that came with this status."""
        texts = list(texts_in(body))
        words = dict.fromkeys([said(body), *(text for key, text in texts if key in _SPOKEN)])
        named = (_place_of(text) for key, text in texts if key in ("param", "field"))
        return cls(status=status, text=on_one_line(words), places=(*named, *locations_in(body)))

    @property
    def paths(self) -> tuple[FieldPath, ...]:
        """The fields named beside the words."""
        return tuple(map(_path_in, self.places))

    @property
    def all_places(self) -> tuple[Place, ...]:
        """The places named beside the words and in them."""
        return (*self.places, *(_place_of(found) for found in _WRITTEN.findall(self.text)))

    @property
    def all_paths(self) -> tuple[FieldPath, ...]:
        """The fields named beside the words, and by a path in them."""
        return tuple(map(_path_in, self.all_places))

    @property
    def is_of_what_was_sent(self) -> bool:
        """Whether its status is one that is said of what stands in a request."""
        return self.status in _FORM

    @property
    def is_of_the_form(self) -> bool:
        """Whether it speaks of something in the request that the server does not know or take."""
        return self.is_of_what_was_sent and bool(_UNKNOWN.search(self.text))

    @property
    def is_of_something_invalid(self) -> bool:
        """Whether it calls something in the request invalid: a field, or the value that it has."""
        return self.is_of_what_was_sent and bool(_INVALID.search(self.text))

    @property
    def is_of_item_ids(self) -> bool:
        """Whether an item is looked for by its id, or what belongs to that id: another server gave it."""
        return self.status in (400, 404) and bool(_ITEM_IDS.search(self.text))

    @property
    def wants_reasoning(self) -> bool:
        """Whether reasoning is missed in a message that never had any: another server made it, as a rule."""
        return self.status in _FORM and bool(_REASONING_WANTED.search(self.text))

    @property
    def is_of_the_system_role(self) -> bool:
        """Whether the server, or the template of its model, knows no system messages."""
        if self.status in _FORM and any(path[-3:] == _FIRST_ROLE for path in self.all_places):
            return True
        return self.status in (*_FORM, 500) and refuses_system(self.text)

    @property
    def is_of_a_part(self) -> bool:
        """Whether a kind of part of a message's content is not known, or none but text is."""
        return self.status in (*_FORM, 500) and refuses_a_part(self.text)

    @property
    def is_of_call_ids(self) -> bool:
        """Whether ids of calls have a form that the server does not take: another made them, as a rule."""
        return self.status in (*_FORM, 500) and refuses_call_ids(self.text)

    @property
    def wants_nine_letters(self) -> bool:
        """Whether ids of exactly nine characters are asked for."""
        return bool(_NINE.search(self.text))

    @property
    def is_of_streams(self) -> bool:
        """Whether the server does not stream."""
        return self.status in _FORM and bool(_NO_STREAMS.search(self.text))

    @property
    def wants_streams(self) -> bool:
        """Whether the server does nothing but stream."""
        return self.status in _FORM and bool(_ONLY_STREAMS.search(self.text))

    def most_output(self, asked: int) -> int | None:
        """The longest answer in tokens that may be asked for, less than `asked`; None where none is named."""
        return most_output_in(self.text, asked) if self.status in _FORM else None


def refuses_system(text: str) -> bool:
    """Whether these are the words of a server, or of a model's template, that knows no system messages.

    One that wants user and assistant by turns, which they are, takes the system message for one of them.
    """
    by_turns = _BY_TURNS.search(text) and not _OPTIONAL_SYSTEM.search(text)
    return bool(by_turns or _SYSTEM.search(text))


def refuses_a_part(text: str) -> bool:
    """Whether these words are of a kind of part that a message's content may not have."""
    return bool(_PART.search(text))


def refuses_call_ids(text: str) -> bool:
    """Whether these words are of the form of a call's id, and not of a call or a result that is missing."""
    return bool(_CALL_ID.search(text) and _FORM_OF_AN_ID.search(text) and not _NO_FORM_OF_AN_ID.search(text))


def _place_of(text: str) -> Place:
    """The keys and places in a path as servers write them: `messages[2].name` or `body -> temperature`."""
    parts = (part for part in re.split(r"[^\w$]+", text) if part)
    return tuple(int(part) if part.isdecimal() and len(part) < _MOST_DIGITS else part for part in parts)


def _path_in(place: Place) -> FieldPath:
    return tuple(part for part in place if isinstance(part, str) and not part.isdecimal())
