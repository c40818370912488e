"""Arrow batches become rows that the broker can publish, or are refused by column and row."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from millstream.queues.publish_options import read_user_properties
from millstream.reader.http import HttpFault
from millstream.reader.stage_rows import RowDefaults, RowLimits, RowMaker
from millstream.storage.stages.format import StagedRow, StageHeader, StageWriter, decode_rows

LIMITS = RowLimits(1000, 100, 10, 4, 2)
TO_QUEUE = RowDefaults("out", "", 1, False, "")
TO_TOPICS = RowDefaults("", "", 0, False, "")


def make_rows(
    table: pa.Table, defaults: RowDefaults = TO_QUEUE, asked: list[str] | None = None
) -> list[StagedRow]:
    def admit(topics: Sequence[str]) -> None:
        if asked is not None:
            asked.extend(topics)

    writer = StageWriter(StageHeader("a", "o", "q", "out", 0, 0, 0))
    maker = RowMaker(table.schema, defaults, LIMITS, writer, admit)
    for batch in table.to_batches():
        maker.add(batch)
    writer.take()
    parts = writer.finish()
    return decode_rows(parts[1], table.num_rows) if len(parts) > 1 else []


def refusal(table: pa.Table, defaults: RowDefaults = TO_QUEUE) -> str:
    with pytest.raises(HttpFault) as refused:
        make_rows(table, defaults)
    return refused.value.error


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()],
)
def test_every_kind_of_payload_is_taken(kind: pa.DataType) -> None:
    rows = make_rows(pa.table({"payload": pa.array(["", "ä", "x" * 900], kind)}))
    assert [row.payload for row in rows] == [b"", "ä".encode(), b"x" * 900]
    assert {row.topic for row in rows} == {b"$queue/out"}


def test_a_slice_of_a_batch_gives_its_own_rows() -> None:
    table = pa.table({"payload": [b"%d" % at for at in range(10)], "key": [f"k{at}" for at in range(10)]})
    rows = make_rows(table.slice(4, 3))
    assert [(row.topic, row.payload) for row in rows] == [
        (b"$queue/out/k%d" % at, b"%d" % at) for at in (4, 5, 6)
    ]


def test_what_a_row_does_not_say_is_taken_from_the_defaults() -> None:
    columns: dict[str, Any] = {
        "payload": ["a", "b"],
        "topic": ["x/y", None],
        "qos": pa.array([2, None], pa.int8()),
        "retain": [None, False],
        "expiry_s": [None, 60],
        "content_type": [None, "text/b"],
    }
    defaults = RowDefaults("", "fixed", 1, True, "text/a")
    first, second = make_rows(pa.table(columns), defaults)
    assert (first.topic, first.guarantee, first.retain, first.expiry_s) == (b"x/y", 2, True, 0)
    assert (second.topic, second.guarantee, second.retain, second.expiry_s) == (b"fixed", 1, False, 60)
    assert (first.properties, second.properties) == (b"\x03\x00\x06text/a", b"\x03\x00\x06text/b")


def test_headers_come_as_a_map_or_as_pairs_in_their_order() -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "3")]
    listed = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    for kind, values in (
        (pa.map_(pa.string(), pa.string()), [pairs, None]),
        (listed, [[{"key": key, "value": value} for key, value in pairs], None]),
    ):
        table = pa.table({"payload": ["x", "y"], "headers": pa.array(values, kind)})
        first, second = make_rows(table)
        assert read_user_properties(first.properties) == [(b"b", b"1"), (b"a", b"2"), (b"b", b"3")]
        assert second.properties == b""


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_event_time_is_a_user_property_in_milliseconds(unit: str) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    table = pa.table(
        {"payload": ["x", "y"], "event_time": pa.array([moment, None], pa.timestamp(unit, "UTC"))}
    )
    first, second = make_rows(table)
    assert read_user_properties(first.properties) == [(b"event-time", b"1767323045000")]
    assert second.properties == b""


def test_rights_are_asked_once_for_every_topic_and_every_key() -> None:
    asked: list[str] = []
    table = pa.table({"payload": ["x"] * 4, "topic": ["a", "b", "a", "b"]})
    make_rows(table, TO_TOPICS, asked)
    assert asked == ["a", "b"]
    asked.clear()
    make_rows(table, TO_QUEUE, asked)
    assert asked == ["$queue/out/a", "$queue/out/b"]


def test_a_schema_that_cannot_be_written_names_the_column() -> None:
    x = {"payload": ["x"]}
    assert refusal(pa.table({"payload": [1.5]})) == "the column 'payload' is double, not binary or string"
    assert refusal(pa.table({**x, "qos": ["1"]})) == "the column 'qos' is string, not a whole number"
    assert refusal(pa.table({**x, "headers": ["1"]})).startswith("the column 'headers' is string, not map<")
    assert refusal(pa.table({**x, "retain": [1]})) == "the column 'retain' is int64, not boolean"
    assert refusal(pa.table({**x, "event_time": [1]})) == "the column 'event_time' is int64, not a timestamp"
    assert refusal(pa.table({**x, "topic": ["a"], "key": ["b"]})).startswith("there is a column 'topic' and")
    assert refusal(pa.table({**x, "key": ["b"]}), TO_TOPICS).startswith(
        "the column 'key' is for rows to a queue"
    )
    twice = pa.Table.from_arrays([pa.array(["x"]), pa.array(["x"])], names=["payload", "payload"])
    assert refusal(twice) == "the column 'payload' is there twice"


def test_a_value_that_cannot_be_published_names_its_row() -> None:
    two = ["x", "y"]
    maps = pa.map_(pa.string(), pa.string())
    assert refusal(pa.table({"payload": ["x", "y" * 1001]})).startswith("row 1: a payload must not have more")
    assert refusal(pa.table({"payload": two, "topic": ["a", None]}), TO_TOPICS).startswith(
        "row 1: topic is null"
    )
    assert "row 1: the topic 'a/+' cannot be used" in refusal(
        pa.table({"payload": two, "topic": ["a", "a/+"]}), TO_TOPICS
    )
    assert "answer to a delivery" in refusal(
        pa.table({"payload": two, "topic": ["a", "$queue/q/$ack"]}), TO_TOPICS
    )
    assert refusal(pa.table({"payload": two, "qos": [1, -1]})) == "row 1: qos must be from 0 to 2, not -1"
    many = pa.array([[], [(f"{at}", "") for at in range(5)]], maps)
    assert (
        refusal(pa.table({"payload": two, "headers": many}))
        == "row 1: a message has at most 4 headers, not 5"
    )
    empty = pa.array([[], [("a", None)]], maps)
    assert refusal(pa.table({"payload": two, "headers": empty})) == "row 1: a header has no key or no value"
    nul = pa.table({"payload": two, "content_type": ["a", "b\0"]})
    assert refusal(nul) == "row 1: content_type: a NUL character is not allowed"


def test_offsets_that_point_outside_the_batch_are_refused() -> None:
    offsets = struct.pack("<iii", 0, 1 << 30, 3)
    bad = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abc")])
    writer = StageWriter(StageHeader("a", "o", "q", "out", 0, 0, 0))
    batch = pa.RecordBatch.from_arrays([bad], names=["payload"])
    maker = RowMaker(batch.schema, TO_QUEUE, LIMITS, writer, lambda topics: None)
    with pytest.raises(HttpFault, match="a batch of the Arrow stream is damaged"):
        maker.add(batch)
