"""Records that a lake fetches itself, without Spark: the same rows as through Spark, once, and nothing said of who asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_reader import FakeReader
from handed_ranges import AskedSource, place, write_lake
from lake_rows import FORMATS, assert_offsets
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_millstream.errors import DataLost, MillstreamSparkError, OptionError, ReaderRefused
from pyspark_millstream.hand_over import RANGE, HandedReading
from pyspark_millstream.lake.faults import LakeError
from pyspark_millstream.lake.options import parse_lake_options
from pyspark_millstream.lake.source import LakeStreamWriter
from pyspark_millstream.lake.store import files_of
from pyspark_millstream.options import endpoint_from, read_options
from pyspark_millstream.source import MillstreamSource

START, END = place(a=0, b=100), place(a=1000, b=200)
LEAST = {"uri": "http://h", "queues": "a"}


@pytest.fixture
def reader() -> Iterator[FakeReader]:
    with FakeReader() as reader:
        reader.add("a", 0, 1000)
        reader.add("b", 100, 200)
        yield reader


def handed(reader: FakeReader, **options: str) -> AskedSource:
    return AskedSource(reader, handOver="true", **options)


def fetched(reader: FakeReader, source: AskedSource, start: object = START, end: object = END) -> pa.Table:
    """What the tasks of the sink make of the ranges."""
    assert isinstance(start, dict)
    assert isinstance(end, dict)
    endpoint = endpoint_from({"uri": reader.uri, "retrySeconds": "0"})
    return pa.Table.from_batches(HandedReading(endpoint, source.schema).read(source.rows(start, end)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"includeHeaders": "true"},
        {"columns": "payload,offset", "rowsPerBatch": "33"},
        {"payloadFormat": "json", "payloadSchema": "celsius DOUBLE", "keepPayload": "false"},
    ],
)
def test_the_records_fetched_are_those_that_would_have_gone_through_spark(
    reader: FakeReader, options: dict[str, str]
) -> None:
    both = {"queues": "a,b", "rowsPerPartition": "300", **options}
    through = pa.Table.from_batches(AskedSource(reader, **both).rows(START, END))
    source = handed(reader, **both)
    found = fetched(reader, source)
    assert found.schema.equals(through.schema)
    assert found.equals(through)
    assert found.num_rows == 1100


def test_a_task_of_the_source_gives_one_row_for_its_range(reader: FakeReader) -> None:
    source = handed(reader, queues="a,b", rowsPerPartition="300")
    rows = source.rows(START, END)
    assert len(rows) == len(source.parts(START, END)) == 5
    assert [batch.num_rows for batch in rows] == [1] * 5
    one = rows[0].to_pylist()[0]
    assert one == {"queue": "a", "first": 0, "end": 250, "may_begin_later": False, "reading": one["reading"]}


def test_the_filter_of_topics_and_the_size_of_batches_reach_the_reader(reader: FakeReader) -> None:
    source = handed(reader, topicFilter="plant/3/#", rowsPerBatch="77")
    fetched(reader, source, place(a=10), place(a=20))
    asked = parse_qs(urlsplit(reader.requests[-1]).query)
    assert (asked["topic"], asked["rows"], asked["first"], asked["end"]) == (
        ["plant/3/#"],
        ["77"],
        ["10"],
        ["20"],
    )


def test_neither_rows_nor_schema_hold_who_asks(reader: FakeReader) -> None:
    reader.password = "ann:s3cret"
    inside = reader.uri.replace("://", "://ann:s3cret@")
    for options in ({"uri": inside}, {"user": "ann", "password": "s3cret"}):
        source = handed(reader, **options)
        told = source.schema.json() + str([batch.to_pydict() for batch in source.rows(START, END)])
        assert "s3cret" not in told
        assert "ann" not in told


def test_the_sink_comes_in_as_whom_its_own_options_name(reader: FakeReader) -> None:
    reader.password = "ann:s3cret"
    source = handed(reader, user="ann", password="s3cret")
    rows = source.rows(place(a=0), place(a=10))
    with pytest.raises(ReaderRefused, match="does not let a caller without these credentials in"):
        list(HandedReading(endpoint_from({"uri": reader.uri}), source.schema).read(rows))
    known = endpoint_from({"uri": reader.uri, "user": "ann", "password": "s3cret"})
    assert sum(batch.num_rows for batch in HandedReading(known, source.schema).read(rows)) == 10


def test_a_stream_that_breaks_off_in_the_sink_goes_on_behind_its_last_row(reader: FakeReader) -> None:
    source = handed(reader, rowsPerBatch="100")
    reader.breaks_left, reader.batches_before_break = 2, 3
    endpoint = endpoint_from({"uri": reader.uri, "retrySeconds": "30"})
    rows = HandedReading(endpoint, source.schema).read(source.rows(place(a=0), place(a=1000)))
    assert [n for batch in rows for n in batch.column("offset").to_pylist()] == list(range(1000))


def test_records_removed_before_the_sink_came_are_an_error_or_left_out(reader: FakeReader) -> None:
    strict, lenient = handed(reader), handed(reader, failOnDataLoss="false")
    reader.queues["a"].first = 400
    with pytest.raises(DataLost, match='400 records of the queue "a", offsets 0 to 399'):
        fetched(reader, strict, place(a=0), place(a=1000))
    found = fetched(reader, lenient, place(a=0), place(a=1000))
    assert found["offset"].to_pylist() == list(range(400, 1000))


def test_a_queue_that_came_later_is_fetched_from_what_it_has(reader: FakeReader) -> None:
    found = fetched(reader, handed(reader, queues="a,b"), place(a=1000), END)
    assert found["offset"].to_pylist() == list(range(100, 200))


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_is_the_same_by_both_ways_and_may_be_written_by_both(
    reader: FakeReader, tmp_path: Path, table_format: str
) -> None:
    given = {"includeHeaders": "true", "columns": "queue,partition,offset,timestamp,topic,payload,qos"}
    source, plain = handed(reader, **given), AskedSource(reader, **given)
    table, alone = tmp_path / "both", tmp_path / "alone"
    fetching = {"tableFormat": table_format, "handOver": "true", "uri": reader.uri}
    first = source.rows(place(a=0), place(a=400))
    for _ in range(2):  # a batch that runs again adds nothing
        write_lake(table, source.schema, first, 0, **fetching)
    write_lake(table, plain.schema, plain.rows(place(a=400), place(a=700)), 1, tableFormat=table_format)
    write_lake(table, source.schema, source.rows(place(a=700), place(a=1000)), 2, **fetching)
    assert_offsets(table, table_format, range(1000))

    write_lake(alone, plain.schema, plain.rows(place(a=0), place(a=1000)), 0, tableFormat=table_format)
    files = [*files_of(str(table)), *files_of(str(alone))]
    schemas = {str(pq.ParquetFile(file).schema).partition("\n")[2] for file in files}
    assert len(schemas) == 1, "columns of the files differ by the way they were written"


def test_a_sink_that_is_not_told_does_not_write_ranges_as_rows(reader: FakeReader, tmp_path: Path) -> None:
    options = parse_lake_options({"path": str(tmp_path / "table")})
    with pytest.raises(LakeError, match="its rows are ranges of offsets and not records"):
        LakeStreamWriter(options, handed(reader).schema)


def test_a_sink_that_is_told_takes_ranges_only_and_only_as_they_came(reader: FakeReader) -> None:
    endpoint = endpoint_from({"uri": reader.uri})
    schema = handed(reader).schema
    for changed in (
        AskedSource(reader).schema,
        RANGE,  # the names alone do not say how to read
        StructType([*schema.fields, StructField("more", LongType())]),
        StructType(list(reversed(schema.fields))),
    ):
        with pytest.raises(MillstreamSparkError, match="takes what a source with handOver=true gives"):
            HandedReading(endpoint, changed)


def test_ranges_of_another_read_are_not_fetched_as_if_they_were_of_this_one(reader: FakeReader) -> None:
    source, other = handed(reader), handed(reader, topicFilter="plant/#")
    rows = [*source.rows(START, END), *other.rows(START, END)]
    with pytest.raises(MillstreamSparkError, match="ranges of two reads"):
        list(HandedReading(endpoint_from({"uri": reader.uri}), source.schema).read(rows))


def test_offsets_of_one_broker_are_not_fetched_from_another(reader: FakeReader) -> None:
    with pytest.raises(OptionError, match="Give both the same uri"):
        HandedReading(endpoint_from({"uri": "http://elsewhere:1"}), handed(reader).schema)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"uri": "http://h"}, "uri is for a write with handOver=true"),
        ({"password": "p"}, "password is for a write with handOver=true"),
        ({"handOver": "true"}, "the option uri is missing"),
        ({"handOver": "yes"}, "true or false"),
        ({"handOver": "true", "uri": "http://h", "password": "p"}, "a password and no user"),
    ],
)
def test_a_sink_says_what_is_wrong_with_where_to_fetch(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_lake_options({"path": "/t", **options})


@pytest.mark.parametrize("option", ["pushdown", "deadLetterQueue"])
def test_what_needs_records_in_spark_is_refused_beside_hand_over(option: str) -> None:
    with pytest.raises(OptionError, match=f"the option {option} needs records"):
        read_options({**LEAST, "handOver": "true", option: "true"})
    read_options({**LEAST, "handOver": "true", "pushdown": "false"})


def test_a_schema_of_ones_own_is_refused_beside_hand_over(reader: FakeReader) -> None:
    source = MillstreamSource({"uri": reader.uri, "queues": "a", "handOver": "true"})
    with pytest.raises(OptionError, match="Leave the schema out"):
        source.reader(StructType([StructField("offset", LongType())]))


def test_a_batch_hands_over_its_ranges_too(reader: FakeReader) -> None:
    source = MillstreamSource({"uri": reader.uri, "queues": "a,b", "handOver": "true"})
    schema = source.schema()
    assert isinstance(schema, StructType)
    batch = source.reader(schema)
    rows = [one for part in batch.partitions() for one in batch.read(part)]
    found = HandedReading(endpoint_from({"uri": reader.uri}), schema).read(rows)
    assert sum(one.num_rows for one in found) == 1100


def counted(source: AskedSource) -> dict[str, int]:
    report = source.stream.reportLatestOffset()
    assert report is not None
    return {queue: place["handed"] for queue, place in report.items() if "handed" in place}


def test_records_handed_over_are_reported_once_however_often_a_range_is_asked_for(
    reader: FakeReader,
) -> None:
    source = handed(reader, queues="a,b")
    for _ in range(2):
        end = source.stream.latestOffset(place(a=0, b=100), ReadMaxRows(110))
        source.parts(place(a=0, b=100), dict(end))
    assert counted(source) == {"a": 100, "b": 10}
    source.stream.latestOffset(dict(end), ReadAllAvailable())
    assert counted(source) == {"a": 1000, "b": 100}


def test_of_a_batch_that_runs_again_and_of_a_queue_that_came_later_the_records_there_are_count(
    reader: FakeReader,
) -> None:
    source = handed(reader, queues="a,b")
    source.parts(place(a=0), place(a=600))  # from the checkpoint: nobody asked for the newest before
    source.stream.latestOffset(place(a=600), ReadAllAvailable())
    assert counted(source) == {"a": 1000, "b": 100}


def test_the_records_of_a_queue_that_was_made_anew_count_from_its_first(reader: FakeReader) -> None:
    source = handed(reader, failOnDataLoss="false")
    source.stream.latestOffset(place(a=990), ReadAllAvailable())
    reader.add("a", 0, 50)
    for _ in range(2):
        source.stream.latestOffset(place(a=1000), ReadAllAvailable())
    assert counted(source) == {"a": 60}


def test_a_source_that_gives_records_reports_none_as_handed_over(reader: FakeReader) -> None:
    source = AskedSource(reader)
    source.stream.latestOffset(place(a=0), ReadAllAvailable())
    assert counted(source) == {}
