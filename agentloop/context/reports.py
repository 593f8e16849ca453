"""A provider's counts of requests: which of them can be true, and what they tell of a server that cuts.

A report is a provider's count of one request. Servers are seen to report nothing, zeros, halves, doubles,
the request before, the same number for ever, or the sum of all requests so far: each is held against our own
count and against those before it (`is_credible`). What cannot be true moves no line: sizes then rest on our
own count.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log

from agentloop._plumbing.amounts import LEAST_WINDOW
from agentloop.events import ModelCalled, Record

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
    """A provider's count of one request, `measured`, beside ours, `counted`; `seq` is where the log has it.

    `measured` is 0 where nothing was reported.
    """

    measured: int
    counted: int
    seq: int = 0

    @property
    def is_near(self) -> bool:
        """Whether it is near our own count, as any that is true."""
        return self.counted > 0 and LEAST_RATIO < self.measured / self.counted < MOST_RATIO


def reported(records: Iterable[Record]) -> Iterator[tuple[str, Report]]:
    """The provider's counts of requests that these records hold."""
    for record in records:
        event = record.event
        if isinstance(event, ModelCalled) and event.purpose == "agent":
            measured = event.usage.input_tokens if event.usage else 0
            yield event.model, Report(seq=record.seq, measured=measured, counted=event.counted)


def is_credible(report: Report, told: Sequence[Report], trusted: Report | None) -> bool:
    """Whether sizes may rest on the report.

    `told` holds the last two of the same model before it as they came, oldest first; `trusted` is the last
    one that could be true and still holds, None for none.
    """
    if not report.is_near or (trusted and _stands_still(report, trusted)):
        return False
    if not told:
        return True
    *older, last = told
    return bool(last.measured) and not _is_of_others(report, last, older[-1] if older else None)


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


FEW_TOKENS = 16
"""Reports that differ by no more are the same."""

BELOW_SHARE = 0.8
"""A report is clearly too small where it is less than this share of what it should be."""

IN_STEP_SHARE = 0.9
"""A report that grew is sound where it is at least this share of what it should be."""

STANDS_SHARE = 1 / 10
"""A report stands still where it grows by no more than this share of what its request grew by."""

CUT_SHARE = 0.45
"""What is left of a prompt that was cut is at least this share of the window: Ollama leaves half of it."""

NEW_TOKENS = 256
"""A report of what is new alone, the rest being cached, may be by so much larger than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCuts:
    """What the reports of requests that grow one after the other tell of a server that cuts them in silence.

    Ollama drops old messages, or half of the prompt, and reports what was left: its reports fall or stand
    still far below what was sent. `window` is then the most that it reported, None while nothing tells of
    one. A server that leaves out what it has cached reports about what is new, and cuts nothing.

    `last` is the newest report, `sound` the newest that grew as its request did, or the first since requests
    last became smaller; `most` is the largest count of the server since then. `near` tells that any report
    was near our own count, `grows` that such grew: one that is right first and never changes is another
    fault. `suspected` tells that one since `sound` looked cut; the next that does tells of the window.
    """

    window: int | None = None
    last: Report = Report(measured=0, counted=0)
    sound: Report = Report(measured=0, counted=0)
    most: int = 0
    near: bool = False
    grows: bool = False
    suspected: bool = False

    def after(self, counted: int, measured: int) -> "PromptCuts":
        """The same with one more request heard of, by our count and by the server's, 0 for no report."""
        report = Report(counted=counted, measured=measured)
        heard = replace(self, last=report, most=max(measured, self.most), near=self.near or report.is_near)
        if not (measured and self.last.measured and counted > self.last.counted):
            return replace(heard, sound=report, most=measured, grows=False, suspected=False)
        if self._has_grown(report):
            if self.sound.is_near and measured < IN_STEP_SHARE * self._ratio * counted:
                return heard
            grows = self.grows or (self.sound.is_near and report.is_near)
            return replace(heard, sound=report, grows=grows, suspected=False)
        if not self._looks_cut(report):
            return heard
        is_found = self.suspected and heard.most >= LEAST_WINDOW
        return replace(heard, suspected=True, window=heard.most if is_found else self.window)

    @property
    def _ratio(self) -> float:
        """The server's count over ours by its last sound report; the least there is where that is none."""
        return self.sound.measured / self.sound.counted if self.sound.is_near else LEAST_RATIO

    def _growth(self, report: Report) -> float:
        """By how much the report of a request that has grown is to be larger than the last."""
        return self._ratio * (report.counted - self.last.counted)

    def _has_grown(self, report: Report) -> bool:
        """Whether the report is larger than the last; else it stands still, or fell."""
        return report.measured - self.last.measured > STANDS_SHARE * self._growth(report)

    def _looks_cut(self, report: Report) -> bool:
        """Whether one that stands still is clearly too small, and not the count of what is new alone."""
        growth, most = self._growth(report), max(report.measured, self.most)
        if report.measured <= max(CUT_SHARE * most, growth / BELOW_SHARE + NEW_TOKENS):
            return False
        any_near = self.near or report.is_near
        is_told = self.grows if any_near else abs(report.measured - self.most) <= FEW_TOKENS
        is_small = report.measured < BELOW_SHARE * min(1.0, self._ratio) * report.counted
        return is_told and is_small and growth > GROWN_TOKENS
