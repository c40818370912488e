"""The reader gives the same rows from compressed segments as from others, and from a queue that has both."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.model.message import Message
from millstream.reader.arrow import SegmentBatches
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.records.queue_records import QueueRecord, encode_record
from millstream.storage.segments.writer import SegmentWriter
from simulation.disk import SimulatedDisk

COUNT = 3000
START_NS = 1_700_000_000_000_000_000


def make_record(offset: int) -> bytes:
    payload = b'{"reading": %d}' % (offset * 31 % 977) * (offset % 40)
    message = Message(b"site/%d/heat" % (offset % 7), payload, 1, False, b"", 0, f"device-{offset % 5}")
    return encode_record(1, QueueRecord(offset, START_NS + offset, 0, 0, b"", 0), message, 0)


def write(kinds: list[bool]) -> SimulatedDisk:
    """Part by part, each compressed or not."""
    disk = SimulatedDisk()
    part = COUNT // len(kinds)
    for number, is_packed in enumerate(kinds):
        writer = SegmentWriter(disk, NoFailpoints(), 300_000, is_packed)
        for offset in range(number * part, (number + 1) * part):
            writer.append(1, make_record(offset))
        writer.finish()
    return disk


def read(disk: SimulatedDisk, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in SegmentBatches(disk, 1, "plant", 10, COUNT - 10, **options):
        batch.validate(full=True)
        rows += batch.to_pylist()
    return rows


@pytest.mark.parametrize("kinds", [[True], [True, False], [False, True, True], [False, True, False, True]])
@pytest.mark.parametrize("options", [{}, {"columns": ["offset", "payload"]}], ids=["all", "some"])
def test_rows_do_not_depend_on_what_is_compressed(kinds: list[bool], options: dict[str, Any]) -> None:
    rows = read(write(kinds), **options)
    assert rows == read(write([False]), **options)
    assert len(rows) == COUNT - 20
