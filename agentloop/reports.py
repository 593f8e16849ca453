"""Which of a provider's counts can be true: each is held against our own and against those before it.

Servers are seen to report nothing, zeros, halves, doubles, the request before, the same number for ever, or
the sum of all requests so far. What cannot be true moves no line: sizes then rest on our own count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

LEAST_RATIO, MOST_RATIO = 0.65, 1.8
"""A provider's count of what we counted lies between these: vocabularies in use differ by less."""

NEAR = 0.02
"""So little may a provider's count over ours change from one request to the next and not be looked into.

A request differs from the one before by its last messages alone, and few of them move the whole so far.
"""

SURE = 1 / 3
"""A lie explains a report where it is off by at most this share of what the truth would be off by.

So a true report is not doubted for being about as near to a lie.
"""

GROWN_TOKENS, GROWN_SHARE = 50, 1 / 20
"""A request that has grown by more than both together has grown, in whatever vocabulary it is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A provider's count of one request, `measured`, beside ours, `counted`; `seq` is where it stands.

    `measured` is 0 where nothing was reported.
    """

    seq: int
    measured: int
    counted: int


def can_be_true(report: Report, told: Sequence[Report], trusted: Report | None) -> bool:
    """Whether sizes may rest on the report.

    `told` holds the last two of the same model before it as they came, oldest first; `trusted` is the last
    one that could be true and still holds, None for none.
    """
    if not _is_near(report):
        return False
    if trusted and _stands_still(report, trusted):
        return False
    if not told:
        return True
    *older, last = told
    return bool(last.measured) and not _is_of_others(report, last, older[-1] if older else None)


def _is_near(report: Report) -> bool:
    return report.counted > 0 and LEAST_RATIO < report.measured / report.counted < MOST_RATIO


def _stands_still(report: Report, trusted: Report) -> bool:
    """Whether the request has grown a lot since then, and the report has not."""
    grown = report.counted - trusted.counted
    return grown > GROWN_TOKENS + int(trusted.counted * GROWN_SHARE) and report.measured <= trusted.measured


def _is_of_others(report: Report, last: Report, older: Report | None) -> bool:
    """Whether it is clearly the count of the request before, or the sum of all: that fits, and it does not.

    A provider's count over ours hardly changes from one request to the next.
    """
    off = _distance(report.measured, report.counted, last.measured, last.counted)
    before = older.measured if older and older.measured < last.measured else 0
    as_sum = _distance(report.measured - last.measured, report.counted, last.measured - before, last.counted)
    as_stale = _distance(report.measured, last.counted, last.measured, older.counted) if older else inf
    return off > NEAR and min(as_sum, as_stale) < off * SURE


def _distance(measured: int, counted: int, measured_before: int, counted_before: int) -> float:
    """How far apart two ratios are, as a share; endless where one is none."""
    if min(measured, counted, measured_before, counted_before) <= 0:
        return inf
    return abs(log(measured / counted) - log(measured_before / counted_before))
