"""A damaged size is told from a write that was cut short: by the batches behind it, or by marks where not each was synced."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from log_content import make_batch

from millstream.storage.disk import DiskFault, DiskFile
from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.format import BATCH_HEAD_SIZE
from millstream.storage.log.recovery import RecoveredFile, log_names, read_file
from simulation.disk import Mood, PowerCut, SimulatedDisk, SimulatedFile
from simulation.failpoints import DeadlyFailpoints

SIZE_AT = 8  # of the size in the head of a batch
SALT = 4711


def make_disk() -> SimulatedDisk:
    disk = SimulatedDisk(1)
    disk.make_folder(FOLDER)
    return disk


def make_files(disk: SimulatedDisk, with_sync: bool, file_size: int = 4096) -> LogFiles:
    return LogFiles(disk, DeadlyFailpoints(), file_size, 1, 0, with_sync, SALT)


def bodies(found: RecoveredFile) -> list[bytes]:
    return [record.body for record in found.records]


def write_numbers(files: LogFiles, first: int, end: int) -> list[int]:
    """One batch each; where their heads begin."""
    starts: list[int] = []
    for number in range(first, end):
        files.write(make_batch(number, b"%d" % number * 20))
        starts.append(
            files.place()[0] - len(make_batch(number, b"%d" % number * 20).records) - BATCH_HEAD_SIZE
        )
    return starts


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("with_sync", [True, False])
def test_a_flipped_size_in_the_middle_costs_its_own_batch_and_is_named(
    with_sync: bool, is_last: bool
) -> None:
    disk = make_disk()
    files = make_files(disk, with_sync)
    starts = write_numbers(files, 1, 6)
    files.sync()
    write_numbers(files, 6, 7)  # brings the mark, where there are marks
    for bit in range(32):
        disk.flip_bit(file_name(1), starts[2] + SIZE_AT + bit // 8, bit % 8)
        found = read_file(disk, file_name(1), is_last)
        disk.flip_bit(file_name(1), starts[2] + SIZE_AT + bit // 8, bit % 8)
        assert bodies(found) == [b"%d" % number * 20 for number in (1, 2, 4, 5, 6)], bit
        assert [(damage.start, damage.end) for damage in found.damage] == [(starts[2], starts[3])]
        assert found.cut_at == -1


def test_what_was_not_yet_synced_ends_where_its_first_hole_is() -> None:
    disk = make_disk()
    files = make_files(disk, with_sync=False)
    write_numbers(files, 1, 4)
    files.sync()
    starts = write_numbers(files, 4, 9)
    data = disk.content(file_name(1))
    for begin in (starts[2], starts[2] + SIZE_AT, starts[2] + BATCH_HEAD_SIZE + 3):
        disk.replace(file_name(1), data[:begin] + bytes(50) + data[begin + 50 :])
        found = read_file(disk, file_name(1), True)
        assert bodies(found) == [b"%d" % number * 20 for number in range(1, 6)]
        assert found.damage == []
        assert found.cut_at == starts[2]


def test_a_hole_before_a_mark_is_damage_and_not_the_end() -> None:
    disk = make_disk()
    files = make_files(disk, with_sync=False)
    starts = write_numbers(files, 1, 6)
    files.sync()
    write_numbers(files, 6, 8)
    data = disk.content(file_name(1))
    disk.replace(file_name(1), data[: starts[1]] + bytes(60) + data[starts[1] + 60 :])
    found = read_file(disk, file_name(1), True)
    assert bodies(found) == [b"%d" % number * 20 for number in (1, 3, 4, 5, 6, 7)]
    assert len(found.damage) == 1
    assert found.cut_at == -1


class WatchedFile(SimulatedFile):
    on_sync: Callable[[], None] | None = None

    def sync(self) -> None:
        super().sync()
        if self.on_sync is not None:
            self.on_sync()


class WatchedDisk(SimulatedDisk):
    """Somebody writes while a sync is under way: it covers nothing of that."""

    file: WatchedFile

    def create(self, name: str, size: int) -> DiskFile:
        super().create(name, size).close()
        self.file = WatchedFile(self, name, self._find(name))
        return self.file


def test_a_mark_speaks_of_what_was_written_before_the_sync_began_only() -> None:
    disk = WatchedDisk(1)
    disk.make_folder(FOLDER)
    files = make_files(disk, with_sync=False)
    write_numbers(files, 1, 3)
    meanwhile: list[int] = []
    disk.file.on_sync = lambda: meanwhile.extend(write_numbers(files, 3, 4))
    files.sync()
    disk.file.on_sync = None
    write_numbers(files, 4, 6)
    data = disk.content(file_name(1))
    hole = meanwhile[0] + 3
    disk.replace(file_name(1), data[:hole] + bytes(10) + data[hole + 10 :])
    found = read_file(disk, file_name(1), True)
    assert bodies(found) == [b"1" * 20, b"2" * 20]
    assert found.damage == []
    assert found.cut_at == meanwhile[0]


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_between_syncs_leaves_everything_up_to_some_batch(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(seed)
    disk.make_folder(FOLDER)
    files = make_files(disk, False, chance.choice((1024, 8192)))
    safe = 0
    count = chance.randrange(1, 60)
    for number in range(1, count + 1):
        files.write(make_batch(number, b"%d;" % number * chance.randrange(1, 200)))
        if chance.random() < 0.1:
            files.sync()
            safe = number
    crashed = disk.crash(chance.choice(list(Mood)))
    names = log_names(crashed)
    found = [read_file(crashed, name, name == names[-1]) for name in names]
    sequences = [int(record.sequence) for file in found for record in file.records]
    assert sequences == list(range(1, len(sequences) + 1))
    assert safe <= len(sequences) <= count
    assert [damage.sentence() for file in found for damage in file.damage] == []


def test_a_file_is_whole_before_the_next_one_has_its_name() -> None:
    """Only the last one may end in what was never synced; the power goes just when the next has its name."""
    disk = make_disk()
    files = LogFiles(disk, DeadlyFailpoints("log.after_folder_sync", 2), 1024, 1, 0, False, SALT)
    with pytest.raises(PowerCut):
        write_numbers(files, 1, 100)
    crashed = disk.crash(Mood.NOTHING)
    assert log_names(crashed) == [file_name(1), file_name(2)]
    found = read_file(crashed, file_name(1), False)
    assert found.damage == []
    assert len(found.records) == files.place()[1]


def test_nothing_is_written_behind_a_sync_that_failed() -> None:
    disk = make_disk()
    files = make_files(disk, False, 1024)
    write_numbers(files, 1, 4)
    disk.fail_next("sync")
    with pytest.raises(DiskFault):
        files.sync()
    before = disk.content(file_name(1))
    for size in (1, 2000):  # one that fits, and one that needs a new file
        with pytest.raises(DiskFault) as caught:
            files.write(make_batch(4, b"x" * size))
        assert caught.value.is_sync
    assert disk.content(file_name(1)) == before
    assert log_names(disk) == [file_name(1)]
