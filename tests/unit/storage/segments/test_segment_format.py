"""The bytes of segments and their indexes: pinned, so that a change of format cannot happen by accident."""

from __future__ import annotations

from segment_records import make_body

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.segments.format import (
    ENTRY_SIZE,
    HEADER_SIZE,
    INDEX_MAGIC,
    MARK,
    PLACE,
    SEGMENT_MAGIC,
    decode_entry,
    decode_names,
    encode_entry,
    encode_header,
    entry_seed,
    find_header_fault,
    header_version,
    index_name,
    segment_name,
)
from millstream.storage.segments.index import SegmentIndex
from millstream.storage.segments.writer import SegmentWriter
from simulation.disk import SimulatedDisk

GOLDEN_SEGMENT = (
    "4d5353470100000003000000000000000700000000000000b750b50800000000"
    "1c000000af664e1303000000000000000700000000000000ef03000000000000"
    "cd5c0000"
)
GOLDEN_INDEX = (
    "4d5353490100000003000000000000000700000000000000b1b3db4e00000000"
    "0700000000000000ef03000000000000200000000000000001000000aa44d3ee"
    "0700000000000000ef03000000000000440000000000000002000000394dc21f"
)


def test_a_segment_of_version_1_looks_like_this() -> None:
    disk = SimulatedDisk()
    writer = SegmentWriter(disk, NoFailpoints(), 1000)
    writer.append(3, make_body(3, 7, 4))
    writer.finish()
    assert disk.content(segment_name(3, 7)).hex() == GOLDEN_SEGMENT
    assert disk.content(index_name(3, 7)).hex() == GOLDEN_INDEX


def test_a_header_is_refused_for_what_is_wrong_with_it() -> None:
    good = encode_header(SEGMENT_MAGIC, 3, 7)
    assert len(good) == HEADER_SIZE
    assert find_header_fault(good, SEGMENT_MAGIC, 3, 7) is None
    assert "too short" in str(find_header_fault(good[:-1], SEGMENT_MAGIC, 3, 7))
    assert "damaged" in str(find_header_fault(good, INDEX_MAGIC, 3, 7))
    assert "queue 3 from offset 7" in str(find_header_fault(good, SEGMENT_MAGIC, 3, 8))
    for at in range(HEADER_SIZE):
        flipped = bytearray(good)
        flipped[at] ^= 1
        assert find_header_fault(bytes(flipped), SEGMENT_MAGIC, 3, 7) is not None
        assert header_version(bytes(flipped)) == 0


def test_an_entry_counts_only_for_its_own_segment() -> None:
    seed = entry_seed(3, 7)
    entry = encode_entry(seed, PLACE, 9, 1234, 500)
    assert len(entry) == ENTRY_SIZE
    assert decode_entry(seed, entry, 0) == (PLACE, 9, 1234, 500)
    assert decode_entry(entry_seed(3, 8), entry, 0) is None
    assert decode_entry(seed, entry[:-1], 0) is None
    for at in range(ENTRY_SIZE):
        flipped = bytearray(entry)
        flipped[at] ^= 0x80
        assert decode_entry(seed, bytes(flipped), 0) is None


def test_names_that_are_not_ours_are_left_alone() -> None:
    names = [
        segment_name(1, 20),
        index_name(1, 20),
        segment_name(1, 3),
        "queues/1/readme.txt",
        "queues/1/7.segment",
    ]
    assert decode_names(names) == ([3, 20], [20])


def test_an_index_keeps_its_good_entries_when_one_is_damaged() -> None:
    index = SegmentIndex(3, 0)
    for number in range(5):
        assert index.add(number * 10, 1000 + number, HEADER_SIZE + number * 70_000)
    data = index.encode() + encode_entry(index.seed, MARK, 44, 1010, 400_000)
    broken = bytearray(data)
    broken[HEADER_SIZE + 2 * ENTRY_SIZE] ^= 1
    found = SegmentIndex(3, 0)
    found.decode(bytes(broken))
    assert found.is_damaged
    assert found.offsets == [0, 10, 30, 40]
    assert (found.safe_offset, found.safe_position, found.latest) == (44, 400_000, 1010)
    whole = SegmentIndex(3, 0)
    whole.decode(data)
    assert not whole.is_damaged
    assert whole.encode() == index.encode()


def test_an_index_finds_the_place_before_an_offset_and_a_time() -> None:
    index = SegmentIndex(3, 5)
    for offset, time_ns, position in ((5, 100, 32), (50, 90, 70_000), (90, 300, 140_000)):
        assert index.add(offset, time_ns, position)
    assert index.times == [100, 100, 300]  # a clock that stepped back does not hide what was before
    assert [index.find_offset(offset) for offset in (4, 5, 49, 50, 1000)] == [-1, 0, 0, 1, 2]
    assert [index.find_time(time_ns) for time_ns in (50, 100, 101, 300, 301)] == [-1, -1, 1, 1, 2]
    assert [index.position_behind(position, 1 << 30) for position in (0, 32, 70_000, 140_000)] == [
        32,
        70_000,
        140_000,
        -1,
    ]
    assert not index.add(90, 400, 150_000)
    assert not index.add(91, 400, 140_000)
