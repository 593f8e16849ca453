"""Whole conversations, each drawn from its seed: dialect, faults, history and cuts."""

import pytest

from tests.fuzz import faults_of

A_FEW = 20
A_THOUSAND = 1_000
TWELFTHS = 12
PARTS = 5
"""So many tests share a twelfth, so that processes can."""
FOUND = [97200162, 97200386, 75677984]
"""A bare 500 asked the same again; a result cut behind two letters; a long request refused for its fields."""


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, A_FEW, 10))
def test_whole_conversations_keep_every_law(first: int) -> None:
    found = faults_of(range(first, first + 10))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("number", FOUND)
def test_what_was_found_once_is_not_found_again(number: int) -> None:
    found = faults_of([number])
    assert not found, "\n".join(found)


@pytest.mark.deep
@pytest.mark.parametrize("part", range(PARTS))
def test_a_thousand_conversations_keep_every_law(part: int, first_seed: int) -> None:
    """A twelfth of the same thousand, by the commit which; new ones are drawn by `python -m tests.fuzz`."""
    found = faults_of(range(A_FEW + first_seed % TWELFTHS, A_THOUSAND, TWELFTHS)[part::PARTS])
    assert not found, "\n".join(found)
