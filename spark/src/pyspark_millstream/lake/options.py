"""What a write to the lake was asked to do: its options, checked once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_millstream import option_values
from pyspark_millstream.errors import OptionError
from pyspark_millstream.lake.store import FORMATS
from pyspark_millstream.lake.writer_settings import FILE_BYTES_MAX, WriterSettings
from pyspark_millstream.option_names import CONNECTION
from pyspark_millstream.options import Endpoint, endpoint_from

NAMES: Final = (
    "path",
    "tableFormat",
    "partitionBy",
    "compression",
    "fileBytesMax",
    "txnAppId",
    "txnVersion",
    "handOver",
    *CONNECTION,
)
COMPRESSIONS: Final = ("zstd", "snappy", "lz4", "gzip", "none")
_SPARKS_OWN: Final = frozenset(
    {"checkpointlocation", "queryname", "header", "__partition_columns", "outputmode"}
)


@dataclass(frozen=True)
class LakeOptions:
    path: str
    table_format: str | None
    partition_by: str | None
    writer: WriterSettings
    transaction: tuple[str, int] | None  # (name, number) of a batch write that may be run again
    fetched_from: Endpoint | None = None  # the rows are ranges, and the tasks fetch their records there


def parse_lake_options(options: Mapping[str, str]) -> LakeOptions:
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name not in known and name not in _SPARKS_OWN:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {known[nearest[0]]}?" if nearest else f"There are {', '.join(NAMES)}."
            raise OptionError(f"millstream_lake has no option `{name}`", hint)
    if not given.get("path", "").strip():
        raise OptionError(
            "millstream_lake needs a folder for its table", "Add .option('path', '/data/lake/events')."
        )
    compression = _choice(given, "compression", COMPRESSIONS) or COMPRESSIONS[0]
    return LakeOptions(
        path=given["path"],
        table_format=_choice(given, "tableFormat", FORMATS),
        partition_by=given.get("partitionby"),
        writer=WriterSettings(
            compression=compression, file_bytes_max=_number(given, "fileBytesMax", 1 << 16) or FILE_BYTES_MAX
        ),
        transaction=_transaction(given),
        fetched_from=_endpoint(given),
    )


def _endpoint(given: Mapping[str, str]) -> Endpoint | None:
    connection = {name: given[name.lower()] for name in CONNECTION if name.lower() in given}
    if option_values.boolean("handOver", given.get("handover", "false")):
        return endpoint_from(connection)
    if connection:
        raise OptionError(
            f"{next(iter(connection))} is for a write with handOver=true; other rows are not fetched",
            "Take it out, or set handOver=true in the read and in the write.",
        )
    return None


def _transaction(given: Mapping[str, str]) -> tuple[str, int] | None:
    name, number = given.get("txnappid"), _number(given, "txnVersion", 0)
    if name is None and number is None:
        return None
    if name is None or number is None:
        raise OptionError("txnAppId and txnVersion only work together", "Set both, or neither.")
    return name, number


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str | None:
    value = given.get(name.lower())
    if value is None:
        return None
    if value.lower() not in choices:
        raise OptionError(f"{name}={value} is not known", f"Choose one of {', '.join(choices)}.")
    return value.lower()


def _number(given: Mapping[str, str], name: str, least: int) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < least:
        raise OptionError(f"{name}={text} is no whole number of at least {least}", f"Write {name}=N.")
    return int(text)
