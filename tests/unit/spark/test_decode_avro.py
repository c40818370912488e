"""Avro payloads to columns."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from decode_batches import decoded, decoder_for, error_of, values_of
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from pyspark_millstream.decode import Decoder
from pyspark_millstream.decode.faults import DecodeOptionError

ALL: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "n", "type": "int"},
        {"name": "big", "type": ["null", "long"]},
        {"name": "single", "type": "float"},
        {"name": "real", "type": ["int", "double"]},
        {"name": "ok", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {
            "name": "place",
            "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "double"}]},
        },
        {"name": "next", "type": ["null", "Place"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
ROW: dict[str, Any] = {
    "device": "grün",
    "n": -5,
    "big": 2**62,
    "single": 0.5,
    "real": 7,
    "ok": True,
    "raw": b"\x00\xff",
    "state": "OFF",
    "before": None,
    "mark": b"ab",
    "tags": ["a", None],
    "counts": {"x": 1},
    "place": {"x": 1.5},
    "next": None,
    "day": date(2026, 11, 15),
    "millis": datetime(2026, 11, 15, 10, 0, 0, 250000, tzinfo=UTC),
    "micros": datetime(1969, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "local": datetime(2026, 11, 15, 10),
    "amount": Decimal("-12.50"),
    "id": "3b241101-e2bb-4255-8caf-4136c566a962",
}
SMALL: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": {"type": "array", "items": "string"}}],
}


def avro_decoder(schema: object) -> Decoder:
    return decoder_for(payloadFormat="avro", payloadSchema=json.dumps(schema))


def encoded(schema: Any, row: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def record(*fields: object) -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def test_every_type_is_read() -> None:
    value = values_of(avro_decoder(ALL), [encoded(ALL, ROW)] * 3)[2]
    assert value == {**ROW, "real": 7.0, "counts": [("x", 1)]}


def test_a_single_object_header_of_the_same_schema_is_taken_off() -> None:
    mark = fingerprint(to_parsing_canonical_form(fastavro.parse_schema(SMALL)), "CRC-64-AVRO")
    payload = b"\xc3\x01" + bytes.fromhex(mark) + encoded(SMALL, {"n": 5, "t": []})
    assert values_of(avro_decoder(SMALL), [payload]) == [{"n": 5, "t": []}]


def test_bad_rows_are_null_with_the_reason_and_the_rest_is_read() -> None:
    good = encoded(SMALL, {"n": 5, "t": ["x"]})
    found = decoded(
        avro_decoder(SMALL), [good, good[:-1], b"", good + b"!", None, b"\x02\x02\x02\xff\x00", good]
    )
    assert [value is not None for value, _ in found] == [True, False, False, False, False, False, True]
    assert found[1][1] == "not Avro of this schema: the payload ends too early"
    assert found[3][1] == "not Avro of this schema: 1 bytes are left over"
    assert "utf-8" in str(found[5][1])


@pytest.mark.parametrize("moment", [2**62, -(2**62), 2**63 - 1])
@pytest.mark.parametrize("unit", ["timestamp-millis", "timestamp-micros"])
def test_a_time_no_calendar_has_costs_its_own_row(moment: int, unit: str) -> None:
    schema = record({"name": "t", "type": {"type": "long", "logicalType": unit}})
    wrong = encoded(record({"name": "t", "type": "long"}), {"t": moment})
    right = encoded(record({"name": "t", "type": "long"}), {"t": 0})
    found = decoded(avro_decoder(schema), [right, wrong, right])
    assert [error is None for _, error in found] == [True, False, True]


def test_a_decimal_with_more_digits_than_its_type_costs_its_own_row() -> None:
    wide = record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20}})
    narrow = record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}})
    payloads = [encoded(wide, {"a": Decimal(number)}) for number in (9999, 10000, -1)]
    assert [error is None for _, error in decoded(avro_decoder(narrow), payloads)] == [True, False, True]


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_a_row_or_an_error_of_it(payloads: list[bytes]) -> None:
    assert len(decoded(avro_decoder(ALL), payloads)) == len(payloads)


def test_the_schema_may_be_a_file_that_only_the_driver_has(tmp_path: Path) -> None:
    file = tmp_path / "small.avsc"
    file.write_text(json.dumps(SMALL), encoding="utf-8")
    travelling = pickle.dumps(decoder_for(payloadFormat="avro", payloadSchema=str(file)))
    file.unlink()
    assert values_of(pickle.loads(travelling), [encoded(SMALL, {"n": 1, "t": []})]) == [{"n": 1, "t": []}]


def test_a_header_of_another_schema_is_an_error() -> None:
    payload = b"\xc3\x01" + b"\x00" * 8 + encoded(SMALL, {"n": 5, "t": []})
    assert error_of(avro_decoder(SMALL), payload).startswith("not Avro of this schema")


@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ("{", "is not the JSON text of an Avro schema"),
        ("no/such/file.avsc", "cannot be read: No such file"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "zz"}]}', "there is no type zz"),
        ('{"type": "record", "fields": []}', "is no Avro schema"),
        ('{"type": "array"}', "is no Avro schema"),
        ("[]", "always null"),
        ('"string"', "of an Avro string, not of a record"),
        (json.dumps(record()), "a record without fields"),
        (
            json.dumps(record({"name": "a", "type": ["string", "int"]})),
            '"a" of the Avro schema is a union of string and',
        ),
        (json.dumps(record({"name": "a", "type": "null"})), '"a" of the Avro schema is always null'),
        (json.dumps(record({"name": "a", "type": {"type": "array", "items": "null"}})), '"a[]" of the Avro'),
        (json.dumps(record({"name": "a", "type": ["null", "R"]})), "the record R inside itself"),
        (
            json.dumps(
                record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 39}})
            ),
            "a decimal of 39 digits",
        ),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_in_one_sentence(schema: str, part: str) -> None:
    with pytest.raises(DecodeOptionError) as caught:
        decoder_for(payloadFormat="avro", payloadSchema=schema)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
