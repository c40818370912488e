"""A file of the log can end before it is full: the next one is made ready aside, and no power cut sees two unfinished."""

from __future__ import annotations

import pytest
from log_content import make_batch, read_bodies

from millstream.storage.disk import DiskFault
from millstream.storage.log.files import FOLDER, PREPARED, LogFiles, file_name
from millstream.storage.log.recovery import log_names
from simulation.disk import Mood, PowerCut, SimulatedDisk
from simulation.failpoints import DeadlyFailpoints

FILE_SIZE = 1024
STEPS = [
    "log.before_create",
    "log.after_create",
    "log.after_header",
    "log.after_header_sync",
    "log.after_folder_sync",
]


def make_disk(seed: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_folder(FOLDER)
    return disk


def make_files(disk: SimulatedDisk, failpoints: DeadlyFailpoints | None = None) -> LogFiles:
    return LogFiles(disk, failpoints or DeadlyFailpoints(), FILE_SIZE, 1, 0, salt=7)


def test_a_file_ends_when_it_is_told_to_and_the_next_batch_goes_to_the_next() -> None:
    disk = make_disk()
    files = make_files(disk)
    files.write(make_batch(1, b"a"))
    files.end_file()
    assert files.sealed == [(1, 1)]
    files.write(make_batch(2, b"b"))
    assert log_names(disk) == [file_name(1), file_name(2)]
    assert read_bodies(disk) == [b"a", b"b"]


def test_a_file_that_holds_nothing_does_not_end() -> None:
    disk = make_disk()
    files = make_files(disk)
    files.end_file()
    assert disk.names(FOLDER) == []
    files.write(make_batch(1, b"a"))
    files.end_file()
    files.end_file()
    assert files.sealed == [(1, 1)]
    assert log_names(disk) == [file_name(1), file_name(2)]


def test_batches_go_on_into_the_old_file_while_the_next_is_made_ready() -> None:
    disk = make_disk()
    files = make_files(disk)
    files.write(make_batch(1, b"a"))
    files.prepare()
    files.write(make_batch(2, b"b"))
    assert log_names(disk) == [file_name(1)]
    files.end_file()
    assert files.sealed == [(1, 2)]
    assert PREPARED not in disk.names(FOLDER)


def test_a_torn_batch_in_the_old_file_is_cut_although_the_next_is_ready() -> None:
    disk = make_disk()
    files = make_files(disk)
    files.write(make_batch(1, b"a"))
    files.prepare()
    disk.cut_power_at = disk.steps + 1
    with pytest.raises(PowerCut):
        files.write(make_batch(2, b"b" * 500))
    assert read_bodies(disk.crash())[:1] == [b"a"]


def test_a_full_file_takes_the_one_that_is_ready() -> None:
    disk = make_disk()
    files = make_files(disk)
    files.write(make_batch(1, b"x" * 900))
    files.prepare()
    files.write(make_batch(2, b"y" * 900))
    assert PREPARED not in disk.names(FOLDER)
    assert read_bodies(disk) == [b"x" * 900, b"y" * 900]


def test_a_batch_that_does_not_fit_into_the_one_that_is_ready_gets_one_of_its_own() -> None:
    disk = make_disk()
    files = make_files(disk)
    files.write(make_batch(1, b"a"))
    files.prepare()
    files.write(make_batch(2, b"y" * 5000))
    assert PREPARED not in disk.names(FOLDER)
    assert read_bodies(disk) == [b"a", b"y" * 5000]


def test_a_full_disk_refuses_the_next_file_and_changes_nothing() -> None:
    disk = make_disk()
    files = make_files(disk)
    files.write(make_batch(1, b"a"))
    disk.fill(100)
    with pytest.raises(DiskFault) as caught:
        files.prepare()
    assert caught.value.is_full
    files.write(make_batch(2, b"b"))
    assert read_bodies(disk) == [b"a", b"b"]
    disk.fill(None)
    files.prepare()
    files.end_file()
    assert files.sealed == [(1, 2)]


def test_what_a_killed_process_had_ready_is_made_anew() -> None:
    disk = make_disk()
    files = make_files(disk)
    files.write(make_batch(1, b"a"))
    files.prepare()
    disk = disk.kill()
    again = LogFiles(disk, DeadlyFailpoints(), FILE_SIZE, 2, 0, salt=9)
    again.write(make_batch(2, b"b"))
    again.prepare()
    again.end_file()
    again.write(make_batch(3, b"c"))
    assert read_bodies(disk) == [b"a", b"b", b"c"]


def test_closing_leaves_no_file_that_was_only_made_ready() -> None:
    disk = make_disk()
    files = make_files(disk)
    files.write(make_batch(1, b"a"))
    files.prepare()
    files.close()
    assert disk.names(FOLDER) == [file_name(1)]


@pytest.mark.parametrize("mood", list(Mood))
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_torn", [False, True])
def test_no_power_cut_while_a_file_ends_loses_or_damages_a_batch(
    step: str, mood: Mood, is_torn: bool
) -> None:
    disk = make_disk()
    failpoints = DeadlyFailpoints(step, 2, disk if is_torn else None)
    files = make_files(disk, failpoints)
    files.write(make_batch(1, b"a"))
    confirmed = 1
    try:
        files.prepare()
        files.write(make_batch(2, b"b"))
        confirmed = 2
        files.end_file()
        files.write(make_batch(3, b"c"))
        confirmed = 3
    except PowerCut:
        pass
    else:
        pytest.fail(f"the power was not cut at {step}")
    kept = read_bodies(disk.crash(mood))
    assert kept == [b"a", b"b", b"c"][: len(kept)]
    assert len(kept) >= confirmed
