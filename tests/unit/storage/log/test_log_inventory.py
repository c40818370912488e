"""The files of the log are compared with the manifest: what is missing, cut short, older or not ours is a reason not to start."""

from __future__ import annotations

import pytest
from librt.strings import BytesWriter

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.disk import DiskFault
from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.format import BATCH_HEAD_SIZE, FILE_HEADER_SIZE, append_record
from millstream.storage.log.inventory import check_bounds, list_kept, note_ends, read_log
from millstream.storage.log.write_ahead_log import Batch
from millstream.storage.manifest import (
    DAMAGED,
    FOREIGN,
    MISSING,
    NAME,
    NOT_ENDED,
    OLDER,
    RUNNING,
    TABLE_FILE,
    Incomplete,
    Manifest,
    ManifestKeeper,
    find_manifest,
)
from millstream.storage.records import session_records
from millstream.storage.recovery import recover
from simulation.disk import Mood, SimulatedDisk
from simulation.table import SimulatedTable

FILE_SIZE = 4096
BODY = b"x" * 1000


class WrittenLog:
    """Three files with three facts each, closed cleanly; or the first `count` of those facts, not closed yet."""

    def __init__(self, salt: int = 7, count: int = 9) -> None:
        self.disk = SimulatedDisk(1)
        self.disk.make_folder(FOLDER)
        self.keeper = ManifestKeeper(self.disk, Manifest("ab" * 16))
        self.files = LogFiles(self.disk, NoFailpoints(), FILE_SIZE, 1, 0, salt=salt, register=self.keeper)
        self.sequence = 0
        self.olds: list[bytes] = []
        for _ in range(count):
            self.append()
        if count == 9:
            self.stop()

    def stop(self) -> None:
        self.files.close()
        self.keeper.stop(self.sequence, self.files.last_in_file())

    def append(self, body: bytes = BODY) -> None:
        writer = BytesWriter()
        append_record(writer, 1, body)
        self.sequence += 1
        self.files.write(Batch(self.sequence, 1, writer.getvalue()))
        self.olds.append(self.disk.content(file_name(self.files.current())))

    def faults(self, folded_file: int = 0, folded: int = 0) -> list[tuple[str, str]]:
        content = read_log(self.disk, folded_file, folded, self.keeper.manifest)
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
    content = read_log(log.disk, 0, 0, log.keeper.manifest)
    assert not content.faults
    assert "missing" in content.files[1].damage[0].text


def test_a_file_that_got_nothing_because_the_next_batch_was_too_large_for_it_lacks_nothing() -> None:
    log = WrittenLog(count=2)
    log.files.end_file()
    log.append(b"x" * (2 * FILE_SIZE))
    log.stop()
    content = read_log(log.disk, 0, 0, log.keeper.manifest)
    assert [len(found.records) for found in content.files] == [2, 0, 1]
    assert [found.damage for found in content.files] == [[], [], []]
    assert log.faults() == []


def test_a_stop_claims_nothing_for_an_empty_file_behind_one_that_is_damaged() -> None:
    """A start that found the damage wrote nothing, and stopped."""
    log = WrittenLog(count=3)
    log.files.end_file()
    log.disk.flip_bit(file_name(1), 1500)
    content = read_log(log.disk, 0, 0, log.keeper.manifest)
    assert content.files[0].damage
    new = log.keeper.manifest.copy()
    list_kept(content, new)
    log.keeper.write(new)
    note_ends(content, log.keeper.manifest)
    later = LogFiles(log.disk, NoFailpoints(), FILE_SIZE, 3, 0, salt=8, register=log.keeper)
    log.keeper.stop(log.sequence, later.last_in_file())
    assert log.faults() == []


def test_a_table_that_ends_before_the_log_begins_is_older_than_it(log: WrittenLog) -> None:
    log.disk.remove(file_name(1))
    log.keeper.note_folded(1, 3)
    log.keeper.doubt(1)  # any change: it is written without the first file
    assert log.faults(1, 3) == []
    assert log.faults(0, 0) == [(TABLE_FILE, OLDER)]


