"""Policies drawn at random: when to compact, what to cover, what stands instead."""

from random import Random

from agentloop.strategies import (
    Blocks,
    ClearResults,
    Digest,
    KeepRecentFraction,
    KeepRecentTurns,
    KeepUserMessages,
    MicroCompact,
    Note,
    RecursiveSummary,
    Reduce,
    SlidingWindow,
    Strategy,
    Summary,
    Tiered,
    TokenWindow,
    TurnWindow,
    first_of,
    replaced_by,
    then,
)
from agentloop.triggers import (
    Buffer,
    Every,
    Headroom,
    Idle,
    NeedsFollowUp,
    On,
    Overflow,
    TokenCount,
    Trigger,
    TurnCount,
    WindowFraction,
    all_of,
    any_of,
)

TRIGGERS: tuple[Trigger, ...] = (
    WindowFraction(),
    WindowFraction(),
    WindowFraction(0.3),
    WindowFraction(1.0),
    TurnCount(1),
    TokenCount(1500),
    Headroom(at=0.9, below=0.05),
    Buffer(),
    Overflow(),
    On("message"),
    On("result"),
    On("compaction"),
    On("request"),
    NeedsFollowUp(),
    Every(1e-6),
    Idle(1e-6),
)
MICROS = (
    MicroCompact(),
    MicroCompact(),
    None,
    MicroCompact(min_gain_tokens=0),
    MicroCompact(keep_messages=0, max_chars=40, min_gain_tokens=100),
)
INSTEAD = (Note(), Digest(max_tokens=200), Digest(max_tokens=2_000), Summary(max_tokens=200))


def trigger(draw: Random) -> Trigger | None:
    """When to compact; None for never before the window is full."""
    one = draw.choice((None, *TRIGGERS))
    if one is None or draw.random() < 0.8:
        return one
    return draw.choice([any_of, all_of])(one, draw.choice(TRIGGERS))


def micro(draw: Random) -> MicroCompact | None:
    """Layer one; None for off."""
    return draw.choice(MICROS)


def strategy(draw: Random) -> Strategy:
    """What is covered, and what stands instead."""
    if draw.random() < 0.75:
        return _simple(draw)
    one, other = _simple(draw), _simple(draw)
    pick = draw.randrange(3)
    if pick == 0:
        return then(one, other)
    return first_of(one, other) if pick == 1 else replaced_by(one, draw.choice(INSTEAD))


def _simple(draw: Random) -> Strategy:
    choices: list[Strategy] = [
        KeepRecentFraction(draw.choice([0, 0.1, 0.3, 0.7])),
        KeepRecentFraction(),
        KeepRecentFraction(),
        SlidingWindow(draw.choice([1, 3, 10])),
        TurnWindow(draw.choice([1, 3])),
        TokenWindow(1_000),
        RecursiveSummary(*draw.choice([(10, 2), (3, 2), (5, 4)])),
        KeepUserMessages(draw.choice([100, 2_000])),
        KeepRecentTurns(draw.choice([1, 2])),
        Blocks(draw.choice([0, 2]), draw.choice([1, 10]), 500),
        Tiered(),
        Tiered(keep=1, chunk_tokens=500),
        Reduce(),
        ClearResults(0, 0),
    ]
    return draw.choice(choices)
