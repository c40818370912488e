"""Appending to segments: once each, in large pieces, with few files open, and safe when `finish` returns."""

from __future__ import annotations

import pytest
from google_crc32c import value
from segment_records import make_body, read_all

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.disk import DiskFault, DiskFile
from millstream.storage.segments import writer as segment_writer
from millstream.storage.segments.format import (
    HEADER_SIZE,
    SEGMENT_MAGIC,
    VERSION,
    encode_header,
    index_name,
    segment_name,
)
from millstream.storage.segments.writer import BUFFER_SIZE_MAX, FAILPOINTS, SegmentWriter
from simulation.disk import Mood, PowerCut, SimulatedDisk
from simulation.failpoints import DeadlyFailpoints

SEGMENT_SIZE = 1000


def new_writer(disk: SimulatedDisk, segment_size: int = SEGMENT_SIZE) -> SegmentWriter:
    return SegmentWriter(disk, NoFailpoints(), segment_size)


def fill(disk: SimulatedDisk, queue: int, count: int, size: int = 100) -> list[bytes]:
    writer = new_writer(disk)
    bodies = [make_body(queue, offset, size) for offset in range(count)]
    for body in bodies:
        writer.append(queue, body)
    writer.finish()
    return bodies


def segments(disk: SimulatedDisk, queue: int) -> list[str]:
    return [name for name in disk.names(f"queues/{queue}") if name.endswith(".segment")]


def test_what_is_finished_is_on_the_platter() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 1, 30)
    assert len(segments(disk, 1)) == 5
    assert read_all(disk.crash(Mood.NOTHING), 1) == (bodies, [])


def test_records_told_twice_are_there_once() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 1, 5)
    writer = new_writer(disk)
    for body in [*bodies, make_body(1, 9)]:
        writer.append(1, body)
        writer.append(1, body)
    writer.finish()
    assert read_all(disk, 1) == ([*bodies, make_body(1, 9)], [])


def test_a_record_of_another_queue_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="queue 2"):
        new_writer(SimulatedDisk()).append(1, make_body(2, 0))


