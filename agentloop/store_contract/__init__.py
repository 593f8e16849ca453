"""What every store must do, as checks for the tests of a store of your own.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_store(check: Check) -> None:
        await check(MyStore())

Each check uses session ids that nobody else has, so the store may hold other sessions. A check raises
AssertionError where the store breaks its promise. They need nothing but the store: no pytest. What a store
may have beside the log (`ChecksItself`, `FindsWords`, `KeepsCheckpoints`, `GrantsLeases`, `TellsLeases`) is
checked where it has it.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from agentloop.store_contract import checkpoints, leases, lists, logs, searches, selfchecks, sweeps
from agentloop.store_contract.asserting import Check
from agentloop.store_contract.lists import BAD_IDS
from agentloop.stores.base import (
    ChecksItself,
    FindsWords,
    GrantsLeases,
    KeepsCheckpoints,
    SessionStore,
    TellsLeases,
)

__all__ = ["BAD_IDS", "CHECKS", "Check", "store_contract"]


async def store_contract(make_store: Callable[[], SessionStore]) -> None:
    """Every check on a store of its own, closed after it.

    Raises:
        AssertionError: checks failed; for each a line that begins with its name.
    """
    failed = [line for check in CHECKS if (line := await _failure(check, make_store()))]
    if failed:
        raise AssertionError("\n".join(failed))


async def _failure(check: Check, store: SessionStore) -> str | None:
    """What the check finds wrong, in one line; None for nothing."""
    try:
        await check(store)
    except AssertionError as error:
        return f"{check.__name__}: {error}"
    except Exception as error:  # noqa: BLE001 — a store of somebody's own may raise anything
        return f"{check.__name__}: it raised {type(error).__name__}: {error}"
    finally:
        await store.close()
    return None


def _where(verbs: type, check: Callable[[Any], Awaitable[None]]) -> Check:
    """The check of verbs that a store need not have: one without them passes it."""

    @wraps(check)
    async def checked(store: SessionStore) -> None:
        if isinstance(store, verbs):
            await check(store)

    return checked


CHECKS: tuple[Check, ...] = (
    *logs.CHECKS,
    *lists.CHECKS,
    *sweeps.CHECKS,
    *(_where(ChecksItself, check) for check in selfchecks.CHECKS),
    *(_where(FindsWords, check) for check in searches.CHECKS),
    *(_where(KeepsCheckpoints, check) for check in checkpoints.CHECKS),
    *(_where(GrantsLeases, check) for check in leases.CHECKS),
    *(_where(GrantsLeases, _where(TellsLeases, check)) for check in leases.TELLING_CHECKS),
)
