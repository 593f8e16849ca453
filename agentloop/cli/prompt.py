"""The prompt of one run, from the words of the call and from standard input."""

import os
import re
from dataclasses import dataclass

from agentloop.cli import standard_input
from agentloop.errors import UsageError

_LABEL = "standard_input"
_CLOSING = re.compile(rf"<(?=/?\s*{_LABEL})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the user asks, None to go on with what is pending; `notice` is what the user should know."""

    text: str | None
    notice: str | None = None


def prompt_for(option: str | None, words: tuple[str, ...], *, continues: bool) -> Prompt:
    """Put the prompt together; `continues` says that the call names a session that may have work pending.

    Raises:
        UsageError: there is no prompt, or more than one.
    """
    given = checked_words(option, words)
    if option == "-":
        return Prompt(text=_asked_for())
    if given is None:
        return _from_input(continues=continues)
    if standard_input.is_terminal():
        return Prompt(text=given)
    try:
        return Prompt(text=with_piped(given, standard_input.read_if_it_speaks()))
    except standard_input.SilentInputError:
        return Prompt(text=given, notice=_silent())


def checked_words(option: str | None, words: tuple[str, ...]) -> str | None:
    """The one prompt of the call itself, None where it has none.

    Raises:
        UsageError: it has several, or an empty one.
    """
    if len(words) > 1:
        raise UsageError(f"{words[1]!r} is too many: put the prompt in quotes; --help lists the commands")
    if option is not None and words:
        raise UsageError(f"two prompts, -p and {words[0]!r}: give one")
    given = option if option is not None else (words[0] if words else None)
    given = None if given is None else as_typed(given)
    if given is not None and not given.strip():
        raise UsageError("the prompt is empty: say what to do")
    return given


def as_typed(text: str) -> str:
    """A text of the command line as UTF-8, also where the locale, such as C, had Python take it for ASCII.

    What is no UTF-8 either becomes U+FFFD. Paths are to stay as Python has them: it finds them by that.
    """
    if not any("\udc80" <= char <= "\udcff" for char in text):
        return text
    try:
        return os.fsencode(text).decode("utf-8", "replace")
    except UnicodeEncodeError:  # it holds what no command line can
        return text


def with_piped(prompt: str, piped: str) -> str:
    """The prompt, and what was piped beside it in a labelled block that it cannot close itself."""
    if not piped.strip():
        return prompt
    body = _CLOSING.sub("&lt;", piped.rstrip("\n"))
    return f"{prompt}\n\n<{_LABEL}>\n{body}\n</{_LABEL}>"


def _asked_for() -> str:
    if standard_input.is_terminal():
        raise UsageError("-p - reads a pipe or a file, and standard input is a terminal: pipe the prompt in")
    text = standard_input.read_all()
    if not text.strip():
        raise UsageError("the prompt is empty: standard input ended without one")
    return text


def _from_input(*, continues: bool) -> Prompt:
    if standard_input.is_terminal():
        text = ""
    elif continues:
        try:
            text = standard_input.read_if_it_speaks()
        except standard_input.SilentInputError:
            return Prompt(text=None, notice=_silent())
    else:
        text = standard_input.read_all()
    if text.strip():
        return Prompt(text=text)
    if continues:
        return Prompt(text=None)
    raise UsageError('the prompt is empty: say what to do, e.g. agentloop -p "…", or pipe it in')


def _silent() -> str:
    return (
        f"standard input said nothing for {standard_input.FIRST_WORD_SECONDS:g} s and was left alone "
        "(< /dev/null avoids the wait)"
    )
