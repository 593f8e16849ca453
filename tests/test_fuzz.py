"""A thousand whole conversations, each drawn from its seed: dialect, faults, history and cuts."""

import pytest

from tests.fuzz import faults_of

CONVERSATIONS = 1_000
A_TEST = 50


@pytest.mark.parametrize("first", range(0, CONVERSATIONS, A_TEST))
def test_whole_conversations_keep_every_law(first: int) -> None:
    found = faults_of(range(first, first + A_TEST))
    assert not found, "\n".join(found)
