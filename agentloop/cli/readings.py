"""What the text of an option stands for; each refuses what stands for nothing, without naming the option."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agentloop.errors import UsageError
from agentloop.redaction import without_credentials
from agentloop.sessions import WhenBusy

APIS = ("chat", "responses")
_ALLOWED = ("write", "shell")
_WHEN_BUSY: Mapping[str, WhenBusy] = {"refuse": "refuse", "wait": "wait", "take-over": "take_over"}
_SHOWN_CHARS = 200


def server(text: str) -> str:
    """The URL of a server, as it stands.

    Raises:
        UsageError: it does not begin with http:// or https://; a password in it is not repeated.
    """
    if text.lower().startswith(("http://", "https://")):
        return text
    raise UsageError(f"{without_credentials(text)!r} is no server: begin it with http:// or https://")


def api(text: str) -> str:
    """The API of that name.

    Raises:
        UsageError: there is none.
    """
    if text in APIS:
        return text
    raise UsageError(f"{text!r} is no API: use {' or '.join(APIS)}")


def when_busy(text: str) -> WhenBusy:
    """The rule of that name, which may also be written as in Python: `take_over`.

    Raises:
        UsageError: there is none.
    """
    word = text.strip().lower().replace("_", "-")
    if word in _WHEN_BUSY:
        return _WHEN_BUSY[word]
    raise UsageError(f"{text!r} is no rule: use refuse, wait or take-over")


def path(text: str) -> Path:
    """The path, a home at its beginning written out: a shell leaves `--option=~/x` and variables as they are.

    Raises:
        UsageError: it is the home of nobody.
    """
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError):
        raise UsageError(f"{_brief(text)!r} is the home of no user: write the path") from None


def folder(text: str) -> Path:
    """The folder, which exists, its links followed.

    Raises:
        UsageError: it does not, or cannot be used.
    """
    named = path(text)
    try:
        if named.is_dir():
            return named.resolve(strict=True)
        fault = "is a file, not a folder" if named.exists() else "is not there"
    except (OSError, ValueError) as error:
        fault = "cannot be used, " + (getattr(error, "strerror", None) or str(error))
    raise UsageError(f"{_brief(text)!r} {fault}: name a folder that exists")


def text_of_file(text: str) -> str:
    """What the file of that name holds.

    Raises:
        UsageError: it cannot be read, or is not in UTF-8.
    """
    file = path(text)
    try:
        return file.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "is no UTF-8 text" if isinstance(error, UnicodeError) else getattr(error, "strerror", error)
        raise UsageError(f"{_brief(text)!r}: {reason}") from error


def allowed(names: Sequence[str]) -> frozenset[str]:
    """What is allowed.

    Raises:
        UsageError: one of the names is none of it.
    """
    for name in names:
        if name not in _ALLOWED:
            raise UsageError(f"{name!r} is nothing to allow: use write or shell")
    return frozenset(names)


def fraction(text: str) -> float | None:
    """The share, above 0 and at most 1; None for `off`.

    Raises:
        UsageError: it is none.
    """
    word = text.strip().lower()
    if word == "off":
        return None
    try:
        share = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"{text!r} is no fraction: use e.g. 0.8, or off")
    return share


def _brief(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
