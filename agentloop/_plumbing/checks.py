"""What a user gives, held to its range: one clear line names what is wrong.

Each check takes an argument's name and its value, and raises a `UsageError` with the name and the range. One
whose name ends in `_or_none` lets None pass, which says that there is no limit; every other refuses it, and
that is all in which the two of a pair differ. No check takes True or False for a number. `shown` is how
an error shows a value.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Concatenate, ParamSpec, TypeGuard, TypeVar

from agentloop._plumbing.callables import is_async
from agentloop._plumbing.patterns import pattern
from agentloop.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")

MOST_KEPT = 2**53 - 1
"""The largest whole number that all readers of JSON agree on (RFC 8259, section 6; RFC 7493, section 2.2)."""

MOST_COUNT = 2**31 - 1
"""The largest count that a database column of four bytes holds."""


def is_kept_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number from 0 to `MOST_KEPT`; True and False are none.

    Example:
        >>> [is_kept_whole(value) for value in (0, MOST_KEPT, MOST_KEPT + 1, -1, 1.0, True)]
        [True, True, False, False, False, False]
    """
    return isinstance(value, int) and 0 <= value <= MOST_KEPT and not isinstance(value, bool)


def is_kept_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that a float holds: finite, and no larger; True and False are none.

    Example:
        >>> [is_kept_number(value) for value in (-2.5, 7, 1e300, float("nan"), 10**400, True)]
        [True, True, True, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def whole(name: str, value: int, least: int, *, most: int | None = None) -> None:
    """Refuse what is no whole number of at least `least`, and at most `most` where that is given."""
    if not _is_whole(value) or value < least or (most is not None and value > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise UsageError(f"{name} must be a whole number {wanted}, not {shown(value)}")


def any_whole(name: str, value: int) -> None:
    """Refuse what is no whole number."""
    _hold(name, value, "a whole number", so=_is_whole(value))


def finite(name: str, value: float) -> None:
    """Refuse what is no number that a float has room for."""
    _hold(name, value, "a finite number", so=is_kept_number(value))


def at_least(name: str, value: float, least: float) -> None:
    """Refuse what is no finite number of at least `least`."""
    _hold(name, value, f"a number of at least {least:g}", so=is_kept_number(value) and least <= value)


def from_to(name: str, value: float, least: float, most: float) -> None:
    """Refuse what is no number from `least` to `most`."""
    so = is_kept_number(value) and least <= value <= most
    _hold(name, value, f"a number from {least:g} to {most:g}", so=so)


def above_zero(name: str, value: float) -> None:
    """Refuse what is no number above 0; infinity is one, and says that there is no limit."""
    so = (is_kept_number(value) and value > 0) or value == inf
    _hold(name, value, "a number above 0", so=so)


def finite_above_zero(name: str, value: float) -> None:
    """Refuse what is no finite number above 0."""
    _hold(name, value, "a finite number above 0", so=is_kept_number(value) and value > 0)


def up_to(name: str, value: float, most: float) -> None:
    """Refuse what is no number above 0 and at most `most`."""
    so = is_kept_number(value) and 0 < value <= most
    _hold(name, value, f"above 0 and at most {most:g}", so=so)


def fraction(name: str, value: float, *, most: float = 1.0) -> None:
    """Refuse a share that is not above 0 and at most `most`."""
    up_to(name, value, most)


def share_below_one(name: str, value: float) -> None:
    """Refuse a share that is not at least 0 and below 1."""
    _hold(name, value, "at least 0 and below 1", so=is_kept_number(value) and 0 <= value < 1)


def flag(name: str, value: bool) -> None:
    """Refuse what is neither True nor False, such as `"no"`, which would count as True."""
    _hold(name, value, "True or False", so=isinstance(value, bool))


def text(name: str, value: str) -> None:
    """Refuse what is no text."""
    _hold(name, value, "a text", so=isinstance(value, str))


def _or_none(check: Callable[Concatenate[str, T, P], None]) -> Callable[Concatenate[str, T | None, P], None]:
    """The same check, None let pass."""

    def checked(name: str, value: T | None, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if value is not None:
            check(name, value, *args, **kwargs)

    return checked


whole_or_none = _or_none(whole)
at_least_or_none = _or_none(at_least)
finite_above_zero_or_none = _or_none(finite_above_zero)
fraction_or_none = _or_none(fraction)
text_or_none = _or_none(text)


_TOKEN = pattern(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2"""

_OF_THE_CLIENT = frozenset(
    {"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "accept"}
    | {"accept-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
)


def texts_or_none(name: str, value: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """A dict of texts itself, or none at all."""
    fine = value is None or (
        isinstance(value, Mapping) and all(isinstance(each, str) for each in (*value, *value.values()))
    )
    _hold(name, value, "a dict of texts or None", so=fine)
    return value


def headers_or_none(what: str, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The headers, no blanks around their values; `what` is what an error calls them, which shows no value.

    Refuses names and values that cannot be sent, and what the client sets itself.
    """
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise UsageError(f"{what} must be a mapping of names to values, not {shown(headers)}")
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise UsageError(
                f"{what}: bad name {shown(name)}: write one such as X-Team, of letters, digits and -"
            )
        if name.lower() in _OF_THE_CLIENT:
            raise UsageError(f"{what}: {name} is set by the client itself: leave it out")
        if name.lower() in map(str.lower, checked):
            raise UsageError(f"{what}: {name} is given twice")
        if not isinstance(value, str):
            raise UsageError(f"{what}: the value of {name} must be a text, not {type(value).__name__}")
        checked[name] = value.strip(" ")
        if not checked[name]:
            raise UsageError(f"{what}: {name} has no value: give it one or leave it out")
        if not value.isascii() or not value.isprintable():
            raise UsageError(f"{what}: the value of {name} holds characters that no header has")
    return checked


def called(
    name: str, value: object, wanted: str = "a function of a context and a budget", *, such_as: str = ""
) -> None:
    """Refuse what cannot be called as it is: also a class, which is still to be made, and what is async.

    `such_as` is an example of what to write instead.
    """
    if callable(value) and not isinstance(value, type) and not is_async(value):
        return
    example = f"{value.__name__}(…)" if isinstance(value, type) else such_as
    hint = f": write one such as {example}" if example else ""
    raise UsageError(f"{name} must be {wanted}, no class and not async, not {shown(value)}{hint}")


def instance_or_none(name: str, value: object, kind: type) -> None:
    """Refuse what is no object of this class, None let pass."""
    _hold(name, value, f"a {kind.__name__}(…) or None", so=isinstance(value, kind | None))


def several(name: str, values: object, wanted: str) -> None:
    """Refuse what cannot be gone through one by one; a text is one, not several."""
    _hold(name, values, wanted, so=isinstance(values, Iterable) and not isinstance(values, str | bytes))


_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def checked_name(name: str, value: str) -> str:
    """The value itself, a name of 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or a digit."""
    so = isinstance(value, str) and _NAME.fullmatch(value) is not None
    _hold(name, value, "a name of 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or a digit", so=so)
    return value


def _hold(name: str, value: object, wanted: str, *, so: bool) -> None:
    if not so:
        raise UsageError(f"{name} must be {wanted}, not {shown(value)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value as an error shows it: its first 60 characters."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        return repr(value[:60])[:60]
    try:
        return repr(value)[:60]
    except Exception:  # noqa: BLE001 — what is shown is what a user gave: its repr may raise anything
        return f"an object of type {type(value).__name__}"


_MOST_BITS = 190
"""As many as 57 digits take. Python writes no number of more than 4,300, and is slow long before."""
