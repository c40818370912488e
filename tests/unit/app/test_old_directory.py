"""A data directory of a release without manifests is taken over at its first start, and nothing of it is lost."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from millstream.maintenance.backup import count_state
from millstream.maintenance.survey import survey_storage
from millstream.runtime.disk.data_folder import open_folder, read_state
from millstream.runtime.disk.files import RealDisk
from millstream.storage.manifest import Incomplete
from millstream.storage.records.queue_records import decode_record_message, record_offset
from millstream.storage.segments.reader import SegmentReader

# Written by the release before manifests, killed at the end: see crash/damage_world.py for what is in it.
ARCHIVE = Path(__file__).parents[2] / "vectors" / "data_directory_without_manifest.tar.xz"
STREAM = 1
COUNTS = {
    "sessions": 3,
    "subscriptions": 3,
    "deliveries": 36,
    "wills": 0,
    "retained": 12,
    "queues": 5,
    "records": 460,
    "exchanges": 2,
    "bindings": 2,
}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def ignore(step: str, done: int, total: int) -> None:
    pass


def streamed(data_dir: Path) -> dict[int, bytes]:
    reader = SegmentReader(RealDisk(data_dir))
    found = reader.read(STREAM, 0, 1000, 1000, 1 << 30)
    reader.close()
    assert not found.damage
    return {
        int(record_offset(body)): decode_record_message(body, 0).payload[:20].rpartition(b" ")[0]
        for body in found.bodies
    }


def test_all_it_holds_is_there_after_the_first_start_and_after_the_second(data_dir: Path) -> None:
    disk = RealDisk(data_dir)
    for is_first in (True, False):
        directory, found = open_folder(disk, data_dir)
        assert directory.is_adopted == is_first
        assert (directory.notices, directory.damage, found.damage) == ([], [], [])
        assert count_state(found.fold.state()) == COUNTS
    assert streamed(data_dir) == {number: b"own history %d" % number for number in range(300)}
    assert not survey_storage(data_dir, ignore).is_damaged()


def test_verify_finds_nothing_wrong_with_it_before_the_first_start(data_dir: Path) -> None:
    assert not survey_storage(data_dir, ignore).is_damaged()
    assert not (data_dir / "manifest").exists()
    assert count_state(read_state(RealDisk(data_dir), data_dir).state()) == COUNTS


@pytest.mark.parametrize("pattern", ["queues/1/*192.segment", "queues/2/*0.segment", "log/*.log", "manifest"])
def test_from_then_on_a_file_that_is_gone_is_missed(data_dir: Path, pattern: str) -> None:
    open_folder(RealDisk(data_dir), data_dir)
    (path, *_) = sorted(data_dir.glob(pattern))
    path.unlink()
    with pytest.raises(Incomplete, match=f"{path.relative_to(data_dir)} is missing"):
        open_folder(RealDisk(data_dir), data_dir)
