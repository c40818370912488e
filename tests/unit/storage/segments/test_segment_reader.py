"""Reading segments: in slices, by offset or time, beside a writer, past damage that is named."""

from __future__ import annotations

import pytest
from google_crc32c import value
from segment_records import END, make_body, offset_of, read_all

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.disk import DiskFault
from millstream.storage.segments import reader as segment_reader
from millstream.storage.segments.format import index_name, segment_name
from millstream.storage.segments.reader import SegmentReader
from millstream.storage.segments.writer import SegmentWriter
from simulation.disk import Mood, SimulatedDisk


def fill(disk: SimulatedDisk, bodies: list[bytes], segment_size: int = 1 << 20) -> SegmentWriter:
    writer = SegmentWriter(disk, NoFailpoints(), segment_size)
    for body in bodies:
        writer.append(1, body)
    writer.finish()
    return writer


def offsets(bodies: list[bytes]) -> list[int]:
    return [offset_of(body) for body in bodies]


def test_a_slice_ends_at_the_count_the_bytes_or_the_end_asked_for() -> None:
    disk = SimulatedDisk()
    fill(disk, [make_body(1, offset, 100) for offset in range(0, 100, 2)], 1000)
    reader = SegmentReader(disk)
    found = reader.read(1, 3, 90, 5, 1 << 20)
    assert (offsets(found.bodies), found.end, found.is_cut) == ([4, 6, 8, 10, 12], 13, True)
    found = reader.read(1, 3, 90, 100, 400)
    assert (offsets(found.bodies), found.end, found.is_cut) == ([4, 6, 8], 9, True)
    found = reader.read(1, 80, 85, 100, 1 << 20)
    assert (offsets(found.bodies), found.end, found.is_cut) == ([80, 82, 84], 85, False)
    found = reader.read(1, 97, 500, 100, 1 << 20)
    assert (offsets(found.bodies), found.end, found.is_cut) == ([98], 500, False)
    found = reader.read(1, 200, 500, 100, 1 << 20)
    assert (found.bodies, found.end, found.is_cut) == ([], 500, False)


def test_a_record_larger_than_the_slice_still_comes() -> None:
    disk = SimulatedDisk()
    body = make_body(1, 0, 2_000_000)
    fill(disk, [body, make_body(1, 1)])
    assert SegmentReader(disk).read(1, 0, 10, 10, 100).bodies == [body]


def test_a_queue_without_segments_has_no_records() -> None:
    reader = SegmentReader(SimulatedDisk())
    assert reader.read(1, 0, END, 10, 100).bodies == []
    assert (reader.first_offset(1), reader.last_offset(1), reader.find_time(1, 0)) == (-1, -1, -1)


def test_the_first_and_last_offset_are_those_of_records() -> None:
    disk = SimulatedDisk()
    writer = fill(disk, [make_body(1, offset, 100) for offset in range(10, 60, 5)], 500)
    reader = SegmentReader(disk)
    assert (reader.first_offset(1), reader.last_offset(1)) == (10, 55)
    writer.drop_below(1, 30)
    writer.append(1, make_body(1, 77))
    writer.finish()
    assert (reader.first_offset(1), reader.last_offset(1)) == (25, 77)


def test_growth_and_new_segments_are_noticed() -> None:
    disk = SimulatedDisk()
    writer = fill(disk, [make_body(1, 0)], 1000)
    reader = SegmentReader(disk)
    for offset in range(1, 50):
        assert offsets(read_all(disk, 1, 0, END, reader)[0]) == list(range(offset))
        writer.append(1, make_body(1, offset, 100))
        writer.finish()


def test_segments_that_are_gone_are_noticed() -> None:
    disk = SimulatedDisk()
    writer = fill(disk, [make_body(1, offset, 100) for offset in range(50)], 500)
    reader = SegmentReader(disk)
    assert len(reader.read(1, 0, 8, 100, 1 << 20).bodies) == 8  # knows the folder, has opened the first few
    writer.drop_below(1, 40)
    assert offsets(read_all(disk, 1, 20, END, reader)[0])[-10:] == list(range(40, 50))
    writer.remove(1)
    assert reader.last_offset(1) == -1
    assert read_all(disk, 1, 0, END, reader) == ([], [])


