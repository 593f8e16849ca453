"""What a server says that it refuses of a request's form, in the words of many servers.

Some name a field in `param`, some in `loc` as pydantic does, some in a path such as
`messages[2].reasoning_content`, and some in their sentence alone.
"""

import re
from dataclasses import dataclass

from agentloop.openai_api.error_bodies import FieldPath, locations_in, on_one_line, said, texts_in
from agentloop.openai_api.numbers import tokens_in

_FORM = frozenset({400, 422})
_SPOKEN = frozenset({"code", "type", "message", "msg", "description", "reason", "status"})

_UNKNOWN = re.compile(
    r"\bun(supported|known|recogni[sz]ed|expected)|_forbidden\b|\bforbidden\b"
    r"|\b(not|no longer) (be )?(yet |currently )?(supported?|permitted|allowed|accepted|recogni[sz]ed|"
    r"enabled|available|implemented|valid|used|specified|set)\b"
    r"|n't (supported|allowed|permitted)\b"
    r"|\b(do(es)?n't|do(es)? not|cannot) (support|accept|allow|know|use)\b"
    r"|\bextra (inputs?|fields?|param|properties|keys?)|\badditional propert|\bno such (field|param|argument)"
    r"|\bcannot find field\b|\bdeprecated\b|\bremove\b|\bonly the default\b|must be verified"
    r"|\bonly \d+(\.\d+)? is (allowed|supported|accepted)\b"
    r"|不支持|不允许|无法识别|(未知|多余)的?(参数|字段)",
    re.IGNORECASE,
)
_REASONING = re.compile(
    r"invalid_encrypted_content|encrypted content .{0,200} could not be"
    r"|required following item|required 'reasoning' item|item with id .{0,200} not found",
    re.IGNORECASE | re.DOTALL,
)
_REASONING_WANTED = re.compile(
    r"reasoning_content\W.{0,80}\b(missing|required|must be (passed|provided|present|included|returned|set))"
    r"|\b(missing|requires?|without)\W.{0,60}\breasoning_content\b",
    re.IGNORECASE,
)
_SYSTEM = re.compile(
    r"\b(system|developer) (role|messages?|prompts?|instructions?)\b.{0,40}"
    r"((\bnot|n't) (yet |be )*(supported|accepted|enabled|available|allowed(?! to))\b|\bunsupported)"
    r"|\b(not|n't) support (the )?['\"`]?(system|developer)"
    r"(['\"`]| (role|messages?|prompts?|instructions?)\b)"
    r"|\b(unsupported|unexpected).{0,20}\brole\b.{0,20}\b(system|developer)\b"
    r"|\bunknown variant `(system|developer)`|'developer' is not one of"
    r"|\bonly user,? (and )?assistant\b.{0,20}role"
    r"|不支持\s?['\"`“]?(system|developer|系统(消息|提示|角色))",
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
    r"\bstream(ing| mode)\b.{0,40}(\bnot\b|n't|\bunsupported)"
    r"|(\bnot|n't) support.{0,40}\bstream(s|ing| mode)\b|不支持\s?流式",
    re.IGNORECASE,
)
_ONLY_STREAMS = re.compile(
    r"only supports? (the )?stream|stream(ing)? (mode )?is required|enable the stream\b"
    r"|\bstream\b.{0,20} must be (set to )?true|[只仅]支持\s?(流式|stream)",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"max_?(completion_?|output_?|new_?)?tokens|maximum tokens"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal: its HTTP status, all that was said, on one line, and the fields named beside the words."""

    status: int
    text: str
    paths: tuple[FieldPath, ...] = ()

    @classmethod
    def of(cls, status: int, body: object) -> "Refusal":
        """What a server said in the error that came with this status."""
        texts = list(texts_in(body))
        words = dict.fromkeys([said(body), *(text for key, text in texts if key in _SPOKEN)])
        named = (path_of(text) for key, text in texts if key in ("param", "field"))
        return cls(status=status, text=on_one_line(words), paths=(*named, *locations_in(body)))

    @property
    def is_of_what_was_sent(self) -> bool:
        """Whether its status is one that is said of what stands in a request."""
        return self.status in _FORM

    @property
    def is_of_the_form(self) -> bool:
        """Whether it speaks of something in the request that the server does not know or take."""
        return self.is_of_what_was_sent and bool(_UNKNOWN.search(self.text))

    @property
    def is_of_reasoning(self) -> bool:
        """Whether reasoning is not taken back: another server made it, as a rule."""
        return self.status in (400, 404) and bool(_REASONING.search(self.text))

    @property
    def wants_reasoning(self) -> bool:
        """Whether reasoning is missed in a message that never had any: another server made it, as a rule."""
        return self.status in _FORM and bool(_REASONING_WANTED.search(self.text))

    @property
    def is_of_the_system_role(self) -> bool:
        """Whether the server, or the template of its model, knows no system messages."""
        return self.status in (*_FORM, 500) and refuses_system(self.text)

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
        """The longest answer in tokens that may be asked for, less than `asked`; None where none is named.

        A number counts where the words are of this limit, and neither of what may be used in a month nor of
        the least that may be asked for.
        """
        if self.status not in _FORM or _ALLOWANCE.search(self.text):
            return None
        if not (_LIMIT.search(self.text) and _BOUND.search(self.text)):
            return None
        text = _LOWER_BOUND.sub("", self.text)
        named = ((tokens_in(number) or 0) - bool(exclusive) for number, exclusive in _NUMBER.findall(text))
        return max((number for number in named if _LEAST_OUTPUT <= number < asked), default=None)


def refuses_system(text: str) -> bool:
    """Whether these are the words of a server, or of a model's template, that knows no system messages.

    One that wants user and assistant by turns, which they are, takes the system message for one of them.
    """
    by_turns = _BY_TURNS.search(text) and not _OPTIONAL_SYSTEM.search(text)
    return bool(by_turns or _SYSTEM.search(text))


def refuses_call_ids(text: str) -> bool:
    """Whether these words are of the form of a call's id, and not of a call or a result that is missing."""
    return bool(_CALL_ID.search(text) and _FORM_OF_AN_ID.search(text) and not _NO_FORM_OF_AN_ID.search(text))


def path_of(text: str) -> FieldPath:
    """The keys in a path as servers write them, such as `messages[2].name` or `body -> temperature`."""
    return tuple(part for part in re.split(r"[^\w$]+", text) if part and not part.isdecimal())
