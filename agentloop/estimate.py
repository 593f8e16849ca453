"""How many tokens a text may be, where no vocabulary is to be had."""

import re


def estimate_tokens(text: str) -> int:
    """The tokens of a text from its characters alone, on the high side for ordinary text and code.

    A token is about 4 letters of a word, 2 digits, 2 signs, or one character of any other script; characters
    beyond U+FFFF, such as most emoji, are two, and long runs like base64 are denser than words.
    """
    runs = sum(map(len, _DENSE_RUN.findall(text)))
    return len(_ABOUT_A_TOKEN.findall(text)) + len(_BEYOND_BMP.findall(text)) + runs // 4


_ABOUT_A_TOKEN = re.compile(
    r"""\ ?[A-Z]?[a-z]{1,6} | \ ?[A-Z]{1,3} | \ ?[0-9]{1,2} | \ ?[!-/:-@\[-`{-~]{1,2} | [\ \t]{1,16}
    | [^\ \tA-Za-z0-9!-/:-@\[-`{-~]""",
    re.VERBOSE,
)
_BEYOND_BMP = re.compile(r"[\U00010000-\U0010ffff]")
_DENSE_RUN = re.compile(r"[A-Za-z0-9+/_-]{64,}+")
