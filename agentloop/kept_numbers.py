"""The numbers that a record may hold: those that every reader has exactly, and that a run can count with."""

import sys
from typing import TypeGuard

MOST_KEPT = 2**53 - 1
"""The largest whole number that all readers of JSON agree on (RFC 8259, section 6; RFC 7493, section 2.2)."""


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
