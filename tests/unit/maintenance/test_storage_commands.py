"""`millstream storage ...` where the system refuses something: a sentence and the next command, as for everything else."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from data_directory import DataDirectory, make_directory
from typer.testing import CliRunner

import millstream.maintenance.survey
import millstream.runtime.disk.checkpoint_lock
import millstream.runtime.disk.data_folder
from millstream.commands.tree import app
from millstream.runtime.disk.checkpoint_lock import hold_checkpoints
from millstream.runtime.disk.data_dir import describe
from millstream.storage.disk import DiskFault

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def made(tmp_path: Path) -> DataDirectory:
    return make_directory(tmp_path / "data")


def fail(error: Exception) -> Callable[..., NoReturn]:
    def refuse(*_given: object) -> NoReturn:
        raise error

    return refuse


def run(made: DataDirectory, command: str) -> str:
    done = CliRunner().invoke(app, ["storage", command, "--set", f"data_dir={made.folder}"])
    assert done.exit_code == 1
    assert "went wrong inside" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("command", ["verify", "inspect", "repair"])
def test_no_room_for_the_lock(made: DataDirectory, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    refused = describe(made.folder / "lock", FULL, "cannot be opened")
    monkeypatch.setattr(millstream.runtime.disk.data_folder, "lock", fail(refused))
    said = run(made, command)
    assert "lock cannot be opened: No space left on device" in said
    assert "next: df -h" in said


@pytest.mark.parametrize("command", ["verify", "inspect", "repair"])
def test_no_lock_of_the_checkpoints(
    made: DataDirectory, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    refused = DiskFault("checkpoint.lock: No space left on device", is_full=True)
    refused.__cause__ = FULL
    monkeypatch.setattr(millstream.runtime.disk.checkpoint_lock, "hold_checkpoints", fail(refused))
    said = run(made, command)
    assert "checkpoint.lock: No space left on device" in said
    assert "next: df -h" in said


def test_a_file_that_the_system_does_not_open(made: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(made.folder / "queues"))
    monkeypatch.setattr(millstream.maintenance.survey, "survey_storage", fail(error))
    said = run(made, "verify")
    assert "queues cannot be used: Too many open files" in said
    assert "next: ulimit -n" in said


def test_a_lock_of_the_checkpoints_that_cannot_be_had_is_a_fault_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.lock").mkdir()
    with pytest.raises(DiskFault, match=r"checkpoint\.lock: Is a directory"), hold_checkpoints(tmp_path):
        pass