def test_files_that_an_older_manifest_does_not_name_are_used_where_they_continue_the_log() -> None:
    log = WrittenLog(count=3)
    older = log.keeper.manifest.copy()
    for _ in range(6):
        log.append()
    log.stop()
    log.keeper.manifest = older
    assert log.faults() == []
    content = read_log(log.disk, 0, 0, older)
    assert [notice.name for notice in content.notices] == [NAME, NAME]
    assert [file_name(2) in content.notices[0].what, file_name(3) in content.notices[1].what] == [True, True]
    log.disk.remove(file_name(2))
    assert log.faults() == [(file_name(3), FOREIGN)]  # what is between is missing: nobody knows whose it is


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    "place",
    [5, FILE_HEADER_SIZE + BATCH_HEAD_SIZE + 50, FILE_HEADER_SIZE + 2 * (BATCH_HEAD_SIZE + 1016) + 90],
)
def test_a_flipped_bit_makes_no_stranger_of_a_file_that_continues_the_log(number: int, place: int) -> None:
    log = WrittenLog(count=3)
    older = log.keeper.manifest.copy()
    for _ in range(6):
        log.append()
    log.stop()
    log.keeper.manifest = older
    log.disk.flip_bit(file_name(number), place)
    assert log.faults() == []
    content = read_log(log.disk, 0, 0, older)
    assert [found.name for found in content.files if found.damage] == [file_name(number)]
    assert len(content.notices) == 2


def test_a_file_behind_one_that_is_not_ours_does_not_continue_the_log() -> None:
    log = WrittenLog(count=4)
    older = log.keeper.manifest.copy()  # it names the first two
    for _ in range(5):
        log.append()
    log.stop()
    log.keeper.manifest = older
    log.disk.replace(file_name(2), WrittenLog(salt=9).disk.content(file_name(2)))
    assert log.faults() == [(file_name(2), FOREIGN), (file_name(3), FOREIGN)]


def test_an_older_copy_of_the_last_file_lacks_its_end_also_after_a_crash_that_a_start_has_seen(
    log: WrittenLog,
) -> None:
    """That start knew how far the file goes, and named it."""
    log.keeper.open()
    assert log.keeper.manifest.stopped_at == RUNNING
    assert log.faults() == []
    log.disk.replace(file_name(3), log.olds[-2])
    assert log.faults() == [(file_name(3), DAMAGED)]


def test_a_log_that_ends_before_the_broker_stopped_is_missed_although_no_file_says_its_end(
    log: WrittenLog,
) -> None:
    log.keeper.manifest.logs[3].last = NOT_ENDED
    assert log.faults() == []
    log.disk.replace(file_name(3), log.olds[-2])
    assert log.faults() == [(file_name(3), DAMAGED)]


def test_a_start_refuses_a_log_without_its_end_or_its_beginning_and_changes_nothing() -> None:
    """Whole files, of which nobody says that one is missing: only the bounds do."""
    without_end, without_beginning = WrittenLog(), WrittenLog()
    without_end.keeper.stop(without_end.sequence + 1, 0)
    without_beginning.disk.remove(file_name(1))
    without_beginning.keeper.note_folded(1, 3)
    without_beginning.keeper.doubt(1)  # any change: it is written without the first file
    for log, name in ((without_end, file_name(3)), (without_beginning, TABLE_FILE)):
        before = {each: log.disk.content(each) for each in log.disk.names(FOLDER)}
        with pytest.raises(Incomplete) as caught:
            recover(log.disk, SimulatedTable(), 0, NoFailpoints(), log.keeper)
        assert caught.value.name == name
        assert {each: log.disk.content(each) for each in log.disk.names(FOLDER)} == before


def test_a_start_on_a_full_disk_needs_no_room_for_a_file_that_was_named_and_could_not_be_entered() -> None:
    """The room for the next file of the log was the last there was: the manifest does not know of it."""
    log = WrittenLog(count=0)
    log.append(session_records.encode_session(session_records.SessionFact(1, "default", "c", "", 3600, 0)))
    log.disk.fill(FILE_SIZE)
    with pytest.raises(DiskFault, match=NAME):
        log.files.end_file()
    assert file_name(2) in log.disk.names(FOLDER)
    for disk in (log.disk.kill(), log.disk.crash(Mood.EVERYTHING)):
        manifest = find_manifest(disk)
        assert manifest is not None
        disk.fill(0)
        keeper = ManifestKeeper(disk, manifest)
        assert recover(disk, SimulatedTable(), 0, NoFailpoints(), keeper).next_number == 3
        assert list(keeper.manifest.logs) == [1]
        disk.fill(None)
        keeper.begin_log(3, 5, FILE_SIZE, 0, 0)
        assert (keeper.manifest.last_log, list(keeper.manifest.logs)) == (3, [1, 3])
        disk.remove(file_name(2))  # nobody misses it
        assert read_log(disk, 0, 0, keeper.manifest).faults[0].name == file_name(3)
