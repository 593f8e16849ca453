"""Numbers that a user gives, held to their range: one clear line names what is wrong."""

from agentloop.errors import UsageError


def at_least(name: str, value: float | None, least: float) -> None:
    """Refuse a number below `least`, and what is no number; None says that there is no limit.

    Raises:
        UsageError: with the name and the range.
    """
    if value is not None and not (_is_number(value) and value >= least):
        raise UsageError(f"{name} must be at least {least:g}, not {value!r}")


def whole(name: str, value: int | None, least: int) -> None:
    """Refuse what is no whole number, or below `least`; None says that there is no limit.

    Raises:
        UsageError: with the name and the range.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise UsageError(f"{name} must be a whole number of at least {least}, not {value!r}")


def count(name: str, value: int | None, least: int) -> None:
    """Refuse what is no whole number, or below `least`; None too.

    Raises:
        UsageError: with the name and the range.
    """
    if value is None:
        raise UsageError(f"{name} must be a whole number of at least {least}, not None")
    whole(name, value, least)


def fraction(name: str, value: float, *, above: float = 0.0, most: float = 1.0) -> None:
    """Refuse a share that is not above `above` and at most `most`.

    Raises:
        UsageError: with the name and the range.
    """
    if not (_is_number(value) and above < value <= most):
        raise UsageError(f"{name} must be above {above:g} and at most {most:g}, not {value!r}")


def above_zero(name: str, value: float) -> None:
    """Refuse what is no number above 0.

    Raises:
        UsageError: with the name and the range.
    """
    if not (_is_number(value) and value > 0):
        raise UsageError(f"{name} must be a number above 0, not {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
