"""The schema of JSON payloads, from some of them.

Whole numbers are bigint, others double, and both together double; what is never more than null is string; what is one
thing here and another there is string (which takes the text of anything). Fields come in the order of their names, so
that another sample of the same payloads gives the same schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_millstream.decode.ddl import DEPTH_MAX, format_ddl
from pyspark_millstream.decode.faults import DecodeOptionError, RowError
from pyspark_millstream.decode.json_values import parse_object

FIELDS_MAX: Final = 1000
SAMPLE_RECORDS: Final = 1000
_LONG_LIMIT: Final = 1 << 63


def infer_ddl(payloads: Iterable[bytes | None]) -> str:
    """The DDL of what these payloads hold; those that are no JSON objects are passed over."""
    shape: _Shape | None = None
    count = 0
    for payload in payloads:
        count += 1
        try:
            found = _shape_of(parse_object(payload or b""), 0)
        except RowError:
            continue
        shape = found if shape is None else _merged(shape, found)
        if _field_count(shape) > FIELDS_MAX:
            raise DecodeOptionError(
                f"the sampled payloads have more than {FIELDS_MAX} fields, so no schema can be inferred",
                'Name those you need: .option("payloadSchema", "device string, temperature double").',
            )
    kind = None if shape is None else _type_of(shape)
    if not isinstance(kind, StructType):
        raise DecodeOptionError(
            "the queue has no record yet to infer a schema from"
            if count == 0
            else f"none of the {count} sampled payloads is a JSON object with fields, so no schema can be inferred",
            'Give one: .option("payloadSchema", "device string, temperature double").',
        )
    return format_ddl(kind)


class _Shape:
    """What was seen at one place. `fields`: of objects; `element`: of arrays, None while only empty ones were seen."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # null, boolean, long, double, text, object, array, mixed
        self.fields: dict[str, _Shape] = {}
        self.element: _Shape | None = None


def _shape_of(value: object, depth: int) -> _Shape:
    if value is None:
        return _Shape("null")
    if isinstance(value, bool):
        return _Shape("boolean")
    if isinstance(value, int):
        return _Shape("long" if -_LONG_LIMIT <= value < _LONG_LIMIT else "double")
    if isinstance(value, float):
        return _Shape("double")
    if isinstance(value, str):
        return _Shape("text")
    if depth >= DEPTH_MAX:
        return _Shape("mixed")
    if isinstance(value, dict):
        shape = _Shape("object")
        for name, inner in value.items():
            if name and _is_text(name):
                shape.fields[name] = _shape_of(inner, depth + 1)
        return shape
    assert isinstance(value, list)
    shape = _Shape("array")
    for item in value:
        found = _shape_of(item, depth + 1)
        shape.element = found if shape.element is None else _merged(shape.element, found)
    return shape


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _merged(one: _Shape, other: _Shape) -> _Shape:
    if one.kind == "null":
        return other
    if other.kind == "null":
        return one
    if one.kind != other.kind:
        return _Shape("double" if {one.kind, other.kind} == {"long", "double"} else "mixed")
    for name, field in other.fields.items():
        known = one.fields.get(name)
        one.fields[name] = field if known is None else _merged(known, field)
    if other.element is not None:
        one.element = other.element if one.element is None else _merged(one.element, other.element)
    return one


def _field_count(shape: _Shape) -> int:
    inner = list(shape.fields.values()) + ([shape.element] if shape.element is not None else [])
    return len(shape.fields) + sum(_field_count(part) for part in inner)


def _type_of(shape: _Shape) -> DataType:
    match shape.kind:
        case "boolean":
            return BooleanType()
        case "long":
            return LongType()
        case "double":
            return DoubleType()
        case "array":
            return ArrayType(StringType() if shape.element is None else _type_of(shape.element))
        case "object" if shape.fields:
            return StructType(
                [StructField(name, _type_of(shape.fields[name])) for name in sorted(shape.fields)]
            )
    return StringType()
