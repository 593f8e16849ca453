"""Where a SQLite file lies: behind symbolic links, beside the log of a database that is gone."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from agentloop.errors import StoreError
from agentloop.stores import SQLiteStore
from tests.store_kit import said


async def log_beside(database: Path, folder: Path) -> Path:
    """The log of a database whose writer was killed, put where that of `database` would be."""
    written, log = folder / "written.db", database.with_name(f"{database.name}-wal")
    store = SQLiteStore(written)
    await store.append("a", [said("one")], expect=0)
    shutil.copy(written.with_name(f"{written.name}-wal"), log)
    await store.close()
    return log


async def test_a_lost_database_is_no_empty_one(tmp_path: Path) -> None:
    """Nothing that reads takes it for one, and nothing is made or deleted."""
    harmed = tmp_path / "harmed.db"
    log = await log_beside(harmed, tmp_path)
    before, opened = log.read_bytes(), SQLiteStore(harmed)
    for make_empty in (None, harmed.touch):
        if make_empty:
            make_empty()
        for call in (opened.list(), opened.read("a"), opened.info("a"), opened.delete("a"), opened.sweep()):
            with pytest.raises(StoreError, match=rf"^{harmed}: the database is gone or empty, [^\n]+$"):
                await call
        (fault,) = await opened.check()
        assert "the database is gone or empty" in fault
    assert log.read_bytes() == before


async def test_a_log_behind_a_symbolic_link_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    harmed, link = tmp_path / "data/real.db", tmp_path / "link.db"
    link.symlink_to(harmed)
    log = await log_beside(harmed, tmp_path)
    harmed.touch()
    before, opened = log.read_bytes(), SQLiteStore(link)
    for call in (opened.list(), opened.append("new", [said("new")], expect=0)):
        with pytest.raises(
            StoreError, match=rf"^{link}: the database is gone or empty, but not its log {log}: "
        ):
            await call
    assert log.read_bytes() == before


async def test_a_link_to_nothing_is_read_as_nothing_and_made_its_owners_alone(tmp_path: Path) -> None:
    target, link = tmp_path / "data/real.db", tmp_path / "link.db"
    link.symlink_to(target)
    store = SQLiteStore(link)
    assert await store.list() == ()
    assert not target.parent.exists()
    umask = os.umask(0o022)
    try:
        await store.append("s", [said("one")], expect=0)
    finally:
        os.umask(umask)
    assert {stat.S_IMODE(each.stat().st_mode) for each in target.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700
    again = SQLiteStore(target)
    assert await again.append("s", [said("two")], expect=1) == 2
    assert len(await store.read("s")) == 2
    await again.close()
    await store.close()


async def test_a_link_that_names_another_file_meanwhile_is_noticed(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "one.db")
    store = SQLiteStore(link)
    await store.append("s", [said("one")], expect=0)
    link.unlink()
    (tmp_path / "two.db").touch()
    link.symlink_to(tmp_path / "two.db")
    with pytest.raises(StoreError, match="moved or replaced while in use"):
        await store.append("s", [said("two")], expect=1)
    await store.close()
