"""What a backup takes of files that are being written: whole batches of the log, records that a checkpoint covers."""

from __future__ import annotations

from pathlib import Path

from librt.strings import BytesWriter

from millstream.maintenance.backup_plan import Plan, plan_log, plan_segments
from millstream.model.message import Message
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.runtime.disk.files import RealDisk
from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.format import append_record
from millstream.storage.log.write_ahead_log import Batch
from millstream.storage.records.queue_records import QueueRecord, encode_record
from millstream.storage.segments.format import index_name, segment_name
from millstream.storage.segments.reader import SegmentReader
from millstream.storage.segments.writer import SegmentWriter


def write_log(disk: RealDisk, file_size: int, batches: int) -> list[int]:
    """Ten facts in a batch; where each ends in the (only or last) file."""
    disk.make_folder(FOLDER)
    files = LogFiles(disk, NoFailpoints(), file_size, 1, 0)
    ends: list[int] = []
    for number in range(batches):
        writer = BytesWriter()
        for _ in range(10):
            append_record(writer, 5, b"fact" * 10)
        files.write(Batch(number * 10 + 1, 10, writer.getvalue()))
        ends.append(32 + (ends[-1] - 32 if ends else 0) + 40 + 10 * (9 + 40))
    files.close()
    return ends


def plan_of(disk: RealDisk, folded: int = 0, last_sequence: int = 0) -> Plan:
    plan = Plan()
    plan_log(disk, plan, folded, last_sequence)
    return plan


def test_a_batch_that_is_half_there_is_left_out(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    ends = write_log(disk, 65_536, 5)
    path = tmp_path / file_name(1)
    whole = path.read_bytes()
    path.write_bytes(whole[: ends[3] + 100] + bytes(len(whole) - ends[3] - 100))
    plan = plan_of(disk)
    assert [(file.name, file.size) for file in plan.files] == [(file_name(1), ends[3])]
    assert plan.last_sequence == 40
    assert plan.damage == []


def test_what_is_reserved_but_not_used_is_left_out(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    ends = write_log(disk, 1 << 20, 2)
    (file,) = plan_of(disk).files
    assert file.size == ends[-1]


def test_files_the_checkpoint_has_are_left_out(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    write_log(disk, 600, 4)
    assert [file.name for file in plan_of(disk, 2, 20).files] == [file_name(3), file_name(4)]
    plan = plan_of(disk, 4, 40)
    assert plan.files == []
    assert plan.last_sequence == 40


def test_damage_is_named_and_taken_along(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    ends = write_log(disk, 65_536, 5)
    path = tmp_path / file_name(1)
    data = bytearray(path.read_bytes())
    data[ends[0] + 60] ^= 1
    path.write_bytes(data)
    plan = plan_of(disk)
    assert len(plan.damage) == 1
    assert [file.size for file in plan.files] == [ends[-1]]
    assert plan.last_sequence == 50


# ---------------------------------------------------------------- segments


def append(disk: RealDisk, first: int, end: int) -> None:
    writer = SegmentWriter(disk, NoFailpoints(), 4096)
    for offset in range(first, end):
        record = QueueRecord(offset, 1, 0, 0, b"", 0)
        writer.append(3, encode_record(3, record, Message(b"t", b"x" * 100, 1, False, b"", 0, "p"), 0))
    writer.finish()


def test_records_no_checkpoint_has_committed_are_left_out(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    append(disk, 0, 100)
    plan = Plan()
    plan_segments(disk, plan, {3: 50})
    copy = tmp_path / "copy"
    for file in plan.files:
        (copy / file.name).parent.mkdir(parents=True, exist_ok=True)
        content = (tmp_path / file.name).read_bytes()[: file.size] if file.content is None else file.content
        (copy / file.name).write_bytes(content)
    reader = SegmentReader(RealDisk(copy))
    found = reader.read(3, 0, 1000, 1000, 1 << 30)
    reader.close()
    assert len(found.bodies) == 50
    assert not found.damage
    append(RealDisk(copy), 50, 60)  # whoever goes on with it finds the right end
    reader = SegmentReader(RealDisk(copy))
    assert len(reader.read(3, 0, 1000, 1000, 1 << 30).bodies) == 60
    reader.close()


def test_a_queue_the_table_does_not_know_is_left_out(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    append(disk, 0, 10)
    plan = Plan()
    plan_segments(disk, plan, {})
    assert plan.files == []
    plan_segments(disk, plan, {3: 0})
    assert plan.files == []
    plan_segments(disk, plan, {3: 10})
    assert [file.name for file in plan.files] == [segment_name(3, 0), index_name(3, 0)]
