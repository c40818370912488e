"""What a task does: Arrow batches in, finished Parquet files in the staging folder out, one or more per folder.

Batches wait until they make a large row group. How much waits, how many files are open and how large one grows is
bounded. A finished file is on the disk (synced) before the task tells the driver about it.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_millstream.lake.journal import STAGED_SUFFIX, sync_file, sync_folder
from pyspark_millstream.lake.manifest import StagedFile
from pyspark_millstream.lake.partitioning import PartitionField, Values, folder_of
from pyspark_millstream.lake.splitting import Splitter
from pyspark_millstream.lake.writer_settings import WriterSettings

SAMPLES: Final = 8
SAMPLE_ROWS: Final = 64
SAMPLE_BYTES: Final = 16 << 10
DENSE_MIN: Final = 0.95  # compressed, it is still so much of what it was


@dataclass
class _OpenFile:
    values: Values
    path: Path
    target: str
    sink: pa.NativeFile
    writer: pq.ParquetWriter | None = (
        None  # made with the first row group: its rows say what is worth compressing
    )
    footers: list[pq.FileMetaData] = field(default_factory=list)
    rows: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0


class FolderWriter:
    """Writes batches of one schema into files by folder; `finish` closes all and tells what there is."""

    def __init__(
        self,
        root: Path,
        staging: Path,
        schema: pa.Schema,
        fields: Sequence[PartitionField],
        keep_sources: bool,
        prefix: str,
        settings: WriterSettings,
    ) -> None:
        self._root = root
        self._staging = staging
        self._fields = tuple(fields)
        self._splitter = Splitter(fields, keep_sources)
        self._keeps_sources = keep_sources
        self._prefix = prefix
        self._settings = settings
        dropped = set() if keep_sources else {one.source for one in fields if not one.is_derived}
        self._schema = pa.schema([one for one in schema if one.name not in dropped])
        self._encoding, self._leaves = _encoding_of(self._schema, has_all_bounds=keep_sources)
        self._opaque = [one.name for one in self._schema if pa.types.is_binary(one.type)]
        self._open: dict[Values, _OpenFile] = {}
        self._done: list[StagedFile] = []
        self._waiting_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        for values, part in self._splitter.split(batch):
            self._add_part(values, part)

    def finish(self) -> list[StagedFile]:
        for values in list(self._open):
            self._close(values)
        if self._done:
            sync_folder(self._staging)
        return self._done

    def abandon(self) -> None:
        """The task failed: close and remove what it wrote."""
        for file in self._open.values():
            with contextlib.suppress(
                pa.ArrowException, OSError
            ):  # it may be what failed, and the file goes anyway
                if file.writer is not None:
                    file.writer.close()
            file.sink.close()
            file.path.unlink(missing_ok=True)
        for done in self._done:
            (self._root / done.staged).unlink(missing_ok=True)
        self._open.clear()

    def _add_part(self, values: Values, part: pa.RecordBatch) -> None:
        file = self._open.get(values)
        if file is None:
            file = self._open_file(values)
        size = part.nbytes
        file.waiting.append(part)
        file.waiting_rows += part.num_rows
        file.waiting_bytes += size
        self._waiting_bytes += size
        settings = self._settings
        if file.waiting_rows >= settings.row_group_rows or file.waiting_bytes >= settings.row_group_bytes:
            self._flush(file)
            if file.sink.tell() >= settings.file_bytes_max:
                self._close(values)
        elif self._waiting_bytes >= settings.buffer_bytes_max:
            self._flush(max(self._open.values(), key=lambda one: one.waiting_bytes))

    def _open_file(self, values: Values) -> _OpenFile:
        if len(self._open) >= self._settings.files_open_max:
            self._close(next(iter(self._open)))  # the one opened first
        self._staging.mkdir(parents=True, exist_ok=True)
        name = f"{self._prefix}-{uuid.uuid4().hex[:12]}"
        folder = folder_of(self._fields, values)
        if self._keeps_sources:
            folder = folder.replace(
                "%", "_"
            )  # nobody reads values from it, and an Iceberg location has no escapes
        path = self._staging / f"{name}{STAGED_SUFFIX}"
        sink = pa.OSFile(str(path), "wb")
        target = f"{folder}/{name}.parquet" if folder else f"{name}.parquet"
        self._open[values] = file = _OpenFile(values, path, target, sink)
        return file

    def _flush(self, file: _OpenFile) -> None:
        if not file.waiting:
            return
        table = pa.Table.from_batches(file.waiting, self._schema)
        if file.writer is None:
            file.writer = self._make_writer(file, table)
        file.writer.write_table(table, row_group_size=max(1, table.num_rows))
        file.rows += table.num_rows
        self._waiting_bytes -= file.waiting_bytes
        file.waiting, file.waiting_rows, file.waiting_bytes = [], 0, 0

    def _make_writer(self, file: _OpenFile, first: pa.Table) -> pq.ParquetWriter:
        compression = dict.fromkeys(self._leaves, self._settings.compression)
        for name in self._opaque:
            if _is_dense(first.column(name), self._settings.compression):
                compression[name] = "none"
        return pq.ParquetWriter(
            file.sink,
            self._schema,
            compression=compression,
            version="2.6",
            store_schema=False,
            metadata_collector=file.footers,
            **self._encoding,
        )

    def _close(self, values: Values) -> None:
        file = self._open[values]
        self._flush(file)
        assert file.writer is not None, "a file is opened for its first rows"
        file.writer.close()
        file.sink.close()
        del self._open[values]
        sync_file(file.path)
        staged = file.path.relative_to(self._root).as_posix()
        size_bytes = os.path.getsize(file.path)
        stats = json.dumps(_stats_of(file.footers[0], file.rows))
        self._done.append(StagedFile(staged, file.target, file.values, file.rows, size_bytes, stats))


def _encoding_of(schema: pa.Schema, has_all_bounds: bool) -> tuple[dict[str, object], list[str]]:
    """Which columns get a dictionary, which numbers are kept as differences, which have a minimum and maximum; and the
    paths of all columns.

    A payload is different in every row: a dictionary and a minimum of it would be paid for and never used. Iceberg
    wants a minimum of every column.
    """
    sample = pa.BufferOutputStream()
    pq.ParquetWriter(sample, schema, store_schema=False).close()
    leaves = pq.ParquetFile(pa.BufferReader(sample.getvalue())).schema
    dictionaries, bounded, encodings = [], [], {}
    for place in range(len(leaves.names)):
        leaf = leaves.column(place)
        is_opaque = leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type == "NONE"
        if (
            leaf.physical_type == "INT64"
            and leaf.max_repetition_level == 0
            and leaf.logical_type.type != "DECIMAL"
        ):
            encodings[leaf.path] = "DELTA_BINARY_PACKED"
        elif not is_opaque:
            dictionaries.append(leaf.path)
        if has_all_bounds or not is_opaque:
            bounded.append(leaf.path)
    paths = [leaves.column(place).path for place in range(len(leaves.names))]
    encoding: dict[str, object] = {
        "use_dictionary": dictionaries,
        "write_statistics": bounded,
        "column_encoding": encodings or None,
    }
    return encoding, paths


def _is_dense(column: pa.ChunkedArray, codec: str) -> bool:
    """Whether compressing it would be work for nothing, as for payloads that are compressed or encrypted already: told
    from samples of all its parts."""
    if codec == "none":
        return False
    parts = [chunk for chunk in column.chunks if len(chunk)]
    step = max(1, len(parts) // SAMPLES)
    sample = b"".join([_first_bytes(part) for part in parts[::step]])
    return len(sample) > 0 and len(pa.compress(sample, codec, asbytes=True)) > DENSE_MIN * len(sample)


def _first_bytes(chunk: pa.BinaryArray) -> bytes:
    rows = chunk.slice(0, SAMPLE_ROWS).drop_null().to_pylist()
    return b"".join(rows)[:SAMPLE_BYTES]


def _stats_of(footer: pq.FileMetaData, rows: int) -> dict[str, object]:
    """Minimum, maximum and nulls of the plain columns of numbers and times, as the Delta log wants them."""
    least: dict[str, object] = {}
    most: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for place in range(footer.num_columns):
        groups = [footer.row_group(group).column(place) for group in range(footer.num_row_groups)]
        name = groups[0].path_in_schema if groups else ""
        known = [group.statistics for group in groups]
        if not groups or "." in name or any(one is None or not one.has_null_count for one in known):
            continue
        nulls[name] = sum(one.null_count for one in known)
        bounds = [one for one in known if one.has_min_max]
        if not bounds or len(bounds) != sum(one.num_values > 0 for one in known):
            continue
        try:
            first, last = min(one.min for one in bounds), max(one.max for one in bounds)
        except (OverflowError, ValueError):  # a time no calendar has
            continue
        if isinstance(first, int | date):
            least[name], most[name] = _json_value(first), _json_value(last)
    return {"numRecords": rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        text = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return text.isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    return value.isoformat() if isinstance(value, date) else value
