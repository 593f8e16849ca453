"""The prompt of one run, from the words of the call and from standard input."""

import os
import re
from dataclasses import dataclass, replace

from agentloop.cli import standard_input
from agentloop.cli.standard_input import Heard
from agentloop.errors import UsageError

_LABEL = "standard_input"
_CLOSING = re.compile(rf"<(?=/?\s*{_LABEL})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the user asks, None to go on with what is pending; `notices` are what the user should know."""

    text: str | None
    notices: tuple[str, ...] = ()


def prompt_for(
    option: str | None, words: tuple[str, ...], *, continues: bool, call: str = "agentloop -p"
) -> Prompt:
    """Put the prompt together; `continues` says that the call names a session that may have work pending.

    `call` is what a prompt is written behind.

    Raises:
        UsageError: there is no prompt, or more than one.
    """
    given = checked_words(option, words)
    if option == "-":
        return _prompt(_asked_for())
    if given is None:
        return _from_input(call, continues=continues)
    typed = Heard(text=given, notice=_misread(option or words[0]))
    if standard_input.is_terminal():
        return _prompt(typed)
    try:
        piped = standard_input.read_if_it_speaks()
    except standard_input.SilentInputError:
        return _prompt(typed, _silent())
    return _prompt(replace(typed, text=with_piped(given, piped.text)), piped.notice)


def _prompt(heard: Heard, *more: str | None) -> Prompt:
    return Prompt(text=heard.text, notices=tuple(notice for notice in (heard.notice, *more) if notice))


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


def _misread(typed: str) -> str | None:
    """That the prompt of the call was not to be read whole, where that is so."""
    if "\ufffd" in typed or "\ufffd" not in as_typed(typed):
        return None
    return "the prompt is not in UTF-8: � stands for each byte that cannot be read"


def with_piped(prompt: str, piped: str) -> str:
    """The prompt, and what was piped beside it in a labelled block that it cannot close itself."""
    if not piped.strip():
        return prompt
    body = _CLOSING.sub("&lt;", piped.rstrip("\n"))
    return f"{prompt}\n\n<{_LABEL}>\n{body}\n</{_LABEL}>"


def _asked_for() -> Heard:
    if standard_input.is_terminal():
        raise UsageError("-p - reads a pipe or a file, and standard input is a terminal: pipe the prompt in")
    heard = standard_input.read_all()
    if not heard.text.strip():
        raise UsageError("the prompt is empty: standard input ended without one")
    return heard


def _from_input(call: str, *, continues: bool) -> Prompt:
    heard = Heard(text="")
    if not standard_input.is_terminal():
        try:
            heard = standard_input.read_if_it_speaks() if continues else standard_input.read_all()
        except standard_input.SilentInputError:
            return Prompt(text=None, notices=(_silent(),))
    if heard.text.strip():
        return _prompt(heard)
    if continues:
        return Prompt(text=None)
    raise UsageError(f'the prompt is empty: say what to do, e.g. {call} "…", or pipe it in')


def _silent() -> str:
    return (
        f"standard input said nothing for {standard_input.FIRST_WORD_SECONDS:g} s and was left alone "
        "(< /dev/null avoids the wait)"
    )
