"""What one batch adds to a table: the files, where they wait and where they belong, and the columns they bring.

The text of a manifest is JSON with a version; it is the journal's promise, so it holds everything that is needed to
finish the batch without the tasks that wrote it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyspark_millstream.lake.faults import TableDamagedError
from pyspark_millstream.lake.partitioning import Values

# To change the format: raise the version, and let `decode_manifest` read both for one release.
VERSION: Final = 1


@dataclass(frozen=True)
class StagedFile:
    """A finished Parquet file that nobody sees yet. Paths are relative to the table."""

    staged: str
    target: str
    values: Values
    rows: int
    size_bytes: int
    stats: str  # as the Delta log keeps them: JSON with numRecords, minValues, maxValues, nullCount


@dataclass(frozen=True)
class Manifest:
    """One batch of one query: the unit that is there whole or not at all."""

    query: str
    batch: int
    schema: pa.Schema
    partition_by: str
    files: tuple[StagedFile, ...]


def encode_manifest(manifest: Manifest) -> str:
    return json.dumps(
        {
            "version": VERSION,
            "query": manifest.query,
            "batch": manifest.batch,
            "schema": encode_schema(manifest.schema),
            "partition_by": manifest.partition_by,
            "files": [
                [file.staged, file.target, list(file.values), file.rows, file.size_bytes, file.stats]
                for file in manifest.files
            ],
        }
    )


def decode_manifest(text: str, name: str) -> Manifest:
    try:
        facts = json.loads(text)
        if facts["version"] != VERSION:
            raise TableDamagedError(
                f"the journal file {name} has version {facts['version']}, this release reads {VERSION}",
                "Write to this table with the release that made it.",
            )
        files = tuple(
            StagedFile(str(staged), str(target), tuple(values), int(rows), int(size_bytes), str(stats))
            for staged, target, values, rows, size_bytes, stats in facts["files"]
        )
        schema = decode_schema(facts["schema"])
        return Manifest(str(facts["query"]), int(facts["batch"]), schema, str(facts["partition_by"]), files)
    except (KeyError, TypeError, ValueError, pa.ArrowInvalid) as fault:
        raise TableDamagedError(
            f"the journal file {name} cannot be read ({type(fault).__name__})",
            "Bring it back from a copy of the table.",
        ) from None


def encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def decode_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
