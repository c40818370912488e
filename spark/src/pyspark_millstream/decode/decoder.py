"""Adds the columns `value` and `_error` to batches of records.

Invariants
- A row has either a `value` or an `_error`; no payload, however wrong, fails the batch.
- A decoder holds values only when it travels; what libraries built is built again where it arrives.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_millstream.decode.ddl import parse_ddl
from pyspark_millstream.decode.faults import REASON_CHARACTERS_MAX, DecodeOptionError, Fault, shorten
from pyspark_millstream.decode.json_columns import JsonColumns
from pyspark_millstream.decode.settings import DecodeSettings, Sample, read_settings, settle_options

PAYLOAD: Final = "payload"
VALUE: Final = "value"
ERROR: Final = "_error"


class PayloadColumns(Protocol):
    """What each format offers."""

    def decode(self, payloads: pa.BinaryArray) -> tuple[pa.StructArray, list[Fault]]:
        """One struct for each payload; null and a fault where it cannot be decoded."""


class Decoder:
    """Decodes the payloads of batches as the settings say."""

    def __init__(self, settings: DecodeSettings) -> None:
        self._settings = settings
        self._value, self._columns = _make_columns(settings)

    def __reduce__(self) -> tuple[type[Decoder], tuple[DecodeSettings]]:
        return Decoder, (self._settings,)

    @property
    def dead_letter_queue(self) -> str:
        """Where `write_dead_letters` puts rows that cannot be decoded; empty: nowhere."""
        return self._settings.dead_letter_queue

    def schema(self) -> StructType:
        """The columns it adds."""
        return StructType([StructField(VALUE, self._value), StructField(ERROR, StringType())])

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with those columns behind its own; without the payload, when that is not kept."""
        payloads = batch.column(batch.schema.get_field_index(PAYLOAD))
        if payloads.type != pa.binary():
            payloads = payloads.cast(pa.binary())
        values, faults = self._columns.decode(payloads)
        kept = batch if self._settings.keeps_payload else batch.drop_columns([PAYLOAD])
        return kept.append_column(VALUE, values).append_column(ERROR, _errors(faults, batch.num_rows))


def make_decoder(
    options: Mapping[str, str], base_schema: StructType, sample: Sample | None = None
) -> Decoder | None:
    """The decoder these options ask for, or None; `base_schema` are the columns of the batches it will see."""
    settings = read_settings(settle_options(options, sample))
    if settings is None:
        return None
    names = base_schema.fieldNames()
    if PAYLOAD not in names:
        raise DecodeOptionError(
            f"payloadFormat={settings.format} needs the column payload", 'Add it to the option "columns".'
        )
    taken = next((name for name in (VALUE, ERROR) if name in names), None)
    if taken is not None:
        raise DecodeOptionError(f'the rows have a column "{taken}" already', "Rename it.")
    return Decoder(settings)


def _make_columns(settings: DecodeSettings) -> tuple[StructType, PayloadColumns]:
    match settings.format:
        case "json":
            value = parse_ddl(settings.schema)
            return value, JsonColumns(to_arrow_type(value, timezone="UTC"))
        case "avro":
            _need_package("fastavro", "avro")
            from pyspark_millstream.decode.avro_columns import AvroColumns

            avro = AvroColumns(settings.schema)
            return avro.value, avro
        case "protobuf":
            _need_package("google.protobuf", "protobuf")
            from pyspark_millstream.decode.protobuf_columns import ProtobufColumns
            from pyspark_millstream.decode.protobuf_schema import find_message

            protobuf = ProtobufColumns(find_message(settings.descriptor, settings.message))
            return protobuf.value, protobuf
    _need_package("google.protobuf", "protobuf")
    from pyspark_millstream.decode.sparkplug import SparkplugColumns

    sparkplug = SparkplugColumns()
    return sparkplug.value, sparkplug


def _need_package(module: str, extra: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError:
        raise DecodeOptionError(
            f"the package {module} is not installed, and payloads of this format need it",
            f"Type: pip install 'millstream-spark[{extra}]'",
        ) from None


def _errors(faults: list[Fault], count: int) -> pa.StringArray:
    if not faults:
        return pa.nulls(count, pa.string())
    reasons: list[str | None] = [None] * count
    for fault in faults:
        reasons[fault.row] = shorten(fault.reason, REASON_CHARACTERS_MAX)
    return pa.array(reasons, pa.string())
