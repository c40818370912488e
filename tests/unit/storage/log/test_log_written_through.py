"""Small batches that are synced one by one find blocks that were written before; nothing else is written twice."""

from __future__ import annotations

import pytest
from log_content import make_batch, read_bodies

from millstream.storage.disk import DiskFault, DiskFile
from millstream.storage.log.files import FILL_SIZE, FOLDER, SMALL_BATCH, LogFiles, file_name
from millstream.storage.log.format import FILE_HEADER_SIZE
from simulation.disk import Mood, SimulatedDisk
from simulation.failpoints import DeadlyFailpoints

FILE_SIZE = 4 * FILL_SIZE


class WatchedFile(DiskFile):
    def __init__(self, disk: WatchedDisk, file: DiskFile) -> None:
        self._disk = disk
        self._file = file

    def write_at(self, offset: int, data: bytes) -> None:
        is_zeros = not data.strip(b"\0")
        if is_zeros and self._disk.refuses_zeros:
            raise DiskFault("no zeros", is_full=True)
        self._disk.writes.append((offset, offset + len(data), is_zeros))
        self._file.write_at(offset, data)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, size)

    def sync(self) -> None:
        self._file.sync()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class WatchedDisk(SimulatedDisk):
    """Knows the writes of the files made on it: from where to where, and whether there was anything but zeros."""

    def __init__(self) -> None:
        super().__init__(1)
        self.writes: list[tuple[int, int, bool]] = []
        self.refuses_zeros = False
        self.make_folder(FOLDER)

    def create(self, name: str, size: int) -> DiskFile:
        return WatchedFile(self, super().create(name, size))

    def zeros(self) -> list[tuple[int, int]]:
        return [(start, end) for start, end, is_zeros in self.writes if is_zeros]

    def data(self) -> list[tuple[int, int]]:
        return [(start, end) for start, end, is_zeros in self.writes if not is_zeros]


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


def make_files(disk: WatchedDisk, file_size: int = FILE_SIZE, with_sync: bool = True) -> LogFiles:
    return LogFiles(disk, DeadlyFailpoints(), file_size, 1, 0, with_sync)


def test_the_blocks_behind_a_small_batch_are_written_through_and_used_by_the_next_ones(
    disk: WatchedDisk,
) -> None:
    files = make_files(disk)
    sequence = 0
    while len(disk.zeros()) < 3:
        sequence += 1
        files.write(make_batch(sequence, b"x" * 5000))
    ends = [end for _, end in disk.data()[1:]]  # without the head of the file
    first, second, third = disk.zeros()
    assert first == (ends[0], ends[0] + FILL_SIZE)
    for before, after in ((first, second), (second, third)):
        beyond = next(end for end in ends if end > before[1])  # the first batch that did not fit into it
        assert after == (beyond, beyond + FILL_SIZE)
    assert read_bodies(disk) == [b"x" * 5000] * sequence


def test_a_large_batch_writes_nothing_but_itself(disk: WatchedDisk) -> None:
    files = make_files(disk)
    files.write(make_batch(1, b"x" * SMALL_BATCH))
    assert disk.zeros() == []


def test_nothing_is_written_behind_the_end_of_a_file(disk: WatchedDisk) -> None:
    size = FILL_SIZE // 2
    files = make_files(disk, size)
    files.write(make_batch(1, b"a"))
    files.end_file()
    files.write(make_batch(2, b"b"))
    assert [end for _, end in disk.zeros()] == [size, size]  # each file anew
    assert [len(disk.content(file_name(number))) for number in (1, 2)] == [size, size]


def test_a_file_that_is_just_full_is_left_as_it_is(disk: WatchedDisk) -> None:
    room = 1024 - FILE_HEADER_SIZE - 40 - 9
    make_files(disk, 1024).write(make_batch(1, b"x" * room))
    assert disk.data()[-1][1] == 1024
    assert disk.zeros() == []


def test_without_a_sync_for_each_batch_nothing_is_written_through(disk: WatchedDisk) -> None:
    make_files(disk, with_sync=False).write(make_batch(1, b"a"))
    assert disk.zeros() == []


def test_nothing_is_written_through_where_none_is_wanted(disk: WatchedDisk) -> None:
    LogFiles(disk, DeadlyFailpoints(), FILE_SIZE, 1, 0, fill_size=0).write(make_batch(1, b"a"))
    assert disk.zeros() == []


def test_a_batch_whose_blocks_could_not_be_written_through_is_written_again(disk: WatchedDisk) -> None:
    files = make_files(disk)
    disk.refuses_zeros = True
    with pytest.raises(DiskFault, match="no zeros"):
        files.write(make_batch(1, b"a"))
    disk.refuses_zeros = False
    files.write(make_batch(1, b"a"))
    files.write(make_batch(2, b"b"))
    assert read_bodies(disk) == [b"a", b"b"]


@pytest.mark.parametrize("mood", list(Mood))
def test_power_that_goes_leaves_what_was_synced_whatever_became_of_the_zeros(
    disk: WatchedDisk, mood: Mood
) -> None:
    files = make_files(disk)
    files.write(make_batch(1, b"a"))
    files.put(make_batch(2, b"b" * 100))
    assert read_bodies(disk.crash(mood))[0] == b"a"
