"""Avro schemas to the types of Spark and of Arrow.

Times, dates and uuids are read as the numbers and texts they are stored as, and cast by column; only decimals are made
by the Avro library. What has no type in Spark (recursive records, unions of several kinds) is refused by name, and so is
what takes no bytes, of which a few bytes could claim billions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, parse_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_millstream.decode.ddl import DECIMAL_DIGITS_MAX, DEPTH_MAX
from pyspark_millstream.decode.faults import DecodeOptionError, shorten

HINT: Final = "Give an Avro schema as JSON text, or the path of a file with it."

_PLAIN: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "boolean": (BooleanType(), pa.bool_()),
    "int": (IntegerType(), pa.int32()),
    "long": (LongType(), pa.int64()),
    "float": (FloatType(), pa.float32()),
    "double": (DoubleType(), pa.float64()),
    "bytes": (BinaryType(), pa.binary()),
    "string": (StringType(), pa.string()),
    "enum": (StringType(), pa.string()),
    "fixed": (BinaryType(), pa.binary()),
}
_LOGICAL: Final[dict[tuple[str, str], tuple[DataType, pa.DataType]]] = {
    ("int", "date"): (DateType(), pa.date32()),
    ("long", "timestamp-millis"): (TimestampType(), pa.timestamp("ms", "UTC")),
    ("long", "timestamp-micros"): (TimestampType(), pa.timestamp("us", "UTC")),
    ("long", "local-timestamp-millis"): (TimestampNTZType(), pa.timestamp("ms")),
    ("long", "local-timestamp-micros"): (TimestampNTZType(), pa.timestamp("us")),
}
_WIDER: Final = ("int", "long", "float", "double")


@dataclass(frozen=True)
class AvroSchema:
    """A schema of payloads: for the Avro library, for Spark, and for what the library gives."""

    parsed: Any
    value: StructType
    stored: pa.StructType


def read_schema(text: str) -> AvroSchema:
    """DecodeOptionError says what is wrong with the text."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise DecodeOptionError("payloadSchema is not the JSON text of an Avro schema", HINT) from None
    whole, names = _parse(raw)
    value, stored = _Types(names).find(whole, "", ())
    if not isinstance(value, StructType):
        raise DecodeOptionError(f"payloadSchema is of an Avro {value.simpleString()}, not of a record", HINT)
    return AvroSchema(_parse(_without_logical_types(raw))[0], value, stored)


def _parse(raw: object) -> tuple[Any, dict[str, Any]]:
    names: dict[str, Any] = {}
    try:
        return parse_schema(raw, names), names  # type: ignore[arg-type]
    except UnknownType as fault:
        reason = f"there is no type {shorten(fault.name)}"
    except SchemaParseException as fault:
        reason = str(fault)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as fault:
        reason = f"{fault} is missing" if isinstance(fault, KeyError) else "its shape is wrong"
    raise DecodeOptionError(f"payloadSchema is no Avro schema: {shorten(reason, 120)}", HINT)


def _without_logical_types(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_without_logical_types(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    kept = (
        raw if raw.get("logicalType") == "decimal" else {k: v for k, v in raw.items() if k != "logicalType"}
    )
    return {
        k: _without_logical_types(v) if k in ("type", "items", "values", "fields") else v
        for k, v in kept.items()
    }


class _Types:
    """Finds the types of one schema; `names` are its named types."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def find(self, node: Any, path: str, above: tuple[str, ...]) -> tuple[DataType, pa.DataType]:
        """The types of Spark and of what the library gives. `above`: the records this one is inside of."""
        if isinstance(node, list):
            return self._union(node, path, above)
        if isinstance(node, str):
            if node in self._names:
                return self.find(self._names[node], path, above)
            node = {"type": node}
        kind = node["type"]
        if isinstance(kind, dict | list):
            return self.find(kind, path, above)
        match kind:
            case "record" | "error":
                return self._record(node, path, above)
            case "array":
                value, stored = self.find(node["items"], f"{path}[]", above)
                return ArrayType(value), pa.list_(pa.field("element", stored))
            case "map":
                value, stored = self.find(node["values"], f"{path}{{}}", above)
                return MapType(StringType(), value), pa.map_(pa.string(), stored)
            case "fixed" if node["size"] < 1:
                raise _unfit(path, "a fixed of no bytes")
            case "null":
                raise _unfit(path, "always null")
        if kind not in _PLAIN:
            return self.find(kind, path, above)
        if node.get("logicalType") == "decimal":
            return _decimal(node, path)
        return _LOGICAL.get((kind, str(node.get("logicalType"))), _PLAIN[kind])

    def _record(self, node: Any, path: str, above: tuple[str, ...]) -> tuple[DataType, pa.DataType]:
        name = node["name"]
        if name in above:
            raise _unfit(path, f"the record {name} inside itself")
        if len(above) >= DEPTH_MAX:
            raise _unfit(path, f"nested more than {DEPTH_MAX} deep")
        if not node["fields"]:
            raise _unfit(path or name, "a record without fields")
        prefix = f"{path}." if path else ""
        values: list[StructField] = []
        stored: list[pa.Field] = []
        for field in node["fields"]:
            value, kind = self.find(field["type"], prefix + field["name"], (*above, name))
            values.append(StructField(field["name"], value))
            stored.append(pa.field(field["name"], kind))
        return StructType(values), pa.struct(stored)

    def _union(self, branches: list[Any], path: str, above: tuple[str, ...]) -> tuple[DataType, pa.DataType]:
        some = [branch for branch in branches if branch != "null" and branch != {"type": "null"}]
        if not some:
            raise _unfit(path, "always null")
        if len(some) == 1:
            return self.find(some[0], path, above)
        kinds = [branch["type"] if isinstance(branch, dict) else branch for branch in some]
        is_plain = not any(isinstance(branch, dict) and "logicalType" in branch for branch in some)
        if is_plain and all(kind in _WIDER for kind in kinds):
            return _PLAIN["double" if {"float", "double"} & set(kinds) else "long"]
        named = " and ".join(shorten(str(kind), 30) for kind in kinds)
        raise _unfit(path, f"a union of {named}")


def _decimal(node: Any, path: str) -> tuple[DataType, pa.DataType]:
    digits, scale = node.get("precision"), node.get("scale", 0)
    if type(digits) is not int or type(scale) is not int or not 0 <= scale <= digits <= DECIMAL_DIGITS_MAX:
        raise _unfit(path, f"a decimal of {shorten(str(digits), 10)} digits")
    return DecimalType(digits, scale), pa.decimal128(digits, scale)


def _unfit(path: str, what: str) -> DecodeOptionError:
    return DecodeOptionError(f'"{path}" of the Avro schema is {what}, for which Spark has no type')
