"""The files of the log are compared with the manifest: what is missing, cut short, older or not ours is a reason not to start."""

from __future__ import annotations

import pytest
from librt.strings import BytesWriter

from millstream.runtime.failpoints import NoFailpoints
from millstream.storage.log import Batch
from millstream.storage.log_files import FOLDER, LogFiles, file_name
from millstream.storage.log_format import append_record
from millstream.storage.log_inventory import check_bounds, read_log
from millstream.storage.manifest import DAMAGED, FOREIGN, MISSING, OLDER, TABLE_FILE, Manifest, ManifestKeeper
from simulation.disk import SimulatedDisk

FILE_SIZE = 4096
BODY = b"x" * 1000


class WrittenLog:
    """Three files with three facts each, closed cleanly."""

    def __init__(self, salt: int = 7) -> None:
        self.disk = SimulatedDisk(1)
        self.disk.make_folder(FOLDER)
        self.keeper = ManifestKeeper(self.disk, Manifest("ab" * 16))
        self.files = LogFiles(self.disk, NoFailpoints(), FILE_SIZE, 1, 0, salt=salt, register=self.keeper)
        self.sequence = 0
        self.olds: list[bytes] = []
        for _ in range(9):
            self.append()
        self.files.close()
        self.keeper.stop(self.sequence)

    def append(self) -> None:
        writer = BytesWriter()
        append_record(writer, 1, BODY)
        self.sequence += 1
        self.files.write(Batch(self.sequence, 1, writer.getvalue()))
        self.olds.append(self.disk.content(file_name(self.files.current())))

    def faults(self, folded_file: int = 0, folded: int = 0) -> list[tuple[str, str]]:
        content = read_log(self.disk, folded_file, self.keeper.manifest)
        check_bounds(self.keeper.manifest, content, folded_file, folded)
        return [(fault.name, fault.kind) for fault in content.faults]


@pytest.fixture
def log() -> WrittenLog:
    made = WrittenLog()
    assert made.files.current() == 3
    assert made.faults() == []
    return made


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_file_that_is_gone_is_missed_until_it_is_folded(log: WrittenLog, number: int) -> None:
    log.disk.remove(file_name(number))
    assert log.faults()[0] == (file_name(number), MISSING)
    last = log.sequence if number == 3 else 3 * number
    assert log.faults(number, last) == []


@pytest.mark.parametrize("size", [0, 20, 1000, FILE_SIZE - 1])
def test_a_file_that_is_empty_or_cut_short_is_named(log: WrittenLog, size: int) -> None:
    for number in (1, 2, 3):
        whole = log.disk.content(file_name(number))
        log.disk.replace(file_name(number), whole[:size])
        assert (file_name(number), DAMAGED) in log.faults()
        log.disk.replace(file_name(number), whole)


def test_a_file_of_another_directory_is_told_by_its_salt(log: WrittenLog) -> None:
    other = WrittenLog(salt=9)
    log.disk.replace(file_name(2), other.disk.content(file_name(2)))
    assert (file_name(2), FOREIGN) in log.faults()


def test_a_file_that_the_manifest_does_not_name_is_not_ours(log: WrittenLog) -> None:
    log.disk.create(file_name(4), 0)
    log.disk.replace(file_name(4), WrittenLog(salt=9).disk.content(file_name(3)))
    assert (file_name(4), FOREIGN) in log.faults()


def test_an_older_copy_of_the_last_file_lacks_its_end(log: WrittenLog) -> None:
    log.disk.replace(file_name(3), log.olds[-2])
    assert (file_name(3), DAMAGED) in log.faults()


def test_an_older_copy_of_another_file_is_damage_that_is_named(log: WrittenLog) -> None:
    log.disk.replace(file_name(2), log.olds[4])
    content = read_log(log.disk, 0, log.keeper.manifest)
    assert not content.faults
    assert "missing" in content.files[1].damage[0].text


def test_a_table_that_ends_before_the_log_begins_is_older_than_it(log: WrittenLog) -> None:
    log.disk.remove(file_name(1))
    log.keeper.note_folded(1, 3)
    log.keeper.doubt(1)  # any change: it is written without the first file
    assert log.faults(1, 3) == []
    assert log.faults(0, 0) == [(TABLE_FILE, OLDER)]
