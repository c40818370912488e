"""What a start makes of the log: torn ends are cut, damage is named, nothing is ever made up."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from google_crc32c import value

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.runtime.disk.files import RealDisk
from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.format import (
    BATCH_HEAD_SIZE,
    FILE_HEADER_SIZE,
    RECORD_HEAD_SIZE,
    append_record,
    encode_batch_head,
)
from millstream.storage.log.recovery import RecoveredFile, read_file
from millstream.storage.log.write_ahead_log import Batch

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
        self.starts: list[int] = []
        self.record_ends: list[int] = []
        end = FILE_HEADER_SIZE
        for count in (1, 5, 2, 30, 1, 12, 3):
            batch, facts = make_batch(len(self.facts) + 1, count)
            files.write(batch)
            self.facts += facts
            self.starts.append(end)
            end += BATCH_HEAD_SIZE
            for _, _, body in facts:
                end += RECORD_HEAD_SIZE + len(body)
                self.record_ends.append(end)
            self.ends.append((end, len(self.facts)))
        files.close()
        self.used = end
        self.data = self.path.read_bytes()

    def lost_to(self, at: int) -> tuple[int, int]:
        """Which facts (first, behind the last) a damaged byte costs: from its own to the end of the batch."""
        batch = max(index for index, start in enumerate(self.starts) if start <= at)
        first = self.ends[batch - 1][1] if batch else 0
        if at >= self.starts[batch] + BATCH_HEAD_SIZE:
            first = next(index for index, end in enumerate(self.record_ends) if at < end)
        return first, self.ends[batch][1]

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
        ends = [(FILE_HEADER_SIZE, 0), *written.ends]
        end, whole = max(one for one in ends if one[0] <= length)
        assert as_facts(found) == written.facts[:whole], length
        assert not found.damage
        assert found.cut_at == (-1 if end == length else end), length


def test_zeros_after_a_torn_write_change_nothing(written: Written) -> None:
    for length in range(written.ends[-2][0], written.used):
        torn = written.data[:length] + bytes(len(written.data) - length)
        found = written.read(torn)
        assert as_facts(found) == written.facts[: written.ends[-2][1]] or torn == written.data


def test_a_flipped_bit_costs_what_it_must_and_no_wrong_fact_comes_out(written: Written) -> None:
    chance = random.Random(7)
    last_batch_at = written.starts[-1]
    for _ in range(FLIPS):
        at = chance.randrange(written.used)
        data = bytearray(written.data)
        data[at] ^= 1 << chance.randrange(8)
        found = written.read(bytes(data))
        if at < FILE_HEADER_SIZE:
            assert as_facts(found) == written.facts
            assert len(found.damage) == 1
        elif at < last_batch_at:
            first, behind = written.lost_to(at)
            assert as_facts(found) == written.facts[:first] + written.facts[behind:]
            assert len(found.damage) == 1
            assert found.damage[0].start <= at < found.damage[0].end
            assert found.cut_at == -1
        else:
            assert as_facts(found) == written.facts[: written.ends[-2][1]]
            assert found.cut_at == last_batch_at


def test_the_facts_that_are_left_out_are_named(written: Written) -> None:
    data = bytearray(written.data)
    data[written.record_ends[10] - 1] ^= 1
    damage = written.read(bytes(data)).damage[0]
    assert damage.start == written.record_ends[9]
    assert "the facts 11 to 38 cannot be trusted" in damage.sentence()  # the fourth batch goes from 9 to 38


def test_a_torn_end_in_a_file_that_was_left_behind_is_damage(written: Written) -> None:
    found = written.read(written.data[: written.used - 1], is_last=False)
    assert found.cut_at == -1
    assert as_facts(found) == written.facts[:-1]
    assert "cannot be trusted" in found.damage[0].sentence()


def test_a_lost_head_at_the_end_of_a_file_that_was_left_behind_is_damage(written: Written) -> None:
    data = bytearray(written.data)
    data[written.starts[-1]] ^= 1
    found = written.read(bytes(data), is_last=False)
    assert found.cut_at == -1
    assert as_facts(found) == written.facts[: written.ends[-2][1]]
    assert [damage.start for damage in found.damage] == [written.starts[-1]]


def test_a_batch_that_never_reached_the_disk_is_damage_when_others_stand_behind_it(written: Written) -> None:
    start, end = written.starts[2], written.starts[3]
    data = written.data[:start] + bytes(end - start) + written.data[end:]
    found = written.read(data)
    assert as_facts(found) == written.facts[: written.ends[1][1]] + written.facts[written.ends[2][1] :]
    assert [(damage.start, damage.end) for damage in found.damage] == [(start, end)]


def test_what_an_older_file_left_in_reused_blocks_is_not_read(written: Written) -> None:
    batch, _ = make_batch(len(written.facts) + 1, 4)
    old = encode_batch_head(len(batch.records), 4, 7, len(written.facts) + 1, 0) + batch.records
    found = written.read(written.data[: written.used] + old)
    assert as_facts(found) == written.facts
    assert not found.damage


def test_a_batch_with_fewer_records_than_bytes_is_not_whole(written: Written) -> None:
    batch, _ = make_batch(len(written.facts) + 1, 4)
    head = encode_batch_head(len(batch.records) + 5, 4, 1, len(written.facts) + 1, 0)
    found = written.read(written.data[: written.used] + head + batch.records + bytes(5))
    assert as_facts(found) == written.facts
    assert found.cut_at == written.used


def test_a_newer_format_is_not_read(written: Written) -> None:
    head = written.data[:4] + (9).to_bytes(4, "little") + written.data[8:24]
    header = head + value(head + bytes(4)).to_bytes(4, "little") + bytes(4)
    found = written.read(header + written.data[FILE_HEADER_SIZE:])
    assert "the file has format 9" in found.damage[0].sentence()
    assert as_facts(found) == []


@pytest.mark.parametrize("is_last", [True, False])
def test_a_file_under_the_number_of_another_is_damage(written: Written, is_last: bool) -> None:
    written.path.with_name(Path(file_name(2)).name).write_bytes(written.data)
    found = read_file(written.disk, file_name(2), is_last)
    assert not found.is_unused
    assert "the file says it is number 1" in found.damage[0].sentence()
    assert as_facts(found) == []


def test_a_torn_header_with_nothing_behind_it_was_never_used(written: Written) -> None:
    torn = written.data[:10] + bytes(FILE_SIZE - 10)
    assert written.read(torn).is_unused
    left_behind = written.read(torn, is_last=False)
    assert not left_behind.is_unused
    assert left_behind.damage


def test_a_lost_header_with_batches_behind_it_is_damage_and_they_are_read(written: Written) -> None:
    found = written.read(bytes(FILE_HEADER_SIZE) + written.data[FILE_HEADER_SIZE:])
    assert not found.is_unused
    assert [(damage.start, damage.end) for damage in found.damage] == [(0, FILE_HEADER_SIZE)]
    assert as_facts(found) == written.facts


def test_a_file_that_was_never_used_is_no_damage(written: Written) -> None:
    assert written.read(bytes(FILE_SIZE)).is_unused
