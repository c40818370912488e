"""Segments are read whole: every flipped bit is noticed, what is good stays, and a second repair finds nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from millstream.model.message import Message
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.runtime.disk.files import RealDisk
from millstream.storage.records.queue_records import QueueRecord, encode_record
from millstream.storage.segments.check import CheckedSegment, check_segment, rewrite_segment
from millstream.storage.segments.format import (
    HEADER_SIZE,
    RECORD_HEAD_SIZE,
    decode_names,
    folder_name,
    index_name,
    segment_name,
)
from millstream.storage.segments.reader import SegmentReader
from millstream.storage.segments.writer import SegmentWriter

QUEUE = 7
COUNT = 300
SEGMENT_SIZE = 100_000
FLIPS = 40


def body_of(offset: int) -> bytes:
    record = QueueRecord(offset, 1_000 + offset, 0, 0, b"", 0)
    return encode_record(
        QUEUE, record, Message(b"t", b"%d." % offset * (offset % 90), 1, False, b"", 0, "p"), 0
    )


class Written:
    def __init__(self, folder: Path, segment_size: int = SEGMENT_SIZE) -> None:
        self.folder = folder
        self.disk = RealDisk(folder)
        writer = SegmentWriter(self.disk, NoFailpoints(), segment_size)
        for offset in range(COUNT):
            writer.append(QUEUE, body_of(offset))
        writer.finish()
        self.firsts = decode_names(self.disk.names(folder_name(QUEUE)))[0]

    def check(self) -> list[CheckedSegment]:
        firsts = decode_names(self.disk.names(folder_name(QUEUE)))[0]
        return [
            check_segment(
                self.disk, QUEUE, first, first == firsts[-1], COUNT - 1 if first == firsts[-1] else -1
            )
            for first in firsts
        ]

    def read(self) -> dict[int, bytes]:
        reader = SegmentReader(self.disk)
        found = reader.read(QUEUE, 0, COUNT, COUNT, 1 << 30)
        reader.close()
        assert not found.damage
        return {int.from_bytes(body[8:16], "little"): body for body in found.bodies}


def is_in_a_size(first: int, position: int) -> bool:
    start = HEADER_SIZE
    while start + 4 <= position:
        start += RECORD_HEAD_SIZE + len(body_of(first))
        first += 1
    return start <= position


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path, 20_000)


def test_good_segments_have_nothing_to_say(written: Written) -> None:
    assert len(written.firsts) > 2
    checked = written.check()
    assert sum(segment.records for segment in checked) == COUNT
    assert not [segment for segment in checked if segment.is_damaged() or segment.is_index_bad]


@pytest.mark.parametrize("seed", range(FLIPS))
def test_a_flipped_bit_is_noticed_and_repaired_without_harm_to_others(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    written = Written(tmp_path, 20_000)
    first = chance.choice(written.firsts)
    path = tmp_path / segment_name(QUEUE, first)
    data = bytearray(path.read_bytes())
    position = chance.randrange(len(data))
    data[position] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    damaged = [segment for segment in written.check() if segment.is_damaged()]
    if 28 <= position < HEADER_SIZE:
        assert not damaged  # padding behind the checksum of the header
        return
    assert [segment.first for segment in damaged] == [first]
    lost = [number for gap in damaged[0].lost for number in range(gap.first, gap.last + 1)]
    if position < HEADER_SIZE:
        assert lost == []
    elif not is_in_a_size(first, position):  # without its size, the way to the next record is lost as well
        assert len(lost) == 1
    rewrite_segment(written.disk, damaged[0])
    found = written.read()
    assert found == {offset: body_of(offset) for offset in range(COUNT) if offset not in lost}
    assert not [segment for segment in written.check() if segment.is_damaged() or segment.is_index_bad]


def test_an_index_is_made_again_from_its_segment(written: Written) -> None:
    for first in written.firsts:
        path = written.folder / index_name(QUEUE, first)
        data = bytearray(path.read_bytes())
        data[40] ^= 1
        path.write_bytes(data)
    checked = written.check()
    assert [segment.is_index_bad for segment in checked] == [True] * len(written.firsts)
    for segment in checked:
        rewrite_segment(written.disk, segment)
    assert not [segment for segment in written.check() if segment.is_index_bad]
    assert len(written.read()) == COUNT


def test_an_end_that_is_missing_is_named_with_its_offsets(written: Written) -> None:
    first, following = written.firsts[0], written.firsts[1]
    path = written.folder / segment_name(QUEUE, first)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2])
    (damaged,) = [segment for segment in written.check() if segment.is_damaged()]
    (gap,) = damaged.lost
    assert gap.last == following - 1
    rewrite_segment(written.disk, damaged)
    assert sorted(written.read()) == [*range(gap.first), *range(following, COUNT)]
    assert not [segment for segment in written.check() if segment.is_damaged() or segment.is_index_bad]


def test_what_is_being_appended_to_the_last_segment_is_no_damage(written: Written) -> None:
    path = written.folder / segment_name(QUEUE, written.firsts[-1])
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\x50\x00\x00\x00half of a record")
    checked = written.check()[-1]
    assert not checked.is_damaged()
    assert checked.torn_at == size


def test_a_segment_without_any_good_record_goes_with_its_index(written: Written) -> None:
    first = written.firsts[1]
    path = written.folder / segment_name(QUEUE, first)
    path.write_bytes(path.read_bytes()[:HEADER_SIZE] + bytes(path.stat().st_size - HEADER_SIZE))
    (damaged,) = [segment for segment in written.check() if segment.is_damaged()]
    assert damaged.records == 0
    rewrite_segment(written.disk, damaged)
    assert not path.exists()
    assert not (written.folder / index_name(QUEUE, first)).exists()
    assert not [segment for segment in written.check() if segment.is_damaged()]
