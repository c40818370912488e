"""Sparkplug B payloads to columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from decode_batches import decoded, decoder_for, values_of
from hypothesis import given
from hypothesis import strategies as st

from pyspark_millstream.decode.sparkplug import payload_class

PAYLOAD = payload_class()
NOW_MS = 1_763_200_800_250
NOW = datetime.fromtimestamp(NOW_MS // 1000, UTC).replace(microsecond=250_000)
VALUES = ("value_string", "value_double", "value_long", "value_boolean", "value_binary")


def payload(*metrics: dict[str, object], **fields: object) -> bytes:
    message = PAYLOAD(**fields)
    for metric in metrics:
        message.metrics.add(**metric)
    content = message.SerializeToString()
    assert isinstance(content, bytes)
    return content


def metrics_of(*metrics: dict[str, object]) -> list[dict[str, Any]]:
    found = values_of(decoder_for(payloadFormat="sparkplug"), [payload(*metrics)])[0]["metrics"]
    assert isinstance(found, list)
    return found


def test_bytes_as_the_specification_writes_them_are_read() -> None:
    # timestamp 1, one metric: name "t" (1), timestamp 2 (3), datatype Double (4), double_value 21.5 (13); seq 7
    metric = b"\x0a\x01t" + b"\x18\x02" + b"\x20\x0a" + b"\x69\x00\x00\x00\x00\x00\x80\x35\x40"
    content = b"\x08\x01" + b"\x12" + bytes([len(metric)]) + metric + b"\x18\x07"
    value = values_of(decoder_for(payloadFormat="sparkplug"), [content])[0]
    assert value["seq"] == 7
    assert value["timestamp"] == datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    assert value["metrics"][0]["name"] == "t"
    assert value["metrics"][0]["datatype"] == "Double"
    assert value["metrics"][0]["value_double"] == 21.5


def test_a_payload_has_its_time_its_sequence_number_and_its_metrics() -> None:
    content = payload({"name": "a", "timestamp": NOW_MS, "alias": 3}, timestamp=NOW_MS, seq=255, uuid="u")
    value = values_of(decoder_for(payloadFormat="sparkplug"), [content])[0]
    assert (value["timestamp"], value["seq"], value["uuid"]) == (NOW, 255, "u")
    assert value["metrics"] == [
        {
            "name": "a",
            "alias": 3,
            "timestamp": NOW,
            "datatype": None,
            "is_historical": False,
            "is_null": False,
            **dict.fromkeys(VALUES),
        }
    ]


@pytest.mark.parametrize(
    ("metric", "column", "value"),
    [
        ({"datatype": 1, "int_value": 0xFF}, "value_long", -1),
        ({"datatype": 1, "int_value": 0xFFFFFFFF}, "value_long", -1),
        ({"datatype": 2, "int_value": 0x8000}, "value_long", -32768),
        ({"datatype": 3, "int_value": 0xFFFFFFFE}, "value_long", -2),
        ({"datatype": 4, "long_value": 2**64 - 1}, "value_long", -1),
        ({"datatype": 4, "long_value": 5}, "value_long", 5),
        ({"datatype": 5, "int_value": 0xFF}, "value_long", 255),
        ({"datatype": 7, "int_value": 0xFFFFFFFF}, "value_long", 2**32 - 1),
        ({"datatype": 8, "long_value": 2**63}, "value_string", str(2**63)),
        ({"datatype": 9, "float_value": 0.5}, "value_double", 0.5),
        ({"datatype": 10, "double_value": 21.25}, "value_double", 21.25),
        ({"datatype": 11, "boolean_value": False}, "value_boolean", False),
        ({"datatype": 12, "string_value": ""}, "value_string", ""),
        ({"datatype": 13, "long_value": NOW_MS}, "value_long", NOW_MS),
        ({"datatype": 17, "bytes_value": b"\x00"}, "value_binary", b"\x00"),
    ],
)
def test_a_metric_has_one_value_in_the_column_of_its_kind(
    metric: dict[str, object], column: str, value: object
) -> None:
    found = metrics_of(metric)[0]
    assert {name: found[name] for name in VALUES if found[name] is not None} == {column: value}


def test_a_metric_that_is_null_has_no_value() -> None:
    found = metrics_of({"datatype": 10, "is_null": True, "double_value": 1.0, "is_historical": True})[0]
    assert (found["is_null"], found["is_historical"]) == (True, True)
    assert [found[name] for name in VALUES] == [None] * 5


def test_an_alias_gets_its_name_only_from_its_own_payload() -> None:
    birth = payload({"name": "t", "alias": 7}, {"alias": 7}, {"alias": 8}, {"name": "u"})
    data = payload({"alias": 7, "double_value": 1.0})
    found = values_of(decoder_for(payloadFormat="sparkplug"), [birth, data])
    assert [[metric["name"] for metric in row["metrics"]] for row in found] == [["t", "t", None, "u"], [None]]


def test_a_datatype_nobody_knows_is_its_number() -> None:
    assert [found["datatype"] for found in metrics_of({"datatype": 34}, {"datatype": 99}, {})] == [
        "DateTimeArray",
        "99",
        None,
    ]


def test_bad_rows_are_null_with_the_reason_and_the_rest_is_read() -> None:
    payloads = [
        payload(seq=1),
        b'{"online": true}',
        payload({"alias": 2**63}),
        payload(timestamp=2**62),
        payload(seq=2),
    ]
    found = decoded(decoder_for(payloadFormat="sparkplug"), payloads)
    assert [error for _, error in found] == [
        None,
        "not a Protobuf message of this type",
        f"alias {2**63} is no bigint",
        f"timestamp {2**62} is after the year 9999",
        None,
    ]
    assert [value["seq"] for value, _ in (found[0], found[4])] == [1, 2]


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_are_a_row_or_an_error_of_it(payloads: list[bytes]) -> None:
    assert len(decoded(decoder_for(payloadFormat="sparkplug"), payloads)) == len(payloads)
