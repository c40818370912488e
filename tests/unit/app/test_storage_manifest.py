"""What a running broker writes into its manifest: no more than is so."""

from __future__ import annotations

import asyncio
from pathlib import Path

from test_storage_seal import durable_of, make_millstream, make_stream, publish

from millstream.broker.broker import DEFAULT_ACCOUNT
from millstream.maintenance.survey import survey_storage
from millstream.runtime.disk.checkpoint_lock import hold_checkpoints
from millstream.runtime.disk.data_folder import open_folder
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.log.files import file_name
from millstream.storage.manifest import Manifest, find_manifest
from millstream.storage.segments.format import folder_name
from millstream.storage.table.checkpoint import read_meta


def ignore(step: str, done: int, total: int) -> None:
    pass


def read_manifest(data_dir: Path) -> Manifest:
    found = find_manifest(RealDisk(data_dir))
    assert found is not None
    return found


def read_folded(data_dir: Path) -> tuple[int, int]:
    table = LmdbTable(data_dir / "state")
    try:
        sequence, file = read_meta(table)
    finally:
        table.close()
    return file, sequence


def flip_last_record(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data.rstrip(b"\0")) - 1] ^= 1
    path.write_bytes(data)


async def fold_damaged(data_dir: Path) -> None:
    """The last record of a file goes bad before the file is folded; nothing is told behind it."""
    async with make_millstream(data_dir) as millstream:
        queue = make_stream(millstream)
        await publish(millstream, queue, 5)
        await publish(millstream, queue, 5)
        with hold_checkpoints(data_dir):
            sealing = asyncio.create_task(durable_of(millstream).seal())
            await publish(millstream, queue, 1)
            async with asyncio.timeout(30):
                while durable_of(millstream)._files.current() < 2:  # noqa: ASYNC110 a thread of the log ends it
                    await asyncio.sleep(0.001)
            flip_last_record(data_dir / file_name(1))
        await sealing
        await publish(millstream, queue, 1)


async def test_the_manifest_claims_as_folded_what_the_table_has_committed(tmp_path: Path) -> None:
    await fold_damaged(tmp_path)
    manifest = read_manifest(tmp_path)
    assert (manifest.folded_file, manifest.folded_sequence) == read_folded(tmp_path)
    assert manifest.folded_file == 1


async def test_a_record_that_went_bad_before_it_was_folded_does_not_make_the_table_older_than_the_rest(
    tmp_path: Path,
) -> None:
    await fold_damaged(tmp_path)
    async with make_millstream(tmp_path) as millstream:
        assert make_stream(millstream).next == 12


async def test_the_folder_of_a_queue_that_was_deleted_and_not_folded_yet_belongs_to_nobody_else(
    tmp_path: Path,
) -> None:
    async with make_millstream(tmp_path) as millstream:
        queue = make_stream(millstream)
        await publish(millstream, queue, 5)
        await durable_of(millstream).seal()
        millstream.broker.get_account(DEFAULT_ACCOUNT).queues.catalog.delete(queue)
    assert any((tmp_path / folder_name(queue.number)).iterdir())
    assert not survey_storage(tmp_path, ignore).is_damaged()
    directory, found = open_folder(RealDisk(tmp_path), tmp_path)
    assert (directory.notices, found.damage) == ([], [])
    assert not found.fold.queues.queues
