"""Batches of payloads for the tests of decoding, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from pyspark_millstream.decode import Decoder, make_decoder

BASE = StructType([StructField("offset", LongType()), StructField("payload", BinaryType())])


def decoder_for(**options: str) -> Decoder:
    decoder = make_decoder(options, BASE)
    assert decoder is not None
    return decoder


def batch_of(payloads: Sequence[bytes | None]) -> pa.RecordBatch:
    columns = [pa.array(range(len(payloads)), pa.int64()), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=to_arrow_schema(BASE))


def decoded(decoder: Decoder, payloads: Sequence[bytes | None]) -> list[tuple[Any, str | None]]:
    """(value, error) of each payload. The batch is sound and has the very schema Spark will compare it with."""
    batch = decoder.decode(batch_of(payloads))
    batch.validate(full=True)
    expected = StructType(BASE.fields + decoder.schema().fields)
    assert batch.schema.equals(to_arrow_schema(expected, timezone="UTC"))
    assert batch.column("offset").to_pylist() == list(range(len(payloads)))
    values, errors = batch.column("value").to_pylist(), batch.column("_error").to_pylist()
    assert [value is None for value in values] == [error is not None for error in errors]
    return list(zip(values, errors, strict=True))


def values_of(decoder: Decoder, payloads: Sequence[bytes | None]) -> list[Any]:
    """The values; every payload could be decoded."""
    found = decoded(decoder, payloads)
    assert [error for _, error in found if error is not None] == []
    return [value for value, _ in found]


def error_of(decoder: Decoder, payload: bytes | None) -> str:
    """Why it could not be decoded."""
    value, error = decoded(decoder, [payload])[0]
    assert value is None
    assert error is not None
    assert "\n" not in error
    return error
