"""One table and its journal: the driver's side of a write.

A batch goes through here whole: known batches are dropped, the columns are checked and added, the journal promises, the
files get their names, the format commits, the journal forgets. Each step is a call, so that a test can stop after it.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa

from pyspark_millstream.lake.columns import new_columns
from pyspark_millstream.lake.faults import LakeError
from pyspark_millstream.lake.journal import ONE_TIME, STATE_FOLDER, Journal
from pyspark_millstream.lake.manifest import Manifest
from pyspark_millstream.lake.partitioning import (
    PartitionField,
    check_fields,
    default_fields,
    fields_text,
    parse_partition_by,
)
from pyspark_millstream.lake.table import LakeTable, TableFacts

PARQUET: Final = "parquet"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMATS: Final = (PARQUET, DELTA, ICEBERG)


class Lake:
    """A table in a folder. Make one per process; it holds no files open."""

    def __init__(self, root: Path, table: LakeTable) -> None:
        self.root = root
        self.table = table
        self.journal = Journal(root)

    def plan(self, schema: pa.Schema, partition_by: str | None) -> tuple[PartitionField, ...]:
        """Check the rows against the table (or the wish for a new one) and answer its folders. Changes nothing."""
        facts = self.table.find_facts()
        wanted = None if partition_by is None else parse_partition_by(partition_by)
        if facts is None:
            fields = default_fields(schema) if wanted is None else wanted
            check_fields(fields, schema)
            return fields
        if wanted is not None and wanted != facts.fields:
            raise LakeError(
                f"the table {self.root} is partitioned by {fields_text(facts.fields)}, not by {fields_text(wanted)}",
                "Leave partitionBy out, or write to another folder.",
            )
        check_fields(facts.fields, schema)
        new_columns(facts.schema, schema, str(self.root))
        return facts.fields

    def commit(self, manifest: Manifest) -> bool:
        """Make the batch part of the table; False: it was there already."""
        with self.journal.lock():
            self.recover()
            if self.is_done(manifest):
                self.discard(manifest)
                return False
            self.fit_columns(manifest)
            self.journal.begin(manifest)
            self.complete(manifest)
            self.journal.sweep(manifest.query, manifest.batch, time.time())
            return True

    def recover(self) -> int:
        """Finish the batches that a process began and did not live to finish; how many. Under the lock."""
        begun = self.journal.begun()
        for manifest in begun:
            self.fit_columns(manifest)
            self.complete(manifest)
        return len(begun)

    def is_done(self, manifest: Manifest) -> bool:
        if manifest.batch <= self.journal.last_batch(manifest.query):
            return True
        return self.table.find_facts() is not None and manifest.batch <= self.table.last_batch(manifest.query)

    def fit_columns(self, manifest: Manifest) -> None:
        """Make the table, or add the columns it lacks."""
        facts = self.table.find_facts()
        if facts is None:
            self.table.create(TableFacts(manifest.schema, parse_partition_by(manifest.partition_by)))
            return
        if fields_text(facts.fields) != manifest.partition_by:
            raise LakeError(
                f"the table {self.root} was made anew while rows were written to it", "Start the query again."
            )
        added = new_columns(facts.schema, manifest.schema, str(self.root))
        if added:
            self.table.add_columns(added)

    def complete(self, manifest: Manifest) -> None:
        """From the promise to the end; every step may have been done before."""
        self.journal.move(manifest)
        if manifest.batch > self.table.last_batch(manifest.query):
            self.table.publish(manifest)
        self.journal.finish(manifest, is_remembered=not manifest.query.startswith(ONE_TIME))

    def discard(self, manifest: Manifest) -> None:
        """Remove the files of a batch that will not be part of the table."""
        for file in manifest.files:
            (self.root / file.staged).unlink(missing_ok=True)
        shutil.rmtree(self.journal.staging_folder(manifest.query, manifest.batch), ignore_errors=True)


def open_lake(path: str, table_format: str | None = None) -> Lake:
    """The table in this folder, or the place for a new one; without a format: that of the table, or Parquet."""
    root = local_folder(path)
    found = find_format(root)
    if table_format is not None and found is not None and found != table_format:
        raise LakeError(
            f"{root} holds a table of the format {found}, not {table_format}", f"Set tableFormat={found}."
        )
    return Lake(root, _table_of(root, table_format or found or PARQUET))


def local_folder(path: str) -> Path:
    parts = urlsplit(path)
    if parts.scheme not in ("", "file") or parts.netloc:
        raise LakeError(
            f"the lake writes to folders that driver and executors share, not to {parts.scheme}://",
            "Give a path, and mount the store there if it is elsewhere.",
        )
    folder = path.removeprefix("file://").removeprefix("file:") if parts.scheme else path
    if not folder.strip():
        raise LakeError("the lake needs a folder for its table", "Add .option('path', '/data/lake/events').")
    return Path(folder).absolute()


def find_format(root: Path) -> str | None:
    """What kind of table lies there; None: none."""
    if (root / "_delta_log").is_dir():
        return DELTA
    if (root / STATE_FOLDER / "catalog.db").is_file():
        return ICEBERG
    return PARQUET if (root / STATE_FOLDER / "table.json").is_file() else None


def _table_of(root: Path, table_format: str) -> LakeTable:
    if table_format not in FORMATS:
        raise LakeError(f"there is no table format `{table_format}`", f"Choose one of {', '.join(FORMATS)}.")
    if root.exists() and not root.is_dir():
        raise LakeError(f"{root} is a file, not a folder", "Give the lake a folder of its own.")
    try:
        if table_format == DELTA:
            from pyspark_millstream.lake.delta_table import DeltaLakeTable

            return DeltaLakeTable(root)
        if table_format == ICEBERG:
            from pyspark_millstream.lake.iceberg_table import IcebergLakeTable

            if set("?#%") & set(str(root)):
                raise LakeError(f"an Iceberg table cannot lie in {root}", "Use a path without ?, # and %.")
            return IcebergLakeTable(root)
    except ImportError as fault:
        raise LakeError(
            f"tableFormat={table_format} needs the package {fault.name}, which is not installed",
            "Type: pip install 'millstream-spark[lake]'",
        ) from None
    from pyspark_millstream.lake.parquet_table import ParquetTable

    return ParquetTable(root)


def files_of(path: str) -> list[str]:
    """The data files readers of the table see now: for engines that cannot read its format."""
    return [file.path for file in open_lake(path).table.files()]
