"""A lake table as a DataFrame, whatever its format, without a jar: Spark reads the files the table names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_millstream.lake.faults import LakeError
from pyspark_millstream.lake.partitioning import derived_type
from pyspark_millstream.lake.store import open_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_lake(spark: SparkSession, path: str, files: Sequence[str] | None = None) -> DataFrame:
    """All rows that are in the table now, or those of some of its files; columns a file lacks are null."""
    lake = open_lake(path)
    facts = lake.table.find_facts()
    if facts is None:
        raise LakeError(f"there is no table in {lake.root}", "Name the folder a table was written to.")
    if files is None:
        files = [file.path for file in lake.table.files()]
    if not files:
        raise LakeError(f"the table in {lake.root} has no rows yet", "Write to it first.")
    derived = [pa.field(one.name, derived_type(one, facts.schema)) for one in facts.fields if one.is_derived]
    if lake.table.keeps_sources:
        reader = spark.read.option(
            "recursiveFileLookup", "true"
        )  # the folder names say nothing the files do not
        return reader.schema(from_arrow_schema(facts.schema)).parquet(*files)
    schema = from_arrow_schema(pa.schema([*facts.schema, *derived]))
    return spark.read.option("basePath", str(lake.root)).schema(schema).parquet(*files)
