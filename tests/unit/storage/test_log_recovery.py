"""What a start makes of the log: torn ends are cut, damage is named, nothing is ever made up."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from millstream.runtime.disk_files import RealDisk
from millstream.runtime.failpoints import NoFailpoints
from millstream.storage.log import Batch
from millstream.storage.log_files import FOLDER, LogFiles, file_name
from millstream.storage.log_format import FILE_HEADER_SIZE, append_record
from millstream.storage.log_recovery import RecoveredFile, read_file

from librt.strings import BytesWriter  # isort: skip

FILE_SIZE = 16 * 1024
FLIPS = 3000


def make_batch(first: int, count: int) -> tuple[Batch, list[tuple[int, int, bytes]]]:
    writer = BytesWriter()
    facts: list[tuple[int, int, bytes]] = []
    for sequence in range(first, first + count):
        body = b"fact %d " % sequence * (sequence % 7 + 1)
        append_record(writer, sequence % 14 + 1, body)
        facts.append((sequence, sequence % 14 + 1, body))
    return Batch(first, count, writer.getvalue()), facts


class Written:
    """One log file with batches of several sizes, and where each of them ends."""

    def __init__(self, folder: Path) -> None:
        self.disk = RealDisk(folder)
        self.disk.make_folder(FOLDER)
        files = LogFiles(self.disk, NoFailpoints(), FILE_SIZE, 1, 0)
        self.facts: list[tuple[int, int, bytes]] = []
        self.path = folder / file_name(1)
        self.ends: list[tuple[int, int]] = []  # where a batch ends, how many facts there are by then
        end = FILE_HEADER_SIZE
        for count in (1, 5, 2, 30, 1, 12, 3):
            batch, facts = make_batch(len(self.facts) + 1, count)
            files.write(batch)
            self.facts += facts
            end += 40 + len(batch.records)
            self.ends.append((end, len(self.facts)))
        files.close()
        self.used = end
        self.data = self.path.read_bytes()

    def read(self, data: bytes, is_last: bool = True) -> RecoveredFile:
        self.path.write_bytes(data)
        return read_file(self.disk, file_name(1), is_last)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def as_facts(found: RecoveredFile) -> list[tuple[int, int, bytes]]:
    return [(int(record.sequence), int(record.kind), record.body) for record in found.records]


def test_what_was_written_is_read_back(written: Written) -> None:
    found = written.read(written.data)
    assert as_facts(found) == written.facts
    assert not found.damage
    assert found.cut_at == -1


def test_wherever_the_last_file_ends_the_whole_batches_before_it_come_back(written: Written) -> None:
    for length in range(FILE_HEADER_SIZE, written.used):
        found = written.read(written.data[:length])
        whole = max((count for end, count in written.ends if end <= length), default=0)
        assert as_facts(found) == written.facts[:whole], length
        assert not found.damage


def test_zeros_after_a_torn_write_change_nothing(written: Written) -> None:
    for length in range(written.ends[-2][0], written.used):
        torn = written.data[:length] + bytes(len(written.data) - length)
        found = written.read(torn)
        assert as_facts(found) == written.facts[: written.ends[-2][1]] or torn == written.data


def test_a_flipped_bit_is_found_and_no_wrong_fact_comes_out(written: Written) -> None:
    chance = random.Random(7)
    true_facts = set(written.facts)
    last_batch_at = written.ends[-2][0]
    for _ in range(FLIPS):
        at = chance.randrange(written.used)
        data = bytearray(written.data)
        data[at] ^= 1 << chance.randrange(8)
        found = written.read(bytes(data))
        assert set(as_facts(found)) <= true_facts
        lost = len(true_facts) - len(found.records)
        if at < FILE_HEADER_SIZE - 4:  # the last four are padding
            assert found.damage
        elif FILE_HEADER_SIZE <= at < last_batch_at:
            assert lost > 0
            assert found.damage
            assert all(damage.start <= at < damage.end for damage in found.damage)
        elif at >= last_batch_at:
            assert found.cut_at == last_batch_at


def test_a_torn_end_in_a_file_that_was_left_behind_is_damage(written: Written) -> None:
    found = written.read(written.data[: written.used - 1], is_last=False)
    assert found.damage
    assert "cannot be trusted" in found.damage[0].sentence()


def test_a_newer_format_is_not_read(written: Written) -> None:
    data = bytearray(written.data)
    data[4] = 9
    found = written.read(bytes(data))
    assert found.damage
    assert not set(as_facts(found)) - set(written.facts)


def test_a_file_that_was_never_used_is_no_damage(written: Written) -> None:
    assert written.read(bytes(FILE_SIZE)).is_unused
