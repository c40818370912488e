"""A mark counts whole, and of its own kind and version, or is unclear; it takes its place in one step."""

from __future__ import annotations

import pytest

from millstream.storage.disk import DiskFault
from millstream.storage.marks.mark_file import MarkFile, UnclearMark
from simulation.disk import Mood, PowerCut, SimulatedDisk

NAME = "mark"
FILE = MarkFile(NAME, 0x4B52414D, 3, body_max=16)
BODY = b"what it says"


def is_unclear(data: bytes, file: MarkFile = FILE) -> bool:
    try:
        file.decode(data)
    except UnclearMark:
        return True
    return False


def test_a_body_comes_back_as_it_was_written() -> None:
    disk = SimulatedDisk(1)
    for body in (b"", BODY, bytes(16)):
        FILE.write(disk, body)
        assert FILE.find(disk) == body


def test_a_mark_that_is_cut_or_changed_anywhere_is_unclear() -> None:
    data = FILE.encode(BODY)
    assert [size for size in range(len(data)) if not is_unclear(data[:size])] == []
    for at in range(len(data)):
        assert is_unclear(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert is_unclear(data + b"\0")


@pytest.mark.parametrize("other", [MarkFile(NAME, 0x4B52414E, 3, 16), MarkFile(NAME, 0x4B52414D, 4, 16)])
def test_a_mark_of_another_kind_or_version_is_unclear(other: MarkFile) -> None:
    assert is_unclear(other.encode(BODY))


def test_a_mark_that_is_longer_than_any_may_be_is_unclear() -> None:
    disk = SimulatedDisk(1)
    disk.replace(NAME, FILE.encode(bytes(17)))
    with pytest.raises(UnclearMark):
        FILE.find(disk)


def test_a_mark_that_cannot_be_read_is_unclear_and_one_that_is_not_there_is_none() -> None:
    disk = SimulatedDisk(1)
    assert FILE.find(disk) is None
    FILE.write(disk, BODY)
    disk.fail_next("read")
    with pytest.raises(UnclearMark):
        FILE.find(disk)
    assert FILE.find(disk) == BODY


def test_only_a_mark_that_is_not_there_counts_as_missing() -> None:
    disk = SimulatedDisk(1)
    for _ in range(2):
        disk.fail_next("open")
        FILE.write(disk, BODY)
        with pytest.raises(DiskFault, match=f"{NAME}: Input/output error"):
            FILE.find(disk)
    assert FILE.find(disk) == BODY


@pytest.mark.parametrize("mood", list(Mood))
def test_power_that_goes_while_a_mark_is_replaced_leaves_the_old_one_or_the_new_one(mood: Mood) -> None:
    seen: set[bytes | None] = set()
    for step in range(1, 12):
        disk = SimulatedDisk(1)
        FILE.write(disk, b"old")
        disk.cut_power_at = disk.steps + step
        try:
            FILE.write(disk, b"new")
            was_written = True
        except PowerCut:
            was_written = False
        found = FILE.find(disk.crash(mood))
        assert found == b"new" or (found == b"old" and not was_written)
        seen.add(found)
    assert seen == {b"old", b"new"}
