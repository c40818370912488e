"""An Iceberg table written without Spark's Iceberg jar: one snapshot per batch, in a SQLite catalog in the folder.

The snapshot names query and batch; the table property `millstream.batch.<query>`, set in the same commit, still does
when the snapshot has expired.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, DateType, IntegerType, LongType

from pyspark_millstream.lake.columns import plain_columns
from pyspark_millstream.lake.faults import LakeError
from pyspark_millstream.lake.journal import ONE_TIME, STATE_FOLDER
from pyspark_millstream.lake.manifest import Manifest, StagedFile
from pyspark_millstream.lake.partitioning import DATE, HOUR, IDENTITY, PartitionField, Values
from pyspark_millstream.lake.table import LakeTable, TableFacts, TableFile

CATALOG_FILE: Final = "catalog.db"
CATALOG_NAME: Final = "millstream"
NAMESPACE: Final = "lake"
BATCH_KEY: Final = "millstream.batch."
QUERY_PROPERTY: Final = "millstream.query"
BATCH_PROPERTY: Final = "millstream.batch"
OPERATION_PROPERTY: Final = "millstream.operation"
_NAME_MAPPING: Final = "schema.name-mapping.default"
_TRANSFORMS: Final[dict[str, Transform[Any, Any]]] = {
    DATE: DayTransform(),
    HOUR: HourTransform(),
    IDENTITY: IdentityTransform(),
}
_TABLE_PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_EPOCH: Final = date(1970, 1, 1)


def catalog_of(root: Path) -> SqlCatalog:
    """The catalog that lies in the folder of the table."""
    file = root / STATE_FOLDER / CATALOG_FILE
    return SqlCatalog(CATALOG_NAME, uri=f"sqlite:///{file}", warehouse=location_of(root.parent))


def load_iceberg(root: Path) -> Table:
    """The table in this folder, for any reader that knows pyiceberg."""
    catalog = catalog_of(root)
    names = catalog.list_tables(NAMESPACE)
    if not names:
        raise LakeError(f"there is no Iceberg table in {root}", "Name the folder the table was written to.")
    return catalog.load_table(names[0])


class IcebergLakeTable(LakeTable):
    keeps_sources = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._table: Table | None = None

    def find_facts(self) -> TableFacts | None:
        if not (self.root / STATE_FOLDER / CATALOG_FILE).is_file():
            return None
        catalog = catalog_of(self.root)
        if not catalog.namespace_exists(NAMESPACE) or not catalog.list_tables(NAMESPACE):
            return None  # the process died between making the catalog and the table
        table = self.open()
        schema = plain_columns(schema_to_pyarrow(table.schema(), include_field_ids=False))
        return TableFacts(schema, _fields_of(table.spec(), table.schema()))

    def create(self, facts: TableFacts) -> None:
        (self.root / STATE_FOLDER).mkdir(parents=True, exist_ok=True)
        catalog = catalog_of(self.root)
        catalog.create_namespace_if_not_exists(NAMESPACE)
        name = re.sub(r"\W", "_", self.root.name) or "rows"
        with catalog.create_table_transaction(
            f"{NAMESPACE}.{name}", facts.schema, location=location_of(self.root), properties=_TABLE_PROPERTIES
        ) as transaction:
            with transaction.update_spec() as spec:
                for field in facts.fields:
                    spec.add_field(field.source, _TRANSFORMS[field.transform], _folder_name(field))
            mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
            transaction.set_properties({_NAME_MAPPING: mapping})
        self._table = None

    def add_columns(self, added: Sequence[pa.Field]) -> None:
        table = self.open()
        with table.update_schema() as update:
            update.union_by_name(
                pa.schema([*schema_to_pyarrow(table.schema(), include_field_ids=False), *added])
            )

    def last_batch(self, query: str) -> int:
        return int(self.open().properties.get(BATCH_KEY + query, -1))

    def publish(self, manifest: Manifest) -> None:
        table = self.open()
        with table.transaction() as transaction:
            append_files(
                transaction, [data_file(self.root, file, table.metadata) for file in manifest.files], manifest
            )
            transaction.set_properties({BATCH_KEY + manifest.query: str(manifest.batch)})
            # Whatever was begun before is finished, so these will not be asked for again.
            once = [key for key in table.properties if key.startswith(BATCH_KEY + ONE_TIME)]
            if once:
                transaction.remove_properties(*once)

    def files(self) -> list[TableFile]:
        table = self.open()
        found = []
        for task in table.scan().plan_files():
            file = task.file
            values: Values = tuple(
                None if value is None else str(value) for value in _record_values(file.partition)
            )
            found.append(TableFile(local_path(file.file_path), file.file_size_in_bytes, values))
        return sorted(found, key=lambda one: one.path)

    def can_match_by_name(self) -> bool:
        """Whether a column had one name and one life, so that files of any age can be read by column name."""
        metadata = self.open().metadata
        now = {field.field_id: field.name for field in metadata.schema().fields}
        return all(now.get(field.field_id) == field.name for old in metadata.schemas for field in old.fields)

    def replace(self, paths: Sequence[str], files: Sequence[StagedFile]) -> bool:
        """One commit that has the new files instead of the old ones; False: not all of the old are there any more."""
        table = self.open()
        wanted = set(paths)
        old = [task.file for task in table.scan().plan_files() if local_path(task.file.file_path) in wanted]
        if len(old) != len(wanted):
            return False
        with table.transaction() as transaction:
            properties = {OPERATION_PROPERTY: "compact"}
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as overwrite:
                for file in old:
                    overwrite.delete_data_file(file)
                for staged in files:
                    overwrite.append_data_file(data_file(self.root, staged, table.metadata, old[0].partition))
        return True

    def open(self) -> Table:
        """The table as it is now."""
        if self._table is None:
            self._table = load_iceberg(self.root)
        else:
            self._table.refresh()
        return self._table


def append_files(transaction: Transaction, files: Sequence[DataFile], manifest: Manifest) -> None:
    properties = {QUERY_PROPERTY: manifest.query, BATCH_PROPERTY: str(manifest.batch)}
    with transaction.update_snapshot(snapshot_properties=properties).fast_append() as append:
        for file in files:
            append.append_data_file(file)


def data_file(
    root: Path, file: StagedFile, metadata: TableMetadata, partition: Record | None = None
) -> DataFile:
    """What Iceberg keeps of a file: its partition, and the figures of its footer."""
    schema, spec = metadata.schema(), metadata.spec()
    path = root / file.target
    figures = _figures_of(pq.read_metadata(path), schema, metadata.properties)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location_of(path),
        file_format=FileFormat.PARQUET,
        partition=partition if partition is not None else _partition_of(file.values, spec, schema),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **figures.to_serialized_dict(),
    )


def _figures_of(footer: pq.FileMetaData, schema: Schema, properties: dict[str, str]) -> DataFileStatistics:
    mapping = parquet_path_to_id_mapping(schema)
    try:
        return data_file_statistics_from_parquet_metadata(
            footer, compute_statistics_plan(schema, properties), mapping
        )
    except (OverflowError, ValueError):  # a time no calendar has: the file goes without minimum and maximum
        plain = compute_statistics_plan(schema, {**properties, "write.metadata.metrics.default": "counts"})
        return data_file_statistics_from_parquet_metadata(footer, plain, mapping)


def _partition_of(values: Values, spec: PartitionSpec, schema: Schema) -> Record:
    fields = _fields_of(spec, schema)
    return Record(
        *(_partition_value(value, field, schema) for value, field in zip(values, fields, strict=True))
    )


def _partition_value(value: str | None, field: PartitionField, schema: Schema) -> object:
    if value is None:
        return None
    if field.transform == DATE:
        return (date.fromisoformat(value) - _EPOCH).days
    if field.transform == HOUR:
        since = datetime.strptime(value, "%Y-%m-%d-%H") - datetime(1970, 1, 1)
        return int(since.total_seconds()) // 3600
    kind = schema.find_type(field.source)
    if isinstance(kind, BooleanType):
        return value == "true"
    if isinstance(kind, DateType):
        return (date.fromisoformat(value) - _EPOCH).days
    return int(value) if isinstance(kind, IntegerType | LongType) else value


def _fields_of(spec: PartitionSpec, schema: Schema) -> tuple[PartitionField, ...]:
    names = {DayTransform: DATE, HourTransform: HOUR, IdentityTransform: IDENTITY}
    fields = []
    for field in spec.fields:
        transform = names.get(type(field.transform))
        if transform is None:
            raise LakeError(
                f"the table is partitioned by {field.transform}({field.name}), which this sink cannot write",
                "Write to a table partitioned by columns, days or hours.",
            )
        source = schema.find_column_name(field.source_id)
        assert source is not None
        fields.append(PartitionField(source if transform == IDENTITY else transform, source, transform))
    return tuple(fields)


def _folder_name(field: PartitionField) -> str:
    return field.source if field.transform == IDENTITY else f"{field.source}_{field.transform}"


def _record_values(record: Record) -> list[object]:
    return [record[place] for place in range(len(record))]


def location_of(path: Path) -> str:
    """As pyiceberg takes it: nothing is escaped, which is why folder names of this format need no escapes."""
    return f"file://{path.absolute()}"


def local_path(location: str) -> str:
    return location.removeprefix("file://")
