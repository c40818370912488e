"""A manifest that is older than the log, and a run of a release without manifests in between, cost nothing that is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import structlog
from test_storage_manifest import ignore
from test_storage_seal import durable_of, make_millstream, make_stream, offsets, publish

from millstream.broker.conditions import STORAGE_DAMAGED
from millstream.maintenance.repair import repair_storage
from millstream.maintenance.survey import Survey, survey_storage
from millstream.runtime.disk.data_folder import StorageFault, open_folder
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.manifest import NAME, Incomplete
from millstream.storage.segments.inventory import PREFIX
from millstream.storage.table.checkpoint import GENERATION, LISTED_AT


async def run(data_dir: Path, count: int, is_sealed: bool) -> None:
    async with make_millstream(data_dir) as millstream:
        queue = make_stream(millstream)
        await publish(millstream, queue, count)
        if is_sealed:
            await durable_of(millstream).seal()
            await publish(millstream, queue, count)


async def stored(data_dir: Path) -> list[int]:
    async with make_millstream(data_dir) as millstream:
        queue = make_stream(millstream)
        await durable_of(millstream).seal()
        return offsets(data_dir, queue)


def survey(data_dir: Path) -> Survey:
    return survey_storage(data_dir, ignore)


async def test_logs_that_a_manifest_copied_back_does_not_name_are_used_and_it_is_named(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    async with make_millstream(data_dir):
        pass  # a log that is left to the next start is folded there, and the table then knows of a newer manifest
    older = shutil.copyfile(data_dir / NAME, tmp_path / "older")
    await run(data_dir, 5, is_sealed=False)
    shutil.copyfile(older, data_dir / NAME)
    found = survey(data_dir)
    assert not found.is_damaged()
    assert [finding.file for finding in found.findings if not finding.kind] == [NAME]
    directory, _ = open_folder(RealDisk(data_dir), data_dir)
    assert [notice.name for notice in directory.notices] == [NAME]
    assert open_folder(RealDisk(data_dir), data_dir)[0].notices == []
    assert await stored(data_dir) == list(range(5))


async def test_a_repair_keeps_the_logs_that_a_manifest_older_than_the_table_does_not_name(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    await run(data_dir, 5, is_sealed=False)
    older = shutil.copyfile(data_dir / NAME, tmp_path / "older")
    await run(data_dir, 5, is_sealed=True)
    shutil.copyfile(older, data_dir / NAME)
    with pytest.raises(Incomplete, match="manifest is older than the table"):
        open_folder(RealDisk(data_dir), data_dir)
    repair_storage(data_dir, survey(data_dir))
    assert not survey(data_dir).is_damaged()
    assert await stored(data_dir) == list(range(15))


def find_segment(data_dir: Path) -> Path:
    (segment,) = data_dir.glob("queues/*/*.segment")
    return segment


def remove_segment(data_dir: Path) -> str:
    segment = find_segment(data_dir)
    segment.unlink()
    return segment.name


class OlderRelease:
    """Undoes what a release without manifests would not have written."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._manifest = (data_dir / NAME).read_bytes()
        self._entries = self._read()

    def _read(self) -> dict[bytes, bytes]:
        table = LmdbTable(self._data_dir / "state")
        try:
            found = dict(table.items(PREFIX))
            return found | {key: table.get(key) or b"" for key in (GENERATION, LISTED_AT)}
        finally:
            table.close()

    def undo(self) -> None:
        (self._data_dir / NAME).write_bytes(self._manifest)
        table = LmdbTable(self._data_dir / "state")
        try:
            for key in [key for key, _ in table.items(PREFIX)]:
                table.delete(key)
            for key, value in self._entries.items():
                table.put(key, value)
            table.commit()
        finally:
            table.close()


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_what_a_release_without_manifests_wrote_in_between_is_taken_over(
    tmp_path: Path, is_sealed: bool
) -> None:
    await run(tmp_path, 5, is_sealed=False)
    older = OlderRelease(tmp_path)
    await run(tmp_path, 5, is_sealed)
    older.undo()
    found = survey(tmp_path)
    assert not found.is_damaged()
    count = 15 if is_sealed else 10
    assert await stored(tmp_path) == list(range(count))
    assert not [finding for finding in survey(tmp_path).findings if not finding.kind]


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_a_run_of_an_older_release_is_told_and_is_no_damage(tmp_path: Path, is_sealed: bool) -> None:
    await run(tmp_path, 5, is_sealed=False)
    older = OlderRelease(tmp_path)
    await run(tmp_path, 5, is_sealed)
    older.undo()
    with structlog.testing.capture_logs() as lines:
        async with make_millstream(tmp_path) as millstream:
            assert millstream.health.find(STORAGE_DAMAGED) is None
    told = [line["text"] for line in lines if line["event"] == "storage_adopted"]
    assert told
    assert not [text for text in told if "from now on" in text]  # it had a manifest before
    assert not [line for line in lines if line["event"] == "storage_damaged"]


async def test_a_start_that_is_refused_lets_the_directory_go(tmp_path: Path) -> None:
    await run(tmp_path, 5, is_sealed=True)
    segment = find_segment(tmp_path)
    data = segment.read_bytes()
    segment.unlink()
    with pytest.raises(StorageFault, match="is missing"):
        make_millstream(tmp_path)
    segment.write_bytes(data)
    assert await stored(tmp_path) == list(range(10))


async def test_the_segments_it_left_are_missed_from_then_on(tmp_path: Path) -> None:
    await run(tmp_path, 5, is_sealed=False)
    older = OlderRelease(tmp_path)
    await run(tmp_path, 5, is_sealed=True)
    older.undo()
    assert await stored(tmp_path) == list(range(15))
    name = remove_segment(tmp_path)
    with pytest.raises(StorageFault, match=f"{name} is missing"):
        await stored(tmp_path)
