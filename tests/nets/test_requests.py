"""The bytes that leave: whole requests of every kind, as they arrive at a server."""

import pytest

from tests.nets.frozen import frozen, hold
from tests.nets.requests import CASES, FILE, sent_in

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("case", CASES)
async def test_no_request_changes_unseen(case: str) -> None:
    hold(frozen(FILE)[case], await sent_in(case), case)


def test_every_case_is_held() -> None:
    hold(list(frozen(FILE)), list(CASES), "the list of cases")
