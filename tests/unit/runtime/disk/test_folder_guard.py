"""A data directory that is taken away under a running broker is noticed, however it is done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from millstream.runtime.disk.folder_guard import FolderGuard


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "log").mkdir(parents=True)
    (folder / "state").mkdir()
    (folder / "state" / "data.mdb").touch()
    (folder / "lock").touch()
    return folder


def test_what_is_there_is_not_lost(data_dir: Path) -> None:
    guard = FolderGuard(data_dir)
    (data_dir / "log" / "1.log").touch()
    (data_dir / "state" / "data.mdb").write_text("changed")
    assert guard.find_loss() == ""


@pytest.mark.parametrize("part", ["log", "state", "state/data.mdb", "lock", "."])
def test_a_part_that_was_removed_is_named(data_dir: Path, part: str) -> None:
    guard = FolderGuard(data_dir)
    path = data_dir / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert guard.find_loss().endswith("was removed while the broker runs")


def test_a_folder_that_was_replaced_is_named(data_dir: Path) -> None:
    guard = FolderGuard(data_dir)
    (data_dir / "log").rename(data_dir / "log.old")
    (data_dir / "log").mkdir()
    assert guard.find_loss() == f"{data_dir}/log was replaced while the broker runs"


def test_what_was_not_there_is_guarded_once_it_is(tmp_path: Path) -> None:
    guard = FolderGuard(tmp_path)
    assert guard.find_loss() == ""
    (tmp_path / "queues").mkdir()
    assert guard.find_loss() == ""
    (tmp_path / "queues").rmdir()
    assert guard.find_loss() == f"{tmp_path}/queues was removed while the broker runs"
