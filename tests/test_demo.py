"""The demonstration: what it shows was really run."""

import asyncio
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agentloop.cli.demo import TURNS, WINDOW, run_both
from tests.cli_kit import agentloop
from tests.overflow_picture import PICTURE, draw

NUMBER = re.compile(r"\d+\.\d")


def test_without_compaction_it_dies_of_its_overflow_and_with_it_goes_on() -> None:
    without, with_it = asyncio.run(run_both())
    assert without.turns[-1].died
    assert without.survived < TURNS == with_it.survived
    assert [turn.tokens for turn in without.turns[:5]] == [turn.tokens for turn in with_it.turns[:5]]
    assert max(turn.tokens for turn in with_it.turns) < WINDOW
    assert with_it.turns[-1].compactions >= 2
    assert with_it.transcripts == 1
    assert with_it.facts_in_sight == with_it.user_messages == TURNS


def test_it_needs_no_key_and_no_network(tmp_path: Path) -> None:
    done = agentloop("demo", cwd=tmp_path, env={"https_proxy": "http://127.0.0.1:1"})
    assert done.status == 0, done.err
    for word in ("OVERFLOW", "compactions", f"{TURNS} of {TURNS} turns", f"{TURNS} of {TURNS} facts"):
        assert word in done.out
    assert list(tmp_path.iterdir()) == []


def test_the_picture_of_the_readme_is_what_was_run() -> None:
    drawn, kept = draw(*asyncio.run(run_both())), PICTURE.read_text("utf-8")
    # A transcript's name, which the summary says, is two characters longer where a second holds two of them.
    places = [[float(number) for number in NUMBER.findall(text)] for text in (drawn, kept)]
    assert NUMBER.sub("", drawn) == NUMBER.sub("", kept)
    assert places[0] == pytest.approx(places[1], abs=1)
    texts = [element.text for element in ElementTree.fromstring(drawn).iter() if element.tag.endswith("text")]
    assert texts.count("compacted") == 3
    assert {"the model’s window", "4,000", "without: overflow, the end"} <= set(texts)
