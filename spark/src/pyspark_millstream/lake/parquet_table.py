"""A folder of Parquet files that any reader may walk: what has a visible name is the table.

What the folder itself cannot say stands in `_millstream/table.json`; `_common_metadata` says the columns once more, where
Spark looks for them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from pyspark_millstream.lake.faults import LakeError, TableDamagedError
from pyspark_millstream.lake.journal import STATE_FOLDER, sync_file, write_whole
from pyspark_millstream.lake.manifest import Manifest, decode_schema, encode_schema
from pyspark_millstream.lake.partitioning import fields_text, folder_values, parse_partition_by
from pyspark_millstream.lake.table import LakeTable, TableFacts, TableFile

TABLE_FILE: Final = "table.json"
COLUMNS_FILE: Final = "_common_metadata"
VERSION: Final = 1


class ParquetTable(LakeTable):
    keeps_sources = False

    def find_facts(self) -> TableFacts | None:
        file = self.root / STATE_FOLDER / TABLE_FILE
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
            if facts["version"] != VERSION:
                raise TableDamagedError(
                    f"{file} has version {facts['version']}, this release reads {VERSION}"
                )
            return TableFacts(decode_schema(facts["schema"]), parse_partition_by(facts["partition_by"]))
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError, pa.ArrowInvalid):
            raise TableDamagedError(
                f"{file} cannot be read", "Bring it back from a copy of the table."
            ) from None

    def create(self, facts: TableFacts) -> None:
        if self.files():
            raise LakeError(
                f"{self.root} holds Parquet files that this sink did not write", "Choose a folder of its own."
            )
        self._write(facts)

    def add_columns(self, added: Sequence[pa.Field]) -> None:
        facts = self.find_facts()
        assert facts is not None
        self._write(TableFacts(pa.schema([*facts.schema, *added]), facts.fields))

    def last_batch(self, query: str) -> int:
        return -1  # the journal knows

    def publish(self, manifest: Manifest) -> None:
        """The names are all there is."""

    def files(self) -> list[TableFile]:
        found = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
            values = folder_values(os.path.relpath(folder, self.root))
            for name in sorted(names):
                if name.endswith(".parquet") and not name.startswith(("_", ".")):
                    path = os.path.join(folder, name)
                    found.append(TableFile(path, os.path.getsize(path), values))
        return found

    def _write(self, facts: TableFacts) -> None:
        text = {
            "version": VERSION,
            "partition_by": fields_text(facts.fields),
            "schema": encode_schema(facts.schema),
        }
        write_whole(self.root / STATE_FOLDER / TABLE_FILE, json.dumps(text))
        in_folders = {field.source for field in facts.fields if not field.is_derived}
        columns = pa.schema([field for field in facts.schema if field.name not in in_folders])
        from pyarrow import parquet as pq  # not needed where a table is only looked at

        fresh = self.root / STATE_FOLDER / f".{COLUMNS_FILE}"
        pq.write_metadata(columns, fresh)
        sync_file(fresh)
        os.rename(fresh, self.root / COLUMNS_FILE)


def read_table_columns(root: Path) -> pa.Schema:
    """All columns files of this table may have: give it to a reader that would else believe the first file."""
    from pyarrow import parquet as pq

    return pq.read_schema(root / COLUMNS_FILE)
