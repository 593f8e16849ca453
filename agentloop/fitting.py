"""Texts shortened to a number of tokens."""

from agentloop._plumbing.truncate import ends
from agentloop.tokens import TokenCounter

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