def test_a_fault_of_the_disk_is_not_taken_for_a_missing_record() -> None:
    disk = SimulatedDisk()
    fill(disk, [make_body(1, 0)])
    reader = SegmentReader(disk)
    disk.fail_next("open")
    with pytest.raises(DiskFault):
        reader.read(1, 0, 10, 10, 1000)
    assert len(reader.read(1, 0, 10, 10, 1000).bodies) == 1
    disk.fail_next("read")
    with pytest.raises(DiskFault):
        reader.read(1, 0, 10, 10, 1000)
    assert len(reader.read(1, 0, 10, 10, 1000).bodies) == 1


def test_few_files_stay_open_however_many_are_read() -> None:
    disk = SimulatedDisk()
    fill(disk, [make_body(1, offset, 400) for offset in range(150)], 500)
    reader = SegmentReader(disk)
    assert len(read_all(disk, 1, 0, END, reader)[0]) == 150
    assert len(reader._segments) == segment_reader.OPEN_SEGMENTS_MAX
    reader.close()


def times(disk: SimulatedDisk, wanted: list[int]) -> list[int]:
    reader = SegmentReader(disk)
    return [int(reader.find_time(1, time_ns)) for time_ns in wanted]


def test_the_first_record_at_or_after_a_time_is_found_although_the_clock_stepped_back() -> None:
    stamps = [100, 200, 300, 150, 160, 170, 400, 390, 500, 450] * 3
    bodies = [
        make_body(1, offset, 100, time_ns + offset // 10 * 1000) for offset, time_ns in enumerate(stamps)
    ]
    for segment_size in (300, 1000, 100_000):
        disk = SimulatedDisk()
        fill(disk, bodies, segment_size)
        for name in ("", index_name(1, 0)):
            if name:
                disk.remove(name)
            assert times(disk, [0, 100, 101, 300, 301, 401, 501, 1200, 2500, 2501]) == [
                0, 0, 1, 2, 6, 8, 10, 11, 28, -1,
            ]  # fmt: skip


def test_a_time_is_found_without_reading_everything() -> None:
    disk = SimulatedDisk()
    fill(disk, [make_body(1, offset, 1000) for offset in range(3000)], 1 << 20)
    disk.trace.clear()
    reader = SegmentReader(disk)
    assert reader.find_time(1, 1000 + 1500) == 1500
    assert len([line for line in disk.trace if line.startswith("read") and ".segment" in line]) <= 3


def test_old_records_are_read_without_walking_to_them() -> None:
    disk = SimulatedDisk()
    fill(disk, [make_body(1, offset, 1000) for offset in range(3000)], 8 << 20)
    for has_index in (True, False):
        if not has_index:
            disk.remove(index_name(1, 0))
        reader = SegmentReader(disk)
        reader.read(1, 0, 3000, 1, 1 << 20)
        reader.read(1, 2990, 3000, 1, 1 << 20)  # without an index on disk: makes one in memory
        disk.trace.clear()
        assert offsets(reader.read(1, 1234, 3000, 2, 1 << 20).bodies) == [1234, 1235]
        assert len([line for line in disk.trace if line.startswith("read")]) <= 1


def damaged(count: int, size: int, harm: list[tuple[int, int]]) -> tuple[list[bytes], list[str], int]:
    """(bodies read, damage, size of a record) of one segment with bytes overwritten in some records."""
    disk = SimulatedDisk()
    fill(disk, [make_body(1, offset, size) for offset in range(count)], 64 << 20)
    disk = disk.crash(Mood.EVERYTHING)
    name = segment_name(1, 0)
    data = bytearray(disk.content(name))
    step = 8 + 24 + size
    for offset, at in harm:
        data[32 + offset * step + at] ^= 0xFF
    disk.replace(name, bytes(data))
    bodies, found = read_all(disk, 1)
    return bodies, [f"{damage.start}-{damage.end}" for damage in found], step


def test_a_damaged_body_takes_only_itself() -> None:
    bodies, damage, step = damaged(10, 100, [(4, 60)])
    assert offsets(bodies) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert damage == [f"{32 + 4 * step}-{32 + 5 * step}"]


def test_neighbours_that_are_damaged_are_one_range() -> None:
    bodies, damage, step = damaged(10, 100, [(4, 60), (5, 60), (6, 8)])
    assert offsets(bodies) == [0, 1, 2, 3, 7, 8, 9]
    assert damage == [f"{32 + 4 * step}-{32 + 7 * step}"]


def test_a_damaged_size_takes_all_up_to_the_next_place_in_the_index() -> None:
    bodies, damage, step = damaged(200, 1000, [(10, 1)])
    lost = [offset for offset in range(200) if offset not in offsets(bodies)]
    assert lost == list(range(10, 64))  # the first record behind 64 KiB is the 64th
    assert damage == [f"{32 + 10 * step}-{32 + 64 * step}"]


def test_damage_at_the_end_of_what_was_synced_is_named() -> None:
    bodies, damage, step = damaged(10, 100, [(9, 60)])
    assert offsets(bodies) == list(range(9))
    assert damage == [f"{32 + 9 * step}-{32 + 10 * step}"]


def test_a_payload_that_looks_like_records_is_never_taken_for_one() -> None:
    inner = make_body(1, 500, 100)
    frame = len(inner).to_bytes(4, "little") + value(inner).to_bytes(4, "little") + inner
    disk = SimulatedDisk()
    fill(disk, [make_body(1, 0), make_body(1, 1) + frame * 3, make_body(1, 2)])
    disk = disk.crash(Mood.EVERYTHING)
    disk.flip_bit(segment_name(1, 0), 32 + 72 + 1, 3)  # the size of the second record
    bodies, damage = read_all(disk, 1)
    assert offsets(bodies) == [0]
    assert len(damage) == 1


# With the old size, places the reader knows still point to records, but to others.
@pytest.mark.parametrize("size", [700, 1000])
def test_a_reader_is_not_misled_by_what_it_knew_before_a_cut(size: int) -> None:
    disk = SimulatedDisk()
    fill(disk, [make_body(1, offset, 1000) for offset in range(1000)], 64 << 20)
    reader = SegmentReader(disk)
    assert len(reader.read(1, 500, 1000, 1000, 1 << 30).bodies) == 500
    writer = SegmentWriter(disk, NoFailpoints(), 64 << 20)
    writer.resume({1: 100})
    for offset in range(101, 1000, 2):
        writer.append(1, make_body(1, offset, size))
    writer.finish()
    kept = [*range(100), *range(101, 1000, 2)]
    for first in (512, 99, 101, 300, 901):
        bodies, damage = read_all(disk, 1, first, 1000, reader)
        assert offsets(bodies) == [offset for offset in kept if offset >= first]
        assert not damage


def test_a_record_out_of_order_does_not_count() -> None:
    disk = SimulatedDisk()
    fill(disk, [make_body(1, 5), make_body(1, 6), make_body(1, 7)])
    disk = disk.crash(Mood.EVERYTHING)
    name = segment_name(1, 5)
    data = disk.content(name)
    step = (len(data) - 32) // 3
    records = [data[32 + at * step : 32 + (at + 1) * step] for at in range(3)]
    disk.replace(name, data[:32] + records[0] + records[0] + records[2])
    bodies, damage = read_all(disk, 1)
    assert offsets(bodies) == [5, 7]
    assert [(found.start, found.end) for found in damage] == [(32 + step, 32 + 2 * step)]


def test_the_end_of_a_file_that_is_missing_is_named() -> None:
    disk = SimulatedDisk()
    fill(disk, [make_body(1, offset, 1000) for offset in range(200)], 64 << 20)
    disk = disk.crash(Mood.EVERYTHING)
    name = segment_name(1, 0)
    whole = len(disk.content(name))
    disk.cut(name, 32 + 10 * 1032)
    found = SegmentReader(disk).read(1, 150, 200, 100, 1 << 20)
    assert (found.bodies, found.end) == ([], 200)
    assert len(found.damage) == 1
    assert found.damage[0].start == 32 + 10 * 1032 < found.damage[0].end <= whole
    assert offsets(read_all(disk, 1)[0]) == list(range(10))


def test_a_damaged_size_costs_no_more_than_what_was_made_safe_with_it() -> None:
    """Where something was finished a record begins, as at a place in the index."""
    disk = SimulatedDisk()
    bodies = [make_body(1, offset, 100) for offset in range(30)]
    for first in (0, 10, 20):
        fill(disk, bodies[first : first + 10])
    name = segment_name(1, 0)
    start = disk.content(name).index(bodies[12]) - 8
    disk.flip_bit(name, start + 2)
    found, damage = read_all(disk, 1)
    assert offsets(found) == [*range(12), *range(20, 30)]
    assert [(fault.start, fault.end) for fault in damage] == [
        (start, disk.content(name).index(bodies[20]) - 8)
    ]
