"""What a user gives, held to its range: one clear line names what is wrong.

Each check takes the argument's name and its value. One whose name ends in `_or_none` lets None pass, which
says that there is no limit; every other refuses it, and that is all in which the two of a pair differ. No
check takes True or False for a number.
"""

from math import inf

from agentloop.callables import is_async
from agentloop.errors import UsageError
from agentloop.kept_numbers import is_kept_number

MOST_COUNT = 2**31 - 1
"""The largest count that a database column of four bytes holds."""


def whole(name: str, value: int, least: int, *, most: int | None = None) -> None:
    """Refuse what is no whole number of at least `least`, and at most `most` where that is given.

    Raises:
        UsageError: with the name and the range.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise UsageError(f"{name} must be a whole number {wanted}, not {shown(value)}")


def any_whole(name: str, value: int) -> None:
    """Refuse what is no whole number.

    Raises:
        UsageError: with the name.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} must be a whole number, not {shown(value)}")


def whole_or_none(name: str, value: int | None, least: int, *, most: int | None = None) -> None:
    """The same, None let pass.

    Raises:
        UsageError: with the name and the range.
    """
    if value is not None:
        whole(name, value, least, most=most)


def at_least(name: str, value: float, least: float) -> None:
    """Refuse what is no finite number of at least `least`.

    Raises:
        UsageError: with the name and the range.
    """
    if not (is_kept_number(value) and least <= value):
        raise UsageError(f"{name} must be a number of at least {least:g}, not {shown(value)}")


def at_least_or_none(name: str, value: float | None, least: float) -> None:
    """The same, None let pass.

    Raises:
        UsageError: with the name and the range.
    """
    if value is not None:
        at_least(name, value, least)


def from_to(name: str, value: float, least: float, most: float) -> None:
    """Refuse what is no number from `least` to `most`.

    Raises:
        UsageError: with the name and the range.
    """
    if not (is_kept_number(value) and least <= value <= most):
        raise UsageError(f"{name} must be a number from {least:g} to {most:g}, not {shown(value)}")


def finite(name: str, value: float) -> None:
    """Refuse what is no number that a float has room for.

    Raises:
        UsageError: with the name.
    """
    if not is_kept_number(value):
        raise UsageError(f"{name} must be a finite number, not {shown(value)}")


def above_zero(name: str, value: float) -> None:
    """Refuse what is no number above 0; infinity is one, and says that there is no limit.

    Raises:
        UsageError: with the name and the range.
    """
    if not ((is_kept_number(value) and value > 0) or value == inf):
        raise UsageError(f"{name} must be a number above 0, not {shown(value)}")


def finite_above_zero(name: str, value: float) -> None:
    """Refuse what is no finite number above 0.

    Raises:
        UsageError: with the name and the range.
    """
    if not (is_kept_number(value) and value > 0):
        raise UsageError(f"{name} must be a finite number above 0, not {shown(value)}")


def finite_above_zero_or_none(name: str, value: float | None) -> None:
    """The same, None let pass.

    Raises:
        UsageError: with the name and the range.
    """
    if value is not None:
        finite_above_zero(name, value)


def fraction(name: str, value: float, *, most: float = 1.0) -> None:
    """Refuse a share that is not above 0 and at most `most`.

    Raises:
        UsageError: with the name and the range.
    """
    up_to(name, value, most)


def up_to(name: str, value: float, most: float) -> None:
    """Refuse what is no number above 0 and at most `most`.

    Raises:
        UsageError: with the name and the range.
    """
    if not (is_kept_number(value) and 0 < value <= most):
        raise UsageError(f"{name} must be above 0 and at most {most:g}, not {shown(value)}")


def fraction_or_none(name: str, value: float | None) -> None:
    """Refuse a share that is not above 0 and at most 1, None let pass.

    Raises:
        UsageError: with the name and the range.
    """
    if value is not None:
        fraction(name, value)


def share_below_one(name: str, value: float) -> None:
    """Refuse a share that is not at least 0 and below 1.

    Raises:
        UsageError: with the name and the range.
    """
    if not (is_kept_number(value) and 0 <= value < 1):
        raise UsageError(f"{name} must be at least 0 and below 1, not {shown(value)}")


def text(name: str, value: str) -> None:
    """Refuse what is no text.

    Raises:
        UsageError: with the name.
    """
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a text, not {shown(value)}")


def text_or_none(name: str, value: str | None) -> None:
    """The same, None let pass.

    Raises:
        UsageError: with the name.
    """
    if value is not None:
        text(name, value)


def called(name: str, value: object, wanted: str = "a function of a context and a budget") -> None:
    """Refuse what cannot be called as it is: also a class, which is still to be made, and an async function.

    Raises:
        UsageError: with the name and what is wanted of it.
    """
    if not callable(value) or isinstance(value, type) or is_async(value):
        raise UsageError(f"{name} must be {wanted}, no class and not async, not {shown(value)}")


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
