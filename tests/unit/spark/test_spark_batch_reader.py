"""Batch reads without Spark: which records a plan covers, which filters it takes, what a batch looks like."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from fake_reader import FakeReader
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_millstream.batch_reader import BatchReader, PushdownBatchReader
from pyspark_millstream.errors import MillstreamSparkError, OptionError
from pyspark_millstream.options import read_options
from pyspark_millstream.rows import COLUMN_NAMES, BatchShape, arrow_schema, check_asked_schema, row_schema


@pytest.fixture
def reader() -> Iterator[FakeReader]:
    with FakeReader() as reader:
        reader.add("a", 0, 1000)
        reader.add("b", 100, 200)
        yield reader


def batch_of(
    reader: FakeReader, kind: type[BatchReader] = BatchReader, /, **options: str
) -> PushdownBatchReader | BatchReader:
    checked = read_options({"uri": reader.uri, "queues": "a,b", "retrySeconds": "0", **options})
    return kind(checked, row_schema(checked.columns, checked.headers_format), None)


def tables_of(batch: BatchReader) -> list[pa.RecordBatch]:
    return [found for part in batch.partitions() for found in batch.read(part)]


def rows_of(batch: BatchReader) -> list[tuple[str, int]]:
    return [
        pair
        for found in tables_of(batch)
        for pair in zip(found.column("queue").to_pylist(), found.column("offset").to_pylist(), strict=True)
    ]


def test_everything_is_read_unless_told_otherwise(reader: FakeReader) -> None:
    expected = [("a", n) for n in range(1000)] + [("b", n) for n in range(100, 200)]
    assert rows_of(batch_of(reader)) == expected
    assert rows_of(batch_of(reader, minPartitions="7", rowsPerBatch="33")) == expected


def test_a_range_is_read_from_its_start_up_to_not_with_its_end(reader: FakeReader) -> None:
    batch = batch_of(reader, startingOffsets='{"a": 10, "b": -2}', endingOffsets='{"a": 12, "b": 101}')
    assert rows_of(batch) == [("a", 10), ("a", 11), ("b", 100)]


def test_a_range_of_time_is_read(reader: FakeReader) -> None:
    began_ms = reader.queues["a"].began_us // 1000
    batch = batch_of(
        reader, queues="a", startingTimestamp=str(began_ms + 5), endingTimestamp=str(began_ms + 8)
    )
    assert rows_of(batch) == [("a", 5), ("a", 6), ("a", 7)]


def test_an_end_before_the_start_reads_nothing(reader: FakeReader) -> None:
    assert rows_of(batch_of(reader, queues="a", startingOffsets='{"a": 9}', endingOffsets='{"a": 3}')) == []


def test_an_end_that_is_not_there_yet_is_refused(reader: FakeReader) -> None:
    with pytest.raises(OptionError, match='ends "a" at 1001; the queue ends at 1000'):
        batch_of(reader, queues="a", endingOffsets='{"a": 1001}').partitions()


def test_an_empty_queue_gives_no_rows(reader: FakeReader) -> None:
    reader.add("empty", 0, 0)
    assert rows_of(batch_of(reader, queues="empty")) == []


def test_a_batch_has_exactly_the_schema_spark_compares_it_with(reader: FakeReader) -> None:
    choices: list[dict[str, str]] = [
        {},
        {"includeHeaders": "true"},
        {"columns": "payload"},
        {"columns": "topic,offset"},
    ]
    for options in choices:
        checked = read_options({"uri": reader.uri, "queues": "a", **options})
        expected = arrow_schema(row_schema(checked.columns, checked.headers_format))
        for found in tables_of(batch_of(reader, queues="a", **options)):
            assert expected.equals(found.schema)
            found.validate(full=True)


def test_values_are_those_that_were_sent(reader: FakeReader) -> None:
    found = tables_of(batch_of(reader, queues="b", includeHeaders="true"))[0].slice(3, 1).to_pylist()[0]
    assert found["payload"] == b"payload number 103 of this queue"
    assert found["topic"] == "plant/5/temperature"
    assert found["headers"] == [("number", "103")]
    assert found["timestamp"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        microseconds=reader.queues["b"].began_us + 103_000
    )


def test_a_reader_that_sends_too_little_is_said_in_one_sentence() -> None:
    shape = BatchShape(pa.schema([("topic", pa.string())]))
    with pytest.raises(MillstreamSparkError, match='sent no column "topic"'):
        shape.fit(pa.RecordBatch.from_pydict({"offset": [1]}))


def test_what_is_the_same_in_every_row_is_not_sent_and_still_there(reader: FakeReader) -> None:
    found = pa.Table.from_batches(tables_of(batch_of(reader, queues="b", rowsPerBatch="7")))
    assert set(found["queue"].to_pylist()) == {"b"}
    assert set(found["partition"].to_pylist()) == {0}
    shape = BatchShape(
        pa.schema([("queue", pa.string()), ("offset", pa.int64())]), {"queue": "b", "topic": 1}
    )
    for rows in (3, 5, 2):
        fitted = shape.fit(pa.RecordBatch.from_pydict({"offset": list(range(rows))}))
        assert fitted.to_pydict() == {"queue": ["b"] * rows, "offset": list(range(rows))}


def test_a_range_that_can_be_read_already_asks_nothing_of_the_broker(reader: FakeReader) -> None:
    options = {"queues": "b", "startingOffsets": '{"b": {"0": 101}}'}
    batch_of(reader, endingOffsets='{"b": {"0": 103}}', **options).partitions()
    assert not any("fresh=true" in request for request in reader.requests)
    batch_of(reader, endingOffsets='{"b": {"0": -1}}', **options).partitions()
    assert any("fresh=true" in request for request in reader.requests)


def test_a_schema_of_the_user_may_choose_columns_and_nothing_else() -> None:
    offered = row_schema(COLUMN_NAMES, "map")
    check_asked_schema(StructType([StructField("topic", StringType())]), offered)
    with pytest.raises(OptionError, match='asks for a column "colour"'):
        check_asked_schema(StructType([StructField("colour", StringType())]), offered)
    with pytest.raises(OptionError, match='asks for "topic" as bigint; it is string'):
        check_asked_schema(StructType([StructField("topic", LongType())]), offered)
    with pytest.raises(OptionError, match="never null"):
        check_asked_schema(StructType([StructField("topic", StringType(), False)]), offered)


# ------------------------------------------------------------------- filters


def pushed(reader: FakeReader, *filters: Filter, **options: str) -> tuple[PushdownBatchReader, list[Filter]]:
    batch = batch_of(reader, PushdownBatchReader, pushdown="true", **options)
    assert isinstance(batch, PushdownBatchReader)
    return batch, list(batch.pushFilters(list(filters)))


def test_only_the_class_with_pushdown_takes_filters() -> None:
    from pyspark.sql.datasource import DataSourceReader

    assert BatchReader.pushFilters is DataSourceReader.pushFilters
    assert PushdownBatchReader.pushFilters is not DataSourceReader.pushFilters


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("offset",), 7)], range(7, 8)),
        ([GreaterThan(("offset",), 7), LessThan(("offset",), 10)], range(8, 10)),
        ([GreaterThanOrEqual(("offset",), 990), LessThanOrEqual(("offset",), 2000)], range(990, 1000)),
        ([EqualTo(("offset",), 5), EqualTo(("offset",), 6)], range(0)),
        ([IsNotNull(("offset",)), LessThan(("offset",), 2)], range(2)),
    ],
)
def test_filters_on_the_offset_are_taken_whole(
    reader: FakeReader, filters: list[Filter], expected: range
) -> None:
    batch, left = pushed(reader, *filters, queues="a")
    assert left == []
    assert rows_of(batch) == [("a", n) for n in expected]


def test_a_filter_on_the_queue_leaves_the_others_unread(reader: FakeReader) -> None:
    batch, left = pushed(reader, EqualTo(("queue",), "b"))
    assert left == []
    assert {part.queue for part in batch.partitions()} == {"b"}  # type: ignore[attr-defined]


def test_what_cannot_be_taken_whole_is_left_to_spark(reader: FakeReader) -> None:
    filters: list[Filter] = [
        In(("offset",), (1, 2)),
        EqualTo(("payload",), b"x"),
        EqualTo(("topic",), "plant/1/temperature"),
        StringStartsWith(("topic",), "plant/"),
        GreaterThan(("timestamp",), datetime(2020, 1, 1, tzinfo=UTC)),
        EqualTo(("value", "inner"), 1),
        IsNotNull(("event_time",)),
    ]
    _, left = pushed(reader, *filters)
    assert left == filters


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        (EqualTo(("topic",), "plant/1/temperature"), "topic=plant%2F1%2Ftemperature"),
        (StringStartsWith(("topic",), "plant/1/te"), "topic=plant%2F1%2F%23"),
        (GreaterThanOrEqual(("timestamp",), datetime(2025, 1, 1, tzinfo=UTC)), "since=1735689600000000000"),
        (LessThan(("timestamp",), datetime(2025, 1, 1, tzinfo=UTC)), "until=1735689600000002000"),
    ],
)
def test_topic_and_time_are_told_to_the_reader(reader: FakeReader, asked: Filter, sent: str) -> None:
    batch, _ = pushed(reader, asked, queues="a")
    tables_of(batch)
    assert sent in reader.requests[-1]


@pytest.mark.parametrize("value", ["", "+/x", "pl", "#"])
def test_a_topic_that_is_no_whole_level_is_not_told(reader: FakeReader, value: str) -> None:
    batch, _ = pushed(reader, StringStartsWith(("topic",), value), queues="a")
    tables_of(batch)
    assert "topic=" not in reader.requests[-1]


def test_a_topic_filter_of_the_options_stays(reader: FakeReader) -> None:
    batch, _ = pushed(reader, EqualTo(("topic",), "x"), queues="a", topicFilter="plant/+/temperature")
    tables_of(batch)
    assert "topic=plant%2F%2B%2Ftemperature" in reader.requests[-1]
