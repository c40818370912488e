"""Damage beyond single bits: files that are missing, misplaced, of a newer release, or made by somebody who hopes for damage."""

from __future__ import annotations

import struct

import pytest
from google_crc32c import value
from log_content import make_batch

from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.format import (
    BATCH_HEAD_SIZE,
    FILE_HEADER_SIZE,
    VERSION,
    encode_batch_head,
)
from millstream.storage.log.recovery import RecoveredFile, read_file
from millstream.storage.log.write_ahead_log import Batch
from simulation.disk import SimulatedDisk
from simulation.failpoints import DeadlyFailpoints

FILE_SIZE = 4096
SALT = 12345  # what nobody outside knows


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(1)
    disk.make_folder(FOLDER)
    return disk


def write(disk: SimulatedDisk, *batches: Batch) -> list[int]:
    """Where each batch begins in the first file."""
    files = LogFiles(disk, DeadlyFailpoints(), FILE_SIZE, 1, 0, salt=SALT)
    starts, at = [], FILE_HEADER_SIZE
    for batch in batches:
        files.write(batch)
        starts.append(at)
        at += BATCH_HEAD_SIZE + len(batch.records)
    files.close()
    return starts


def bodies(found: RecoveredFile) -> list[bytes]:
    return [record.body for record in found.records]


def forged() -> bytes:
    """A whole batch of file 1, as a publisher may send it in a payload."""
    batch = make_batch(500, b"forged")
    return encode_batch_head(len(batch.records), 1, 1, 500, 0) + batch.records


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("where", ["head", "record", "behind"])
def test_a_payload_is_never_taken_for_a_batch(disk: SimulatedDisk, where: str, is_last: bool) -> None:
    starts = write(
        disk, make_batch(1, b"one"), make_batch(2, b"two" + forged() + b"end"), make_batch(3, b"three")
    )
    offset = {"head": 9, "record": BATCH_HEAD_SIZE + 10, "behind": BATCH_HEAD_SIZE + 9 + len(forged()) + 4}[
        where
    ]
    disk.flip_bit(file_name(1), starts[1] + offset)
    found = read_file(disk, file_name(1), is_last)
    assert b"forged" not in bodies(found)
    assert bodies(found) == [b"one", b"three"]
    assert len(found.damage) == 1


def test_a_torn_write_of_such_a_payload_is_cut_and_no_damage(disk: SimulatedDisk) -> None:
    starts = write(disk, make_batch(1, b"one"), make_batch(2, b"two" + forged() + b"end" * 300))
    disk.cut(file_name(1), starts[1] + BATCH_HEAD_SIZE + 400)
    found = read_file(disk, file_name(1), True)
    assert bodies(found) == [b"one"]
    assert not found.damage
    assert found.cut_at == starts[1]


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("with_batch", [True, False])
def test_a_newer_format_is_named_and_never_unused(
    disk: SimulatedDisk, is_last: bool, with_batch: bool
) -> None:
    head = struct.pack("<IIQQ", 0x4C57534D, VERSION + 1, 1, 0)
    rest = forged() if with_batch else b"batches of another kind"
    disk.replace(file_name(1), head + struct.pack("<I4x", value(head + bytes(4))) + rest)
    found = read_file(disk, file_name(1), is_last)
    assert not found.is_unused
    assert bodies(found) == []
    assert f"format {VERSION + 1}" in found.damage[0].text


@pytest.mark.parametrize("is_last", [True, False])
def test_a_file_with_the_number_of_another_is_named_and_never_unused(
    disk: SimulatedDisk, is_last: bool
) -> None:
    write(disk, make_batch(1, b"one"))
    disk.rename(file_name(1), file_name(2))
    found = read_file(disk, file_name(2), is_last)
    assert not found.is_unused
    assert bodies(found) == []
    assert "number 1" in found.damage[0].text


@pytest.mark.parametrize("size", [0, 1, FILE_HEADER_SIZE - 1, FILE_SIZE])
def test_a_last_file_whose_header_never_became_safe_is_unused(disk: SimulatedDisk, size: int) -> None:
    disk.replace(file_name(1), bytes(size))
    assert read_file(disk, file_name(1), True).is_unused
    found = read_file(disk, file_name(1), False)
    assert not found.is_unused
    assert found.damage


def test_blocks_of_zeros_are_named(disk: SimulatedDisk) -> None:
    starts = write(disk, *[make_batch(number, b"%d" % number * 200) for number in range(1, 9)])
    data = disk.content(file_name(1))
    for at in range(1, 7):
        for begin in (starts[at] - 5, starts[at], starts[at] + 3, starts[at] + BATCH_HEAD_SIZE):
            disk.replace(file_name(1), data[:begin] + bytes(100) + data[begin + 100 :])
            found = read_file(disk, file_name(1), True)
            assert found.damage
            assert len(bodies(found)) >= 6
            assert all(body in (b"%d" % number * 200 for number in range(1, 9)) for body in bodies(found))


def test_old_blocks_behind_the_end_are_not_taken(disk: SimulatedDisk) -> None:
    """What another file left in the same place has another number."""
    starts = write(disk, make_batch(1, b"one"))
    end = starts[0] + BATCH_HEAD_SIZE + 9 + 3
    stale = (
        encode_batch_head(len(make_batch(2, b"stale").records), 1, 7, 2, 0) + make_batch(2, b"stale").records
    )
    disk.replace(file_name(1), (disk.content(file_name(1))[:end] + stale).ljust(FILE_SIZE, b"\0"))
    found = read_file(disk, file_name(1), True)
    assert bodies(found) == [b"one"]
    assert not found.damage
