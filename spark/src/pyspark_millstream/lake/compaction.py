"""Small files become large ones, beside running writers and readers: `compact("/data/lake/events")`.

- Parquet: the new folder of a partition changes places with the old one in one step. Whoever lists it sees all rows
  once; who listed it before and opens a file after gets "file not found", never a wrong number of rows.
- Delta, Iceberg: one commit of the format replaces the files; readers of an older version keep theirs.

Invariant: one compaction at a time; files are rewritten without the table's lock and replaced under it.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as pds

from pyspark_millstream.lake.faults import LakeError
from pyspark_millstream.lake.file_writer import FolderWriter
from pyspark_millstream.lake.journal import sync_folder
from pyspark_millstream.lake.manifest import StagedFile
from pyspark_millstream.lake.store import DELTA, ICEBERG, Lake, find_format, open_lake
from pyspark_millstream.lake.swap import exchange
from pyspark_millstream.lake.table import TableFacts, TableFile
from pyspark_millstream.lake.writer_settings import ROW_GROUP_ROWS, WriterSettings

TARGET_BYTES: Final = 128 << 20
SMALL_SHARE: Final = 0.75  # a file of at least this share of the target stays as it is
COMPACT_LOCK: Final = "compact-lock"
COMPACT_WAIT_S: Final = 1.0
READ_ROWS: Final = 100_000


@dataclass(frozen=True)
class CompactionReport:
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int

    def __str__(self) -> str:
        return (
            f"{self.files_before:,} files ({self.bytes_before:,} bytes) before, "
            f"{self.files_after:,} files ({self.bytes_after:,} bytes) after"
        )


def compact(path: str, target_bytes: int = TARGET_BYTES) -> CompactionReport:
    """Rewrite the small files of each partition into files of about `target_bytes`."""
    lake = open_lake(path)
    facts = lake.table.find_facts()
    if facts is None:
        raise LakeError(f"there is no table in {lake.root}", "Name the folder a table was written to.")
    with lake.journal.lock(COMPACT_LOCK, COMPACT_WAIT_S):
        with lake.journal.lock():
            lake.recover()
        before = lake.table.files()
        _compact_table(lake, facts, before, target_bytes)
        after = lake.table.files()
    return CompactionReport(
        len(before),
        sum(file.size_bytes for file in before),
        len(after),
        sum(file.size_bytes for file in after),
    )


def _compact_table(lake: Lake, facts: TableFacts, files: Sequence[TableFile], target_bytes: int) -> None:
    table_format = find_format(lake.root)
    if table_format == DELTA:
        _compact_delta(lake, target_bytes)
    elif table_format == ICEBERG:
        _compact_iceberg(lake, facts, files, target_bytes)
    else:
        _compact_parquet(lake, facts, files, target_bytes)


def plan_bins(files: Sequence[TableFile], target_bytes: int) -> list[list[TableFile]]:
    """Small files of one folder that become one, in the order of their names; a lone one is left alone."""
    bins: list[list[TableFile]] = []
    for folder in dict.fromkeys(os.path.dirname(file.path) for file in files):
        current: list[TableFile] = []
        size = 0
        for file in files:
            if os.path.dirname(file.path) != folder or file.size_bytes >= target_bytes * SMALL_SHARE:
                continue
            if current and size + file.size_bytes > target_bytes:
                bins.append(current)
                current, size = [], 0
            current.append(file)
            size += file.size_bytes
        bins.append(current)
    return [one for one in bins if len(one) > 1]


def _merged(
    lake: Lake, staging: Path, schema: pa.Schema, files: Sequence[TableFile], name: str
) -> list[StagedFile]:
    """The rows of these files in one new file; columns a file lacks are null."""
    settings = WriterSettings(file_bytes_max=1 << 40)
    # Without partition fields: the rows are of one folder already.
    writer = FolderWriter(staging, staging, schema, (), lake.table.keeps_sources, name, settings)
    try:
        for batch in _batches(files, schema):
            writer.add(batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _batches(files: Sequence[TableFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    source = pds.dataset([file.path for file in files], format="parquet", schema=schema)
    for batch in source.to_batches(batch_size=READ_ROWS, use_threads=False):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


# ------------------------------------------------------------------- Parquet


def _compact_parquet(lake: Lake, facts: TableFacts, files: Sequence[TableFile], target_bytes: int) -> None:
    # Beside the table and not in it: DuckDB and Polars walk hidden folders too.
    beside = f".{lake.root.name}-compact-"
    for left in lake.root.parent.iterdir():
        if re.fullmatch(re.escape(beside) + "[0-9a-f]{32}", left.name):
            shutil.rmtree(left, ignore_errors=True)  # of a compaction that died: only one runs at a time
    bins = plan_bins(files, target_bytes)
    if not bins:
        return
    if not facts.fields:
        raise LakeError(
            f"the table {lake.root} has no partition folders, so its one folder cannot be exchanged while it is written",
            "Write it with partitionBy, or as delta or iceberg.",
        )
    workshop = lake.root.parent / f"{beside}{uuid.uuid4().hex}"
    in_folders = {field.source for field in facts.fields if not field.is_derived}
    schema = pa.schema([field for field in facts.schema if field.name not in in_folders])
    try:
        for folder in dict.fromkeys(os.path.dirname(one[0].path) for one in bins):
            own = [one for one in bins if os.path.dirname(one[0].path) == folder]
            _replace_folder(lake, Path(folder), own, schema, workshop / uuid.uuid4().hex)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _replace_folder(
    lake: Lake, folder: Path, bins: Sequence[list[TableFile]], schema: pa.Schema, fresh: Path
) -> None:
    fresh.mkdir(parents=True)
    for files in bins:
        for staged in _merged(lake, fresh, schema, files, "compact"):
            os.rename(fresh / staged.staged, fresh / staged.target)
    replaced = {os.path.basename(file.path) for files in bins for file in files}
    with lake.journal.lock():
        lake.recover()
        present = set(os.listdir(folder))
        if not replaced <= present:
            return  # somebody removed rows meanwhile: leave this folder for the next time
        for name in sorted(present - replaced):
            os.link(folder / name, fresh / name)  # what came meanwhile, and what is large enough
        sync_folder(fresh)
        exchange(folder, fresh)
        sync_folder(folder.parent)
    shutil.rmtree(fresh, ignore_errors=True)


# --------------------------------------------------------------------- Delta


def _compact_delta(lake: Lake, target_bytes: int) -> None:
    from deltalake import WriterProperties

    from pyspark_millstream.lake.delta_table import DeltaLakeTable

    assert isinstance(lake.table, DeltaLakeTable)
    properties = WriterProperties(compression="ZSTD", max_row_group_size=ROW_GROUP_ROWS)
    lake.table.open().optimize.compact(target_size=target_bytes, writer_properties=properties)


# ------------------------------------------------------------------- Iceberg


def _compact_iceberg(lake: Lake, facts: TableFacts, files: Sequence[TableFile], target_bytes: int) -> None:
    from pyspark_millstream.lake.iceberg_table import IcebergLakeTable

    assert isinstance(lake.table, IcebergLakeTable)
    if not lake.table.can_match_by_name():
        raise LakeError(
            f"columns of the table {lake.root} were renamed or dropped, so its files cannot be merged by name",
            "Compact it with an engine that rewrites Iceberg files.",
        )
    for one in plan_bins(files, target_bytes):
        staging = lake.journal.staging_folder(f"compact.{uuid.uuid4().hex}", 0)
        folder = Path(one[0].path).parent
        fresh = []
        for staged in _merged(lake, staging, facts.schema, one, "compact"):
            target = folder / staged.target
            os.rename(staging / staged.staged, target)
            fresh.append(replace(staged, target=target.relative_to(lake.root).as_posix()))
        sync_folder(folder)
        shutil.rmtree(staging, ignore_errors=True)
        with lake.journal.lock():
            lake.recover()
            if not lake.table.replace([file.path for file in one], fresh):
                for file in fresh:
                    (lake.root / file.target).unlink(missing_ok=True)
