"""What the command line says, and its exit statuses, stay as they are."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.nets.commands import FILE, outputs
from tests.nets.frozen import frozen, hold

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def said() -> Mapping[str, Any]:
    """What every call says."""
    return outputs()


@pytest.mark.parametrize("call", frozen(FILE))
def test_no_output_of_a_call_changes_unseen(call: str, said: Mapping[str, Any]) -> None:
    hold(frozen(FILE)[call], said.get(call), call)


def test_every_call_is_held(said: Mapping[str, Any]) -> None:
    hold(list(frozen(FILE)), list(said), "the list of calls")