def test_small_records_are_written_in_large_pieces() -> None:
    disk = SimulatedDisk()
    writer = new_writer(disk, 1 << 30)
    for offset in range(3 * BUFFER_SIZE_MAX // 1000):
        writer.append(1, make_body(1, offset, 1000))
    writer.finish()
    assert disk.trace.count(f"write {segment_name(1, 0)}") <= 4


def test_a_record_larger_than_a_segment_has_one_of_its_own() -> None:
    disk = SimulatedDisk()
    writer = new_writer(disk)
    bodies = [make_body(1, 0), make_body(1, 1, 5000), make_body(1, 2)]
    for body in bodies:
        writer.append(1, body)
    writer.finish()
    assert segments(disk, 1) == [segment_name(1, 0), segment_name(1, 1), segment_name(1, 2)]
    assert read_all(disk, 1) == (bodies, [])


class CountingDisk(SimulatedDisk):
    """Knows how many files are open."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[DiskFile] = []
        self.most = 0

    def create(self, name: str, size: int) -> DiskFile:
        return self._count(super().create(name, size))

    def open(self, name: str) -> DiskFile:
        return self._count(super().open(name))

    def _count(self, file: DiskFile) -> DiskFile:
        self.files = [known for known in self.files if known._is_open]  # type: ignore[attr-defined]
        self.files.append(file)
        self.most = max(self.most, len(self.files))
        return file


def test_many_queues_need_few_open_files_and_little_memory() -> None:
    disk = CountingDisk()
    writer = new_writer(disk, 1 << 20)
    queues = range(1, 200)
    size = segment_writer.BUFFERS_SIZE_MAX // 300
    for offset in range(2):
        for queue in queues:
            writer.append(queue, make_body(queue, offset, size))
    assert 0 <= writer._buffered < segment_writer.BUFFERS_SIZE_MAX
    writer.finish()
    assert writer._buffered == 0
    assert disk.most <= segment_writer.OPEN_FILES_MAX + 2
    safe = disk.crash(Mood.NOTHING)
    for queue in queues:
        assert len(read_all(safe, queue)[0]) == 2


def test_a_torn_end_is_cut_and_the_rest_kept() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 1, 3)
    name = segment_name(1, 0)
    disk.replace(name, disk.content(name) + b"\x90\0\0\0torn")
    writer = new_writer(disk)
    writer.append(1, make_body(1, 3))
    writer.finish()
    assert read_all(disk, 1) == ([*bodies, make_body(1, 3)], [])
    assert not writer.damage


def test_what_a_dead_writer_left_unsynced_is_synced_before_it_counts() -> None:
    disk = SimulatedDisk()
    first = new_writer(disk)
    for offset in range(20):  # rolls: all but the last segment are synced
        first.append(1, make_body(1, offset, 100))
    first._write_out(first._tails[1])
    second = new_writer(disk.kill())
    for offset in range(20):
        second.append(1, make_body(1, offset, 100))
    second.finish()
    bodies, damage = read_all(disk.crash(Mood.NOTHING), 1)
    assert (len(bodies), damage) == (20, [])


def test_what_no_commit_covers_is_written_anew() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 1, 30)
    fill(disk, 2, 3)
    writer = new_writer(disk)
    writer.resume({1: 12})
    writer.open(1)
    writer.open(2)  # the commit knows no such queue
    writer.append(1, make_body(1, 11))
    writer.append(1, make_body(1, 40))
    writer.finish()
    assert read_all(disk, 1) == ([*bodies[:12], make_body(1, 40)], [])
    assert disk.names("queues/2") == []


def test_a_cut_is_safe_before_anything_is_written_in_its_place_and_the_index_before_that() -> None:
    disk = SimulatedDisk()
    fill(disk, 1, 5)
    writer = new_writer(disk)
    writer.resume({1: 3})
    disk.trace.clear()
    writer.append(1, make_body(1, 3))
    writer.finish()
    changes = [line for line in disk.trace if line.startswith(("truncate", "write", "sync"))]
    segment, index = segment_name(1, 0), index_name(1, 0)
    assert changes[:5] == [
        f"truncate {index}", f"write {index}", f"sync {index}", f"truncate {segment}", f"sync {segment}",
    ]  # fmt: skip


def test_an_index_speaks_of_data_only_when_it_and_its_name_are_safe() -> None:
    disk = SimulatedDisk()
    fill(disk, 1, 5)
    segment, index = segment_name(1, 0), index_name(1, 0)
    assert [line for line in disk.trace if line.startswith(("create", "write", "sync"))] == [
        f"create {segment}",
        f"create {index}",
        f"write {index}",
        f"write {segment}",
        f"sync {segment}",
        "sync_folder queues/1",
        "sync_folder queues",
        f"write {index}",
    ]


def test_a_failed_sync_is_not_made_good_by_the_next_one() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 1, 3)
    writer = new_writer(disk)
    writer.append(1, make_body(1, 3))
    disk.fail_next("sync")
    with pytest.raises(DiskFault):
        writer.finish()
    again = new_writer(disk.kill())
    again.resume({1: 3})
    again.append(1, make_body(1, 3))
    again.finish()
    assert read_all(disk.crash(Mood.NOTHING), 1) == ([*bodies, make_body(1, 3)], [])


def test_a_damaged_or_missing_index_is_made_again() -> None:
    disk = SimulatedDisk()
    writer = new_writer(disk, 1 << 20)
    for offset in range(300):
        writer.append(1, make_body(1, offset, 1000))
    writer.finish()
    name = index_name(1, 0)
    good = disk.content(name)
    assert len(good) > 5 * 32
    for data in (b"", good[:40], bytes(len(good)), good[:70] + b"\xff" + good[71:]):
        disk.replace(name, data)
        new_writer(disk).open(1)
        assert disk.content(name)[-32:] == good[-32:]
        assert len(disk.content(name)) >= len(good) - 32
    disk.remove(name)
    new_writer(disk).open(1)
    assert disk.content(name) == good


def test_damage_is_left_as_it_is_and_a_new_segment_begun() -> None:
    disk = SimulatedDisk().crash()
    fill(disk, 1, 3)
    disk = disk.crash(Mood.EVERYTHING)
    name = segment_name(1, 0)
    disk.cut(name, len(disk.content(name)) - 5)  # although it was synced
    writer = new_writer(disk)
    writer.append(1, make_body(1, 3))
    writer.finish()
    assert [damage.name for damage in writer.damage] == [name]
    assert segments(disk, 1) == [name, segment_name(1, 3)]
    bodies, damage = read_all(disk, 1)
    assert bodies == [make_body(1, 0, 100), make_body(1, 1, 100), make_body(1, 3)]
    assert len(damage) == 1


def test_a_segment_of_a_later_format_is_refused() -> None:
    disk = SimulatedDisk()
    fill(disk, 1, 3)
    name = segment_name(1, 0)
    header = encode_header(SEGMENT_MAGIC, 1, 0)
    head = header[:4] + bytes([VERSION + 1]) + header[5:24]
    disk.replace(name, head + value(head).to_bytes(8, "little") + disk.content(name)[HEADER_SIZE:])
    with pytest.raises(DiskFault, match=f"format {VERSION + 1}; this release reads up to {VERSION}"):
        new_writer(disk).append(1, make_body(1, 3))
    _, damage = read_all(disk, 1)
    assert f"format {VERSION + 1}" in damage[0].text


def test_only_whole_segments_below_the_offset_are_dropped() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 1, 30)
    names = segments(disk, 1)
    second = int(names[1].rpartition("/")[2][:20])
    writer = new_writer(disk)
    writer.drop_below(1, second - 1)
    assert segments(disk, 1) == names
    writer.drop_below(1, second)
    assert disk.crash(Mood.NOTHING).names("queues/1") == disk.names("queues/1")
    assert segments(disk, 1) == names[1:]
    assert read_all(disk, 1) == (bodies[second:], [])
    writer.drop_below(1, 29)
    assert segments(disk, 1) == names[-1:]
    writer.drop_below(1, 30)
    assert disk.names("queues/1") == []


def test_records_in_memory_are_dropped_with_their_segment_and_others_follow() -> None:
    disk = SimulatedDisk()
    writer = new_writer(disk)
    writer.append(1, make_body(1, 0))
    writer.drop_below(1, 1)
    writer.finish()
    assert disk.names("queues/1") == []
    writer.append(1, make_body(1, 1))
    writer.drop_below(1, 1)
    writer.finish()
    assert read_all(disk, 1) == ([make_body(1, 1)], [])


def test_a_queue_is_removed_with_all_it_has() -> None:
    disk = SimulatedDisk()
    fill(disk, 1, 30)
    kept = fill(disk, 2, 3)
    writer = new_writer(disk)
    writer.append(1, make_body(1, 30))
    writer.remove(1)
    writer.remove(77)
    writer.finish()
    after = disk.crash(Mood.NOTHING)
    assert after.names("queues/1") == []
    assert read_all(after, 2) == (kept, [])


def test_an_index_without_a_segment_goes() -> None:
    disk = SimulatedDisk()
    fill(disk, 1, 10)
    disk.remove(segment_name(1, 6))
    new_writer(disk).open(1)
    assert index_name(1, 6) not in disk.names("queues/1")


def live(disk: SimulatedDisk, failpoints: DeadlyFailpoints) -> None:
    """Passes every failpoint."""
    writer = SegmentWriter(disk, failpoints, SEGMENT_SIZE)
    writer.resume({1: 12, 2: 3})
    for offset in range(12, 40):
        writer.append(1, make_body(1, offset, 100))
    writer.append(2, make_body(2, 3))
    writer.finish()
    writer.drop_below(1, 8)
    writer.remove(3)


@pytest.mark.parametrize("mood", list(Mood))
@pytest.mark.parametrize("name", FAILPOINTS)
def test_nothing_committed_is_lost_wherever_the_power_goes(name: str, mood: Mood) -> None:
    for count in range(1, 20):
        disk = SimulatedDisk(count)
        for queue in (1, 2, 3):
            fill(disk, queue, 30)
        failpoints = DeadlyFailpoints(name, count)
        try:
            live(disk, failpoints)
        except PowerCut:
            disk = disk.crash(mood)
        else:
            assert count > 1, f"{name} is never reached"
            return
        bodies, _ = read_all(disk, 1, 8, 12)
        assert bodies == [make_body(1, offset, 100) for offset in range(8, 12)]
        live(disk, DeadlyFailpoints())
        assert read_all(disk, 1, 8) == ([make_body(1, offset, 100) for offset in range(8, 40)], [])
        assert read_all(disk, 2) == (
            [make_body(2, offset, 100) for offset in range(3)] + [make_body(2, 3)],
            [],
        )
        assert disk.names("queues/3") == []
