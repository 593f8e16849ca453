"""Wrong arguments are told alike by every store, before anything is touched."""

from collections.abc import Awaitable, Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import UsageError
from agentloop.stores.base import Checkpoint
from tests import store_kit
from tests.store_kit import AnyStore, CheckpointingStore, lease, said

VAST = 10**5000
"""More digits than Python writes."""


store = store_kit.store

Call = Callable[[Any], Awaitable[object]]

CALLS: list[tuple[Call, str]] = [
    (lambda s: s.append("s", [said()], expect=None), "expect must be a whole number, not None"),
    (lambda s: s.append("s", [said()], expect="0"), "expect must be a whole number, not '0'"),
    (lambda s: s.append("s", [said()], expect=0.0), r"expect must be a whole number, not 0\.0"),
    (lambda s: s.append("s", [], expect=False), "expect must be a whole number, not False"),
    (lambda s: s.append("s", [said()], expect=nan), "expect must be a whole number, not nan"),
    (lambda s: s.append(VAST, [said()], expect=0), "bad session id a number of 16610 bits"),
    (lambda s: s.read("s", after=1.5), r"after must be a whole number, not 1\.5"),
    (lambda s: s.read("s", after=1.0), r"after must be a whole number, not 1\.0"),
    (lambda s: s.read("s", after=None), "after must be a whole number, not None"),
    (lambda s: s.read("s", after=True), "after must be a whole number, not True"),
    (lambda s: s.read("s", most=-VAST), "most must be a whole number of at least 0, not a number of"),
    (lambda s: s.read(None), "bad session id None: use 1 to 128"),
    (lambda s: s.info(Path("s")), r"bad session id PosixPath\('s'\)"),
    (lambda s: s.delete([VAST]), "bad session id an object of type list"),
    (lambda s: s.list(folder=5), "folder must be a text, not 5"),
    (lambda s: s.list(folder=Path("/x")), "folder must be a text, not PosixPath"),
    (lambda s: s.list(folder=b"/x"), "folder must be a text, not b'/x'"),
    (lambda s: s.list(owner=VAST), "bad owner a number of"),
    (lambda s: s.list(owner=5), "bad owner 5: use 1 to 200"),
    (lambda s: s.sweep(now=VAST), "now must be a finite number, not a number of"),
    (lambda s: s.sweep(owner="\n"), r"bad owner '\\n'"),
    (lambda s: s.search("x", folder=Path("/x")), "folder must be a text, not PosixPath"),
    (lambda s: s.search("x", owner=""), "bad owner ''"),
    (lambda s: s.search("x", session_id=".."), "bad session id '..'"),
    (lambda s: s.search("x", most=0), "most must be a whole number of at least 1, not 0"),
    (lambda s: s.search(VAST), "text must be the words to search for, not a number of"),
    (lambda s: s.take_lease("s", lease(), seconds=nan), "seconds must be a number above 0"),
    (lambda s: s.take_lease("s", lease(), seconds=1, over=5), "over must be a text, not 5"),
    (lambda s: s.free_lease("s", None), "holder must be a text, not None"),
    (lambda s: s.free_lease("s", 5), "holder must be a text, not 5"),
]


async def test_a_wrong_argument_is_told_alike_by_every_store(store: AnyStore) -> None:
    for call, says in CALLS:
        with pytest.raises(UsageError, match=f"^{says}"):
            await call(store)
    assert await store.list() == ()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"holder": None}, "holder of a lease must be a text, not None"),
        ({"place": 5}, "place of a lease must be a text, not 5"),
        ({"started": b"1"}, "started of a lease must be a text, not b'1'"),
        ({"pid": 2**31}, "pid of a lease must be a whole number from 0 to 2147483647, not 2147483648"),
        ({"pid": VAST}, "pid of a lease must be a whole number from 0 to 2147483647, not a number of"),
        ({"pid": -1}, "pid of a lease must be a whole number from 0"),
        ({"pid": 1.5}, "pid of a lease must be a whole number from 0"),
        ({"since": nan}, "since of a lease must be a number from 0 to"),
        ({"since": inf}, "since of a lease must be a number from 0 to"),
        ({"since": 1e300}, "since of a lease must be a number from 0 to"),
        ({"since": VAST}, "since of a lease must be a number from 0 to"),
    ],
)
def test_a_lease_that_no_store_could_hold_is_none(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=f"^{says}"):
        lease(**bad)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"seq": 2**70}, "seq of a checkpoint must be a whole number from 0 to"),
        ({"seq": -1}, "seq of a checkpoint must be a whole number from 0 to"),
        ({"seq": True}, "seq of a checkpoint must be a whole number from 0 to"),
        ({"seq": "x"}, "seq of a checkpoint must be a whole number from 0 to"),
        ({"event_id": None}, "event_id of a checkpoint must be a text, not None"),
        ({"body": b"{}"}, "body of a checkpoint must be a text, not b"),
    ],
)
def test_a_checkpoint_that_no_store_could_hold_is_none(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=f"^{says}"):
        Checkpoint(**({"seq": 1, "event_id": "e", "body": "{}"} | bad))


@pytest.mark.parametrize("call", [lambda s: s.checkpoint(".."), lambda s: s.drop_checkpoint("")])
async def test_a_checkpoint_is_asked_for_by_a_session_id(call: Call) -> None:
    with pytest.raises(UsageError, match="bad session id"):
        await call(CheckpointingStore())


async def test_events_that_come_one_by_one_are_written(store: AnyStore) -> None:
    events: Any = (said(text) for text in ("one", "two"))
    assert await store.append("s", events, expect=0) == 2
    assert len(await store.read("s")) == 2
