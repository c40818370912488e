"""Protobuf messages to columns: each field of all messages at once.

A field without presence has its default where it was not sent, as Protobuf has it; one with presence is null there.
Enums are their names, uint64 is decimal(20,0), google.protobuf.Timestamp is a timestamp, maps and repeated fields are
maps and arrays. Unknown fields are passed over; a message inside itself is refused: Spark has no type for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import numpy
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_millstream.decode.arrays import build_apart, check_times, spread
from pyspark_millstream.decode.ddl import DEPTH_MAX
from pyspark_millstream.decode.faults import DecodeOptionError, Fault, RowError

TIMESTAMP: Final = "google.protobuf.Timestamp"
NOT_PROTOBUF: Final = "not a Protobuf message of this type"

_SCALARS: Final[dict[int, DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    FieldDescriptor.CPPTYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
    FieldDescriptor.CPPTYPE_STRING: StringType(),
}

Build = Callable[[Sequence[Any]], pa.Array]


class ProtobufColumns:
    """Decodes payloads of one message type."""

    def __init__(self, message_class: Any) -> None:
        descriptor = message_class.DESCRIPTOR
        value, self._build = _message_column(descriptor, "", ())
        assert isinstance(value, StructType)
        self.value = value
        self._target = to_arrow_type(value, timezone="UTC")
        self._class = message_class

    def decode(self, payloads: pa.BinaryArray) -> tuple[pa.StructArray, list[Fault]]:
        rows, messages, faults = parse_messages(self._class, payloads)
        found, more = build_apart(messages, self._target, self._build)
        faults += [Fault(rows[fault.row], fault.reason) for fault in more]
        return spread(found, rows, len(payloads)), faults


def parse_messages(
    message_class: Any, payloads: pa.BinaryArray
) -> tuple[list[int], list[Message], list[Fault]]:
    """The rows that hold a message, those messages, and the other rows."""
    rows: list[int] = []
    messages: list[Message] = []
    faults: list[Fault] = []
    for row, payload in enumerate(payloads.to_pylist()):
        message = message_class()
        try:
            message.ParseFromString(payload or b"")
        except (DecodeError, RecursionError):
            faults.append(Fault(row, NOT_PROTOBUF))
            continue
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            faults.append(Fault(row, f"{NOT_PROTOBUF}: required fields are missing: {missing}"))
            continue
        rows.append(row)
        messages.append(message)
    return rows, messages, faults


def _message_column(descriptor: Descriptor, path: str, above: tuple[str, ...]) -> tuple[DataType, Build]:
    name = descriptor.full_name
    if name == TIMESTAMP:
        return TimestampType(), _build_timestamps
    if name in above or len(above) >= DEPTH_MAX:
        raise DecodeOptionError(
            f'"{path}" of the Protobuf message holds {name} inside itself, for which Spark has no type'
        )
    if not descriptor.fields:
        raise DecodeOptionError(f'the Protobuf message {name} ("{path or name}") has no fields')
    fields: list[StructField] = []
    builds: list[Build] = []
    for field in descriptor.fields:
        kind, build = _field_column(field, f"{path}.{field.name}" if path else field.name, (*above, name))
        fields.append(StructField(field.name, kind))
        builds.append(build)
    value = StructType(fields)
    arrow = list(to_arrow_type(value, timezone="UTC"))

    def build_struct(messages: Sequence[Any]) -> pa.Array:
        return pa.StructArray.from_arrays([build(messages) for build in builds], fields=arrow)

    return value, build_struct


def _field_column(field: FieldDescriptor, path: str, above: tuple[str, ...]) -> tuple[DataType, Build]:
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return _map_column(field, path, above)
        element, build = _value_column(field, path, above)
        return ArrayType(element), _list_build(field.name, element, build)
    kind, build = _value_column(field, path, above)
    if field.has_presence:
        return kind, _optional_build(field.name, build)
    get = attrgetter(field.name)
    return kind, lambda messages: build(list(map(get, messages)))


def _value_column(field: FieldDescriptor, path: str, above: tuple[str, ...]) -> tuple[DataType, Build]:
    """For the values of a field, whatever holds them."""
    if field.message_type is not None:
        return _message_column(field.message_type, path, above)
    kind = BinaryType() if field.type == FieldDescriptor.TYPE_BYTES else _SCALARS[field.cpp_type]
    arrow = to_arrow_type(kind)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return kind, lambda values: pa.array([names.get(value) or str(value) for value in values], arrow)
    if isinstance(kind, StringType):
        return kind, _build_texts
    return kind, lambda values: pa.array(values, arrow)


def _build_texts(values: Sequence[Any]) -> pa.Array:
    """A text that is not UTF-8 comes as bytes, where the descriptor is of a time that allowed it."""
    if any(isinstance(value, bytes) for value in values):
        raise RowError("a string field is not UTF-8")
    return pa.array(values, pa.string())


def _build_timestamps(values: Sequence[Any]) -> pa.Array:
    moments = [value.seconds * 1_000_000 + value.nanos // 1000 for value in values]
    found = pa.array(moments, pa.timestamp("us", "UTC"))
    check_times(found)
    return found


def _optional_build(name: str, build: Build) -> Build:
    get = attrgetter(name)

    def build_optional(messages: Sequence[Any]) -> pa.Array:
        rows = [row for row, message in enumerate(messages) if message.HasField(name)]
        return spread(build([get(messages[row]) for row in rows]), rows, len(messages))

    return build_optional


def _list_build(name: str, element: DataType, build: Build) -> Build:
    get = attrgetter(name)
    arrow = to_arrow_type(ArrayType(element), timezone="UTC")

    def build_list(messages: Sequence[Any]) -> pa.Array:
        lists = list(map(get, messages))
        return pa.ListArray.from_arrays(
            list_offsets(lists), build(list(chain.from_iterable(lists))), type=arrow
        )

    return build_list


def _map_column(field: FieldDescriptor, path: str, above: tuple[str, ...]) -> tuple[DataType, Build]:
    entry = field.message_type.fields_by_name
    key, build_keys = _value_column(entry["key"], f"{path}{{}}", above)
    item, build_items = _value_column(entry["value"], f"{path}{{}}", above)
    get = attrgetter(field.name)
    arrow = to_arrow_type(MapType(key, item), timezone="UTC")

    def build_map(messages: Sequence[Any]) -> pa.Array:
        maps = list(map(get, messages))
        keys = build_keys(list(chain.from_iterable(maps)))
        items = build_items([one[name] for one in maps for name in one])
        return pa.MapArray.from_arrays(list_offsets(maps), keys, items).cast(arrow)

    return MapType(key, item), build_map


def list_offsets(lists: Sequence[Any]) -> pa.Array:
    """Where each list begins among the elements of all, and where the last ends."""
    ends = numpy.cumsum([0, *map(len, lists)])
    return pa.array(ends, pa.int32())
