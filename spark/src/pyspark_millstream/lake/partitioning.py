"""By which values a table is cut into folders: `date(timestamp), queue`, and the folder names that come of them.

Invariants
- A value is text here, as in every folder name and in the Delta log; None is null.
- A folder name is read back to the same text by Spark, Arrow, DuckDB and Polars: only ASCII is escaped, as `%XX`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from pyspark_millstream.lake.faults import LakeError

IDENTITY: Final = "identity"
DATE: Final = "date"
HOUR: Final = "hour"

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"  # the name every reader of such folders takes as null
UNPARTITIONED: Final = "none"
DEFAULT: Final = ("date(timestamp)", "queue")

_TERM: Final = re.compile(r"(?:(date|hour)\(\s*([^()]+?)\s*\)|([^(),]+))")
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^}<>|\x7f") | {chr(code) for code in range(0x20)}

Values = tuple[str | None, ...]


@dataclass(frozen=True)
class PartitionField:
    """One level of folders: `name=value`, where value is the source column or its date or hour."""

    name: str
    source: str
    transform: str

    @property
    def text(self) -> str:
        return self.source if self.transform == IDENTITY else f"{self.transform}({self.source})"

    @property
    def is_derived(self) -> bool:
        return self.transform != IDENTITY


def parse_partition_by(text: str) -> tuple[PartitionField, ...]:
    """`date(timestamp), queue` -> fields; `none` or nothing -> no folders."""
    if text.strip().lower() in ("", UNPARTITIONED):
        return ()
    fields = [_parse_term(term.strip()) for term in text.split(",")]
    names = [field.name.lower() for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise LakeError(f"partitionBy names the folder `{name}` twice", "Name each once.")
    return tuple(fields)


def _parse_term(term: str) -> PartitionField:
    match = _TERM.fullmatch(term)
    if match is None or not term:
        raise LakeError(
            f"partitionBy cannot be read at `{term}`",
            "Write columns, date(column) or hour(column) with commas between, or none.",
        )
    transform, source, column = match.groups()
    if transform is None:
        return PartitionField(column, column, IDENTITY)
    return PartitionField(transform, source, transform)


def fields_text(fields: Sequence[PartitionField]) -> str:
    return ",".join(field.text for field in fields) or UNPARTITIONED


def default_fields(schema: pa.Schema) -> tuple[PartitionField, ...]:
    """date(timestamp) and queue, as far as the rows have them."""
    fields = [_parse_term(term) for term in DEFAULT]
    return tuple(
        field
        for field in fields
        if field.source in schema.names
        and (
            not field.is_derived
            or (_is_time(schema.field(field.source).type) and field.name not in schema.names)
        )
    )


def check_fields(fields: Sequence[PartitionField], schema: pa.Schema) -> None:
    """Refuse what cannot be a folder, before anything is written."""
    for field in fields:
        if field.source not in schema.names:
            raise LakeError(
                f"partitionBy names `{field.source}`, which is no column",
                f"There are {', '.join(schema.names)}.",
            )
        kind = schema.field(field.source).type
        if field.is_derived:
            if not _is_time(kind):
                raise LakeError(
                    f"partitionBy={field.text} needs a timestamp, but `{field.source}` is {kind}",
                    f"Write partitionBy={field.source}, or cast it to a timestamp.",
                )
            if field.name in schema.names:
                raise LakeError(
                    f"partitionBy={field.text} makes a column `{field.name}`, which the rows have already",
                    f"Write partitionBy={field.name}, or rename that column.",
                )
        elif not _can_name_folder(kind):
            raise LakeError(
                f"partitionBy names `{field.source}`, but values of type {kind} cannot name a folder",
                "Take a column of text, integers, dates or booleans.",
            )
    identity = {field.source for field in fields if not field.is_derived}
    if fields and len(identity) == len(schema.names):
        raise LakeError("partitionBy names every column, so none is left to write", "Name fewer.")


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _can_name_folder(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
    )


def derived_type(field: PartitionField, schema: pa.Schema) -> pa.DataType:
    """The type of the folder's value, seen as a column."""
    if field.transform == DATE:
        return pa.date32()
    return pa.string() if field.transform == HOUR else schema.field(field.source).type


def folder_of(fields: Sequence[PartitionField], values: Values) -> str:
    """`date=2026-11-15/queue=press%2F1`; empty for a table without folders."""
    return "/".join(
        f"{_escape(field.name)}={_folder_value(value)}" for field, value in zip(fields, values, strict=True)
    )


def _folder_value(value: str | None) -> str:
    return NULL_FOLDER if value is None or not value else _escape(value)


def _escape(text: str) -> str:
    return "".join(f"%{ord(sign):02X}" if sign in _ESCAPED else sign for sign in text)


def folder_values(folder: str) -> Values:
    """The values in a folder name that `folder_of` made; empty for the table's own folder."""
    values: list[str | None] = []
    for part in folder.split("/"):
        _, equals, value = part.partition("=")
        if equals:
            values.append(None if value == NULL_FOLDER else unquote(value))
    return tuple(values)
