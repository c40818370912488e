"""Sparkplug B payloads to columns.

The row of a payload: timestamp, seq, uuid and its metrics. A metric has at most one of its value columns; whole numbers
are value_long with the sign their datatype gives them (a UInt64 too big for that is text in value_string), times are
milliseconds in value_long. A metric that is known by its alias alone gets its name where the same payload gives that
alias a name; what an earlier birth certificate said is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from pyspark_millstream.decode.arrays import build_apart, spread
from pyspark_millstream.decode.ddl import parse_ddl
from pyspark_millstream.decode.faults import Fault, RowError
from pyspark_millstream.decode.protobuf_columns import list_offsets, parse_messages
from pyspark_millstream.decode.protobuf_schema import find_message

VALUE: Final = parse_ddl(
    "timestamp timestamp, seq bigint, uuid string, metrics array<struct<name: string, alias: bigint, "
    "timestamp: timestamp, datatype: string, is_historical: boolean, is_null: boolean, value_string: string, "
    "value_double: double, value_long: bigint, value_boolean: boolean, value_binary: binary>>"
)
DATATYPES: Final = (  # by their numbers, from 1
    *("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float", "Double", "Boolean"),
    *("String", "DateTime", "Text", "UUID", "DataSet", "Bytes", "File", "Template", "PropertySet"),
    *("PropertySetList", "Int8Array", "Int16Array", "Int32Array", "Int64Array", "UInt8Array", "UInt16Array"),
    *(
        "UInt32Array",
        "UInt64Array",
        "FloatArray",
        "DoubleArray",
        "BooleanArray",
        "StringArray",
        "DateTimeArray",
    ),
)
SIGNED_BITS: Final = {1: 8, 2: 16, 3: 32, 4: 64}  # datatypes whose sign the wire does not carry
TIMESTAMP_MS_MAX: Final = 253_402_300_799_999  # the last of the year 9999
LONG_MAX: Final = (1 << 63) - 1
VALUE_COLUMNS: Final = {
    "int_value": "value_long",
    "long_value": "value_long",
    "float_value": "value_double",
    "double_value": "value_double",
    "boolean_value": "value_boolean",
    "string_value": "value_string",
    "bytes_value": "value_binary",
}
_NAME: Final = "millstream.sparkplug"
_METRIC_FIELDS: Final = (
    ("name", 1, FieldDescriptorProto.TYPE_STRING),
    ("alias", 2, FieldDescriptorProto.TYPE_UINT64),
    ("timestamp", 3, FieldDescriptorProto.TYPE_UINT64),
    ("datatype", 4, FieldDescriptorProto.TYPE_UINT32),
    ("is_historical", 5, FieldDescriptorProto.TYPE_BOOL),
    ("is_null", 7, FieldDescriptorProto.TYPE_BOOL),
)
_METRIC_VALUES: Final = (
    ("int_value", 10, FieldDescriptorProto.TYPE_UINT32),
    ("long_value", 11, FieldDescriptorProto.TYPE_UINT64),
    ("float_value", 12, FieldDescriptorProto.TYPE_FLOAT),
    ("double_value", 13, FieldDescriptorProto.TYPE_DOUBLE),
    ("boolean_value", 14, FieldDescriptorProto.TYPE_BOOL),
    ("string_value", 15, FieldDescriptorProto.TYPE_STRING),
    ("bytes_value", 16, FieldDescriptorProto.TYPE_BYTES),
)


def payload_class() -> Any:
    """The message class of a payload, with those of its fields that become columns."""
    one = FieldDescriptorProto.LABEL_OPTIONAL
    file = FileDescriptorProto(name="millstream/sparkplug.proto", package=_NAME, syntax="proto2")
    metric = file.message_type.add(name="Metric")
    for name, number, kind in _METRIC_FIELDS:
        metric.field.add(name=name, number=number, type=kind, label=one)
    metric.oneof_decl.add(name="value")
    for name, number, kind in _METRIC_VALUES:
        metric.field.add(name=name, number=number, type=kind, label=one, oneof_index=0)
    payload = file.message_type.add(name="Payload")
    payload.field.add(name="timestamp", number=1, type=FieldDescriptorProto.TYPE_UINT64, label=one)
    payload.field.add(
        name="metrics",
        number=2,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{_NAME}.Metric",
        label=FieldDescriptorProto.LABEL_REPEATED,
    )
    payload.field.add(name="seq", number=3, type=FieldDescriptorProto.TYPE_UINT64, label=one)
    payload.field.add(name="uuid", number=4, type=FieldDescriptorProto.TYPE_STRING, label=one)
    return find_message(FileDescriptorSet(file=[file]).SerializeToString(), f"{_NAME}.Payload")


class SparkplugColumns:
    """Decodes Sparkplug B payloads."""

    def __init__(self) -> None:
        self.value: StructType = VALUE
        self._class = payload_class()
        self._target = to_arrow_type(VALUE, timezone="UTC")
        self._metrics = self._target.field("metrics").type

    def decode(self, payloads: pa.BinaryArray) -> tuple[pa.StructArray, list[Fault]]:
        rows, messages, faults = parse_messages(self._class, payloads)
        found, more = build_apart(messages, self._target, self._build)
        faults += [Fault(rows[fault.row], fault.reason) for fault in more]
        return spread(found, rows, len(payloads)), faults

    def _build(self, messages: Sequence[Any]) -> pa.StructArray:
        lists = [message.metrics for message in messages]
        names = list(chain.from_iterable(map(_names, lists)))
        columns = [
            pa.array([_moment(message) for message in messages], pa.timestamp("us", "UTC")),
            pa.array([_long(message, "seq") for message in messages], pa.int64()),
            pa.array([_text(message, "uuid") for message in messages], pa.string()),
            pa.ListArray.from_arrays(
                list_offsets(lists),
                self._build_metrics(list(chain.from_iterable(lists)), names),
                type=self._metrics,
            ),
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self._target))

    def _build_metrics(self, metrics: list[Any], names: list[str | None]) -> pa.StructArray:
        values: dict[str, list[object]] = {
            name: [None] * len(metrics) for name in set(VALUE_COLUMNS.values())
        }
        for place, metric in enumerate(metrics):
            which = None if metric.is_null else metric.WhichOneof("value")
            if which is not None:
                column, value = _value(metric, which)
                values[column][place] = value
        found: dict[str, list[Any]] = {
            "name": names,
            "alias": [_long(metric, "alias") for metric in metrics],
            "timestamp": [_moment(metric) for metric in metrics],
            "datatype": [_datatype(metric) for metric in metrics],
            "is_historical": [metric.is_historical for metric in metrics],
            "is_null": [metric.is_null for metric in metrics],
            **values,
        }
        fields = list(self._metrics.value_type)
        return pa.StructArray.from_arrays(
            [pa.array(found[field.name], field.type) for field in fields], fields=fields
        )


def _names(metrics: Sequence[Any]) -> list[str | None]:
    """The name of each metric of one payload."""
    names = [_text(metric, "name") or None for metric in metrics]
    if None not in names:
        return names
    by_alias = {
        metric.alias: name
        for metric, name in zip(metrics, names, strict=True)
        if name is not None and metric.HasField("alias")
    }
    return [
        by_alias.get(metric.alias) if name is None and metric.HasField("alias") else name
        for metric, name in zip(metrics, names, strict=True)
    ]


def _value(metric: Any, which: str) -> tuple[str, object]:
    """The column that holds it, and what it is there."""
    value = getattr(metric, which)
    column = VALUE_COLUMNS[which]
    if column == "value_string":
        return column, _text(metric, which)
    if column != "value_long":
        return column, value
    bits = SIGNED_BITS.get(metric.datatype)
    if bits is not None:
        value &= (1 << bits) - 1  # a narrow one may come with its sign drawn out over all bits
        value -= (value >> (bits - 1)) << bits
    elif value > LONG_MAX:
        return "value_string", str(value)
    return column, value


def _text(message: Any, name: str) -> str | None:
    value = getattr(message, name) if message.HasField(name) else None
    if isinstance(value, bytes):
        raise RowError(f"{name} is not UTF-8")
    assert value is None or isinstance(value, str)
    return value


def _long(message: Any, name: str) -> int | None:
    if not message.HasField(name):
        return None
    value = getattr(message, name)
    if value > LONG_MAX:
        raise RowError(f"{name} {value} is no bigint")
    assert isinstance(value, int)
    return value


def _moment(message: Any) -> int | None:
    """Microseconds since 1970."""
    value = _long(message, "timestamp")
    if value is not None and value > TIMESTAMP_MS_MAX:
        raise RowError(f"timestamp {value} is after the year 9999")
    return None if value is None else value * 1000


def _datatype(metric: Any) -> str | None:
    number = metric.datatype
    if not number:
        return None
    return DATATYPES[number - 1] if number <= len(DATATYPES) else str(number)
