"""What the kernel tells of a folder: names that go, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from millstream.runtime.disk.folder_watch import FolderWatch, open_folder_watch


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[FolderWatch]:
    found = open_folder_watch(tmp_path)
    if found is None:
        pytest.skip("there is no inotify here")
    found.listen(asyncio.get_running_loop())
    found.has_changed = False
    yield found
    found.close()


async def poll() -> None:
    """Turns of the loop in which it has asked for what is ready."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_nobody_has_looked_before_the_watch_began(tmp_path: Path) -> None:
    watch = open_folder_watch(tmp_path)
    if watch is not None:
        assert watch.has_changed
        watch.close()


async def test_a_file_that_is_made_and_written_changes_nothing(watch: FolderWatch, tmp_path: Path) -> None:
    (tmp_path / "1.log").write_bytes(b"x")
    await poll()
    assert not watch.has_changed


async def test_a_file_that_is_removed_is_told_each_time(watch: FolderWatch, tmp_path: Path) -> None:
    for name in ("1.log", "2.log"):
        (tmp_path / name).write_bytes(b"x")
        (tmp_path / name).unlink()
        await poll()
        assert watch.has_changed
        watch.has_changed = False
        await poll()
        assert not watch.has_changed


async def test_a_file_that_is_renamed_or_moved_away_is_told(watch: FolderWatch, tmp_path: Path) -> None:
    (tmp_path / "1.log").write_bytes(b"x")
    (tmp_path / "1.log").rename(tmp_path / "2.log")
    await poll()
    assert watch.has_changed


async def test_a_folder_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    assert open_folder_watch(tmp_path / "none") is None
    (tmp_path / "file").write_bytes(b"")
    assert open_folder_watch(tmp_path / "file") is None
