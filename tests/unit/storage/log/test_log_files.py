"""Where batches go: into reserved files, one behind the other; a full disk changes nothing, a bad one ends it."""

from __future__ import annotations

import pytest
from log_content import make_batch, read_bodies

from millstream.storage.disk import DiskFault
from millstream.storage.log.files import FOLDER, LogFiles, LogRegister, file_name, file_number
from millstream.storage.log.format import FILE_HEADER_SIZE
from millstream.storage.log.recovery import log_names
from simulation.deaths import LOG_FAILPOINTS
from simulation.disk import Mood, SimulatedDisk
from simulation.failpoints import DeadlyFailpoints

FILE_SIZE = 1024


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(1)
    disk.make_folder(FOLDER)
    return disk


def make_files(disk: SimulatedDisk, with_sync: bool = True, next_number: int = 1) -> LogFiles:
    return LogFiles(disk, DeadlyFailpoints(), FILE_SIZE, next_number, 0, with_sync)


def test_a_name_gives_its_number_back() -> None:
    assert file_number(file_name(123)) == 123
    assert sorted([file_name(9), file_name(10), file_name(111)]) == [
        file_name(9),
        file_name(10),
        file_name(111),
    ]


def test_no_file_is_made_before_there_is_something_to_write(disk: SimulatedDisk) -> None:
    make_files(disk).close()
    assert disk.names(FOLDER) == []


def test_a_file_is_reserved_whole_and_never_grows(disk: SimulatedDisk) -> None:
    files = make_files(disk)
    files.write(make_batch(1, b"a"))
    assert len(disk.content(file_name(1))) == FILE_SIZE
    disk.fill(0)
    for sequence in range(2, 10):
        files.write(make_batch(sequence, b"b"))
    assert len(disk.content(file_name(1))) == FILE_SIZE


def test_a_batch_is_never_split_over_two_files(disk: SimulatedDisk) -> None:
    files = make_files(disk)
    for sequence in range(1, 6):
        files.write(make_batch(sequence, b"x" * 300))
    assert files.current() == 3
    assert [number for number, _ in files.sealed] == [1, 2]
    assert log_names(disk) == [file_name(1), file_name(2), file_name(3)]
    assert read_bodies(disk) == [b"x" * 300] * 5


def test_a_batch_larger_than_a_file_gets_a_file_of_its_size(disk: SimulatedDisk) -> None:
    files = make_files(disk)
    files.write(make_batch(1, b"small"))
    files.write(make_batch(2, b"x" * 5000, b"y" * 5000))
    files.write(make_batch(4, b"small again"))
    assert files.current() == 3
    assert read_bodies(disk) == [b"small", b"x" * 5000, b"y" * 5000, b"small again"]


def test_a_batch_that_just_fits_stays_in_the_file(disk: SimulatedDisk) -> None:
    files = make_files(disk)
    room = FILE_SIZE - FILE_HEADER_SIZE - 40 - 9
    files.write(make_batch(1, b"x" * room))
    assert files.current() == 1
    assert len(disk.content(file_name(1))) == FILE_SIZE
    files.write(make_batch(2, b""))
    assert files.current() == 2


def test_a_new_run_begins_a_new_file(disk: SimulatedDisk) -> None:
    make_files(disk).write(make_batch(1, b"a"))
    make_files(disk, next_number=2).write(make_batch(2, b"b"))
    assert read_bodies(disk) == [b"a", b"b"]


def test_what_was_written_survives_a_power_cut(disk: SimulatedDisk) -> None:
    files = make_files(disk)
    for sequence in range(1, 8):
        files.write(make_batch(sequence, b"%d" % sequence * 100))
        assert len(read_bodies(disk.crash(Mood.NOTHING))) == sequence


def test_without_a_sync_per_batch_only_synced_ones_survive(disk: SimulatedDisk) -> None:
    files = make_files(disk, with_sync=False)
    files.write(make_batch(1, b"a"))
    files.write(make_batch(2, b"b"))
    assert read_bodies(disk.crash(Mood.NOTHING)) == []
    assert read_bodies(disk.kill()) == [b"a", b"b"]
    files.sync()
    assert read_bodies(disk.crash(Mood.NOTHING)) == [b"a", b"b"]


def test_without_a_sync_per_batch_a_file_is_synced_before_the_next_one_is_used(disk: SimulatedDisk) -> None:
    files = make_files(disk, with_sync=False)
    for sequence in range(1, 5):
        files.write(make_batch(sequence, b"%d" % sequence * 300))
    assert files.sealed == [(1, 2)]
    assert [body[:1] for body in read_bodies(disk.crash(Mood.NOTHING))] == [b"1", b"2"]


def test_closing_syncs(disk: SimulatedDisk) -> None:
    files = make_files(disk, with_sync=False)
    files.write(make_batch(1, b"a"))
    files.close()
    assert read_bodies(disk.crash(Mood.NOTHING)) == [b"a"]


def test_a_sync_with_nothing_to_sync_does_not_touch_the_disk(disk: SimulatedDisk) -> None:
    files = make_files(disk, with_sync=False)
    files.sync()
    files.write(make_batch(1, b"a"))
    files.sync()
    steps = disk.steps
    files.sync()
    assert disk.steps == steps


def test_a_full_disk_leaves_everything_as_it_was(disk: SimulatedDisk) -> None:
    files = make_files(disk)
    files.write(make_batch(1, b"x" * 900))
    disk.fill(FILE_SIZE - 1)
    for _ in range(3):
        with pytest.raises(DiskFault) as caught:
            files.write(make_batch(2, b"y" * 900))
        assert caught.value.is_full
    assert files.current() == 1
    assert files.sealed == []
    disk.fill(None)
    files.write(make_batch(2, b"y" * 900))
    assert read_bodies(disk.crash(Mood.NOTHING)) == [b"x" * 900, b"y" * 900]


@pytest.mark.parametrize("operation", ["create", "write", "sync", "sync_folder"])
def test_a_disk_that_fails_while_a_file_is_made_is_not_called_full(
    disk: SimulatedDisk, operation: str
) -> None:
    files = make_files(disk)
    files.write(make_batch(1, b"x" * 900))
    disk.fail_next(operation)
    with pytest.raises(DiskFault) as caught:
        files.write(make_batch(2, b"y" * 900))
    assert not caught.value.is_full
    assert caught.value.is_sync == operation.startswith("sync")
    assert read_bodies(disk.crash(Mood.NOTHING)) == [b"x" * 900]


def test_room_that_is_missing_behind_the_header_is_waited_for(disk: SimulatedDisk) -> None:
    """A file system that copies on write may be full although the room was reserved."""
    files = make_files(disk)
    files.write(make_batch(1, b"x" * 900))
    disk.fail_next("write", is_full=True)
    with pytest.raises(DiskFault) as caught:
        files.write(make_batch(2, b"y" * 900))
    assert caught.value.is_full
    files.write(make_batch(2, b"y" * 900))
    assert read_bodies(disk) == [b"x" * 900, b"y" * 900]


class ListOfFiles(LogRegister):
    def __init__(self) -> None:
        self.numbers: list[int] = []

    def begin_log(self, number: int, salt: int, size: int, ended: int, last: int) -> None:
        self.numbers.append(number)


def test_every_step_has_its_failpoint(disk: SimulatedDisk) -> None:
    failpoints = DeadlyFailpoints()
    register = ListOfFiles()
    files = LogFiles(disk, failpoints, FILE_SIZE, 1, 0, register=register)
    files.write(make_batch(1, b"a"))
    assert tuple(failpoints.seen) == LOG_FAILPOINTS
    assert register.numbers == [1]
