"""L9 and L11: monsters of any script in any place fit the window, in time linear in their size."""

from itertools import cycle
from pathlib import Path

import pytest

from agentloop.compaction.reading import MAX_CHUNKS
from agentloop.context import TokenCounter, counter_for
from agentloop.run import config
from tests.benchmarks.bench_monsters import measured
from tests.monsters_kit import ENDS, PLACES, SCRIPTS, Met, meet, monster, serving

SMALL, LARGE = 300_000, 1_200_000
MOST_AGENTS_OWN = 7
MOST_MB = 1_000
TIMES = {"four results": 4, "four arguments": 4}

BLANK = ("blanks", "newlines")
"""A prompt may not be only these; the server counts each of them, and we count them by dozens."""

DRAWN = [
    (PLACES[(at * 3 + turn) % len(PLACES)], script, ENDS[(at + turn) % len(ENDS)])
    for at, script in enumerate(SCRIPTS)
    for turn in (0, 4)
]
CASES = [(place, "prose", end, True) for place in PLACES for end in ENDS]
CASES += [
    (place, script, end, streams)
    for (place, script, end), streams in zip(DRAWN, cycle([True, False, False, True]))
    if not (place == "prompt" and script in BLANK)
]


async def met(
    place: str, script: str, end: str, folder: Path, size: int, *, streams: bool = True
) -> tuple[Met, list[str], int]:
    """What came of a monster, what the server refused, and how many requests it got."""
    text = monster(script, size)
    with serving(place, text, end) as server:
        seen = await meet(server.url, place, text, folder, end=end, stream=streams)
        return seen, server.refusals, len(server.requests)


@pytest.mark.parametrize(("place", "script", "end", "streams"), CASES)
async def test_l9_a_monster_is_met_and_the_session_goes_on(
    tmp_path: Path, place: str, script: str, end: str, streams: bool
) -> None:
    seen, refusals, requests = await met(place, script, end, tmp_path, SMALL, streams=streams)
    assert len(refusals) <= (2 if script in BLANK else 0), refusals
    assert (seen.first is None) == (place == "prompt")
    assert seen.after == "done"
    assert seen.kept >= (TIMES.get(place, 1) if place != "prompt" else 0)
    # A monster is read in that many parts at the most, and their records once more.
    assert requests <= MOST_AGENTS_OWN + MAX_CHUNKS + 1


@pytest.mark.parametrize("blanks", [10_000, 37_000, 80_000, 300_000])
async def test_l9_results_of_blanks_fit_also_where_a_server_counts_each(tmp_path: Path, blanks: int) -> None:
    seen, refusals, _ = await met("four results", "blanks", "then on", tmp_path, blanks)
    assert refusals == []
    assert (seen.first, seen.after) == ("done", "done")


class Weighing:
    """A counter that adds up how much it was given to count."""

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        self.chars = 0

    def __call__(self, text: str, /) -> int:
        self.chars += len(text)
        return self.counter(text)


@pytest.fixture
def weighing(monkeypatch: pytest.MonkeyPatch) -> Weighing:
    counter = Weighing(counter_for("m"))
    monkeypatch.setattr(config, "counter_for", lambda model: counter)
    return counter


@pytest.mark.parametrize(
    ("place", "script"), [*zip(PLACES, ["base64", "emoji", "JSON", "CJK"] * 2, strict=False)]
)
@pytest.mark.deep
async def test_l11_the_work_on_a_monster_is_linear(
    tmp_path: Path, weighing: Weighing, place: str, script: str
) -> None:
    counted = []
    for size in (SMALL, LARGE):
        weighing.chars = 0
        await met(place, script, "then compacted in vain", tmp_path, size)
        counted.append(weighing.chars)
    assert counted[1] <= counted[0] * (LARGE / SMALL) * 1.1
    assert counted[1] <= LARGE * 4 * TIMES.get(place, 1) + 500_000


@pytest.mark.deep
def test_l11_four_monsters_of_5_mb_take_less_than_1_gb() -> None:
    seen = measured("four arguments", "CJK", "then compacted in vain")
    print(f"{seen['mb']:.0f} MB, {seen['processor']:.1f} s")
    assert seen["refused"] == []
    assert (seen["first"], seen["after"]) == ("answered", "answered")
    assert seen["mb"] < MOST_MB
