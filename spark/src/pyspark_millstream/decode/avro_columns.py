"""Avro payloads (one datum each, bare or with the single-object header) to columns."""

from __future__ import annotations

import decimal
import io
import struct
from typing import Final

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import fingerprint, to_parsing_canonical_form
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_millstream.decode.arrays import build_apart, check_times, spread
from pyspark_millstream.decode.avro_schema import read_schema
from pyspark_millstream.decode.faults import Fault

SINGLE_OBJECT_MARK: Final = b"\xc3\x01"
TOO_SHORT: Final = "not Avro of this schema: the payload ends too early"
# What the library raises at bytes that are not of the schema.
FAULTS: Final = (
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    struct.error,
    decimal.DecimalException,
)


class AvroColumns:
    """Decodes payloads of one schema."""

    def __init__(self, schema: str) -> None:
        found = read_schema(schema)
        self.value = found.value
        self._target = to_arrow_type(found.value, timezone="UTC")
        self._stored = found.stored
        self._parsed = found.parsed
        canonical = to_parsing_canonical_form(found.parsed)
        self._header = SINGLE_OBJECT_MARK + bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))

    def decode(self, payloads: pa.BinaryArray) -> tuple[pa.StructArray, list[Fault]]:
        rows: list[int] = []
        values: list[object] = []
        faults: list[Fault] = []
        for row, payload in enumerate(payloads.to_pylist()):
            try:
                values.append(self._read(payload or b""))
                rows.append(row)
            except EOFError:
                faults.append(Fault(row, TOO_SHORT))
            except IndexError:  # raised for a byte that is not there, and for a branch that is not
                faults.append(Fault(row, "not Avro of this schema: cut off, or another schema's"))
            except FAULTS as fault:
                faults.append(Fault(row, f"not Avro of this schema: {fault}"))
        found, more = build_apart(values, self._target, self._build)
        faults += [Fault(rows[fault.row], fault.reason) for fault in more]
        return spread(found, rows, len(payloads)), faults

    def _read(self, payload: bytes) -> object:
        start = len(self._header) if payload.startswith(self._header) else 0
        stream = io.BytesIO(payload)
        stream.seek(start)
        value = schemaless_reader(stream, self._parsed, None)
        left = len(payload) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes are left over")
        return value

    def _build(self, values: object) -> pa.StructArray:
        found = pa.array(values, type=self._stored)
        if self._stored != self._target:
            found = found.cast(self._target)
        check_times(found)
        return found
