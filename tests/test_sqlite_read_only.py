"""A SQLite file that cannot be written where it lies: what can be read is, and one line says what cannot."""

import asyncio
import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentloop.events import Described
from agentloop.stores import SQLiteStore
from tests.store_kit import said

LOOKS = """
import asyncio, json, sys
from agentloop.errors import StoreError
from agentloop.events import Described
from agentloop.stores import SQLiteStore

async def seen(call, shown=lambda found: found):
    try:
        return shown(await call)
    except StoreError as error:
        return str(error)

async def main(path):
    store = SQLiteStore(path)
    found = {
        "list": await seen(store.list(), lambda infos: [info.id for info in infos]),
        "read": await seen(store.read("a"), len),
        "check": await seen(store.check()),
        "append": await seen(store.append("a", [Described(title="new")], expect=2)),
        "search": await seen(store.search("zebra"), len),
    }
    print(json.dumps(found))
    await store.close()

asyncio.run(main(sys.argv[1]))
"""
"""Looks into the store at a path."""

READ_ONLY = "the database is read-only: change its rights or choose another store"
NOT_OPENED = "the database cannot be opened: check the rights of the file and its folder"
_DROP_FROM_BOUNDS = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the database lies; what a test takes of its rights comes back."""
    folder = tmp_path / "kept"
    folder.mkdir()
    yield folder
    folder.chmod(0o700)


async def filled(path: Path) -> None:
    """A store with a session that is not in its full-text index."""
    store = SQLiteStore(path)
    await store.append("a", [Described(owner="me"), said("zebra")], expect=0)
    await store.close()


def _heed_rights() -> None:
    """Root, too, is to be kept out by rights: what it runs from here on has no power over them."""
    libc = ctypes.CDLL(None)
    for power in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        libc.prctl(_DROP_FROM_BOUNDS, power, 0, 0, 0)


async def looked(path: Path) -> Any:
    """What another process sees, which heeds the rights of files."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", LOOKS, str(path),
        stdout=subprocess.PIPE, preexec_fn=_heed_rights,
    )  # fmt: skip
    found, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(found)


async def test_a_file_that_cannot_be_written_is_read_and_checked(folder: Path) -> None:
    path = folder / "sessions.db"
    await filled(path)
    path.chmod(0o400)
    says = f"{path}: {READ_ONLY}"
    assert await looked(path) == {"list": ["a"], "read": 2, "check": [], "append": says, "search": says}


async def test_a_place_that_cannot_be_written_is_one_line_and_stays_as_it_is(folder: Path) -> None:
    path = folder / "of it? 100%.db"
    await filled(path)
    path.chmod(0o400)
    folder.chmod(0o500)
    before = path.read_bytes()
    found = await looked(path)
    assert set(map(str, found.values())) <= {f"{path}: {READ_ONLY}", f"{path}: {NOT_OPENED}"}
    assert path.read_bytes() == before
    assert [file.name for file in folder.iterdir()] == [path.name]
