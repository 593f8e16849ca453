"""The demonstration: what it shows was really run."""

import asyncio
from pathlib import Path

from agentloop.cli.demo import TURNS, WINDOW, conversation
from agentloop.compaction import Compaction
from tests.cli_kit import agentloop


def test_without_compaction_it_dies_of_its_overflow_and_with_it_goes_on() -> None:
    without = asyncio.run(conversation(None))
    with_it = asyncio.run(conversation(Compaction(tool=False)))
    assert without.turns[-1].died
    assert without.survived < TURNS == with_it.survived
    assert [turn.tokens for turn in without.turns[:5]] == [turn.tokens for turn in with_it.turns[:5]]
    assert max(turn.tokens for turn in with_it.turns) < WINDOW
    assert with_it.turns[-1].compactions == with_it.transcripts >= 2
    assert with_it.facts_in_sight == with_it.user_messages == TURNS


def test_it_needs_no_key_and_no_network(tmp_path: Path) -> None:
    done = agentloop("demo", cwd=tmp_path, env={"https_proxy": "http://127.0.0.1:1"})
    assert done.status == 0, done.err
    for word in ("OVERFLOW", "compactions", f"{TURNS} of {TURNS} turns", f"{TURNS} of {TURNS} facts"):
        assert word in done.out
    assert list(tmp_path.iterdir()) == []
