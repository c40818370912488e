"""A Delta table written without Spark's Delta jar: one log entry per batch, which also names query and batch.

The entry carries a Delta transaction (query, batch), so whoever reads the log can tell that the batch is there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.schema import Field
from deltalake.transaction import AddAction

from pyspark_millstream.lake.columns import plain_columns
from pyspark_millstream.lake.journal import sync_file, sync_folder
from pyspark_millstream.lake.manifest import Manifest
from pyspark_millstream.lake.partitioning import (
    IDENTITY,
    PartitionField,
    Values,
    derived_type,
    fields_text,
    parse_partition_by,
)
from pyspark_millstream.lake.table import LakeTable, TableFacts, TableFile

LOG_FOLDER: Final = "_delta_log"
PARTITION_KEY: Final = "millstream.partitionBy"


class DeltaLakeTable(LakeTable):
    keeps_sources = False

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._table: DeltaTable | None = None

    def find_facts(self) -> TableFacts | None:
        if not (self.root / LOG_FOLDER).is_dir():
            return None
        table = self.open()
        metadata = table.metadata()
        fields = _fields_of(metadata.configuration.get(PARTITION_KEY), metadata.partition_columns)
        derived = {field.name for field in fields if field.is_derived}
        columns = plain_columns(pa.schema(table.schema().to_arrow()))
        return TableFacts(pa.schema([column for column in columns if column.name not in derived]), fields)

    def create(self, facts: TableFacts) -> None:
        derived = [
            pa.field(one.name, derived_type(one, facts.schema)) for one in facts.fields if one.is_derived
        ]
        self._table = DeltaTable.create(
            str(self.root),
            schema=Schema.from_arrow(pa.schema([*facts.schema, *derived])),
            partition_by=[field.name for field in facts.fields],
            configuration={PARTITION_KEY: fields_text(facts.fields)},
            raise_if_key_not_exists=False,
        )

    def add_columns(self, added: Sequence[pa.Field]) -> None:
        fields: list[Field] = list(Schema.from_arrow(pa.schema(added)).fields)
        self.open().alter.add_columns(fields)

    def last_batch(self, query: str) -> int:
        version = self.open().transaction_version(query)
        return -1 if version is None else version

    def publish(self, manifest: Manifest) -> None:
        table = self.open()
        names = table.metadata().partition_columns
        now_ms = int(time.time() * 1000)
        actions = [
            AddAction(
                file.target,
                file.size_bytes,
                dict(zip(names, (value or None for value in file.values), strict=True)),
                now_ms,
                True,
                file.stats,
            )
            for file in manifest.files
        ]
        table.create_write_transaction(
            list(actions),
            mode="append",
            schema=table.schema(),
            partition_by=names,
            commit_properties=CommitProperties(
                custom_metadata={"millstream.query": manifest.query, "millstream.batch": str(manifest.batch)},
                app_transactions=[Transaction(app_id=manifest.query, version=manifest.batch)],
            ),
        )
        self._sync_log(table.version())

    def files(self) -> list[TableFile]:
        actions = pa.table(self.open().get_add_actions(flatten=True)).to_pylist()
        names = self.open().metadata().partition_columns
        found = []
        for action in actions:
            values: Values = tuple(_text(action[f"partition.{name}"]) for name in names)
            found.append(
                TableFile(str(self.root / unquote(action["path"])), int(action["size_bytes"]), values)
            )
        return sorted(found, key=lambda file: file.path)

    def open(self) -> DeltaTable:
        """The table as it is now."""
        if self._table is None:
            self._table = DeltaTable(str(self.root))
        else:
            self._table.update_incremental()
        return self._table

    def _sync_log(self, version: int) -> None:
        entry = self.root / LOG_FOLDER / f"{version:020d}.json"
        if entry.exists():
            sync_file(entry)
        sync_folder(self.root / LOG_FOLDER)


def _fields_of(text: str | None, names: Sequence[str]) -> tuple[PartitionField, ...]:
    if text is not None:
        return parse_partition_by(text)
    return tuple(PartitionField(name, name, IDENTITY) for name in names)


def _text(value: object) -> str | None:
    if value is None:
        return None
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
