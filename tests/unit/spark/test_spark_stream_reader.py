"""How far each micro-batch goes, without Spark: the stream reader asked as Spark asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fake_reader import FakeReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from pyspark_millstream.checkpoint_guard import parse_kept
from pyspark_millstream.errors import CheckpointError, DataLost, MillstreamSparkError, OptionError
from pyspark_millstream.options import read_options
from pyspark_millstream.rows import row_schema
from pyspark_millstream.stream_reader import StreamReader


@pytest.fixture
def reader() -> Iterator[FakeReader]:
    with FakeReader() as reader:
        reader.add("a", 0, 1000)
        reader.add("b", 100, 200)
        yield reader


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def read(self) -> float:
        return self.now


def stream_of(reader: FakeReader, clock: Clock | None = None, **options: str) -> StreamReader:
    if "queuePattern" not in options:
        options.setdefault("queues", "a,b")
    checked = read_options({"uri": reader.uri, "retrySeconds": "0", **options})
    schema = row_schema(checked.columns, checked.headers_format)
    return StreamReader(checked, schema, None, (clock or Clock()).read)


def place(**offsets: int) -> dict[str, object]:
    return {queue: {"0": offset} for queue, offset in offsets.items()}


def rows_of(stream: StreamReader, start: dict[str, object], end: dict[str, object]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for part in stream.partitions(start, end):
        for batch in stream.read(part):
            found += zip(batch.column("queue").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    return found


def test_a_stream_begins_at_the_end_unless_told_otherwise(reader: FakeReader) -> None:
    assert stream_of(reader).initialOffset() == place(a=1000, b=200)
    assert stream_of(reader, startingOffsets="earliest").initialOffset() == place(a=0, b=100)
    mixed = stream_of(reader, startingOffsets='{"a": {"0": 7}, "b": -2}')
    assert mixed.initialOffset() == place(a=7, b=100)


def test_the_text_of_a_place_is_in_order_of_names(reader: FakeReader) -> None:
    assert (
        json.dumps(stream_of(reader, queues="b,a").initialOffset()) == '{"a": {"0": 1000}, "b": {"0": 200}}'
    )


def test_a_start_by_time_finds_the_first_record_at_or_after_it(reader: FakeReader) -> None:
    began_ms = reader.queues["a"].began_us // 1000
    stream = stream_of(reader, queues="a", startingTimestamp=str(began_ms + 250))
    assert stream.initialOffset() == place(a=250)


def test_a_start_later_than_every_record_is_an_error_or_the_end(reader: FakeReader) -> None:
    late = str(reader.queues["a"].began_us // 1000 + 10**7)
    with pytest.raises(OptionError, match="no record at or after the startingTimestamp"):
        stream_of(reader, queues="a", startingTimestamp=late).initialOffset()
    allowed = stream_of(
        reader, queues="a", startingTimestamp=late, startingOffsetsByTimestampStrategy="latest"
    )
    assert allowed.initialOffset() == place(a=1000)


@pytest.mark.parametrize(
    ("value", "said"), [('{"a": 5}', 'says nothing of "b"'), ('{"a": 5, "b": 6, "c": 7}', 'speaks of "c"')]
)
def test_offsets_must_be_given_for_every_queue_and_no_other(
    reader: FakeReader, value: str, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        stream_of(reader, startingOffsets=value).initialOffset()


def test_a_start_beyond_the_end_is_refused(reader: FakeReader) -> None:
    with pytest.raises(OptionError, match='starts "a" at 1001; the queue ends at 1000'):
        stream_of(reader, queues="a", startingOffsets='{"a": 1001}').initialOffset()


def test_the_read_limit_is_that_of_the_options(reader: FakeReader) -> None:
    assert stream_of(reader).getDefaultReadLimit() == ReadAllAvailable()
    assert stream_of(reader, maxOffsetsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert stream_of(reader, maxBytesPerTrigger="5k").getDefaultReadLimit() == ReadMaxBytes(5120)
    assert stream_of(reader, minOffsetsPerTrigger="5").getDefaultReadLimit() == ReadMinRows(5)


def test_rows_are_limited_in_proportion_to_what_waits(reader: FakeReader) -> None:
    stream = stream_of(reader, maxOffsetsPerTrigger="110")
    assert stream.latestOffset(place(a=0, b=100), ReadMaxRows(110)) == place(a=100, b=110)
    assert stream.latestOffset(place(a=0, b=100), ReadAllAvailable()) == place(a=1000, b=200)


def test_bytes_are_limited_by_the_size_of_records(reader: FakeReader) -> None:
    stream = stream_of(reader, queues="a", maxBytesPerTrigger="5000")  # a record of the fake has 100
    assert stream.latestOffset(place(a=0), ReadMaxBytes(5000)) == place(a=50)


def test_rows_and_bytes_hold_together(reader: FakeReader) -> None:
    stream = stream_of(reader, queues="a", maxOffsetsPerTrigger="70", maxBytesPerTrigger="5000")
    assert stream.latestOffset(place(a=0), ReadMaxRows(70)) == place(a=50)


def test_too_few_records_wait_until_there_are_enough_or_the_time_is_over(reader: FakeReader) -> None:
    clock = Clock()
    stream = stream_of(reader, clock, queues="a", minOffsetsPerTrigger="500", maxTriggerDelay="60s")
    limit = stream.getDefaultReadLimit()
    assert stream.latestOffset(place(a=900), limit) == place(a=1000)  # the first does not wait
    reader.queues["a"].end = 1499
    clock.now += 59
    assert stream.latestOffset(place(a=1000), limit) == place(a=1000)
    reader.queues["a"].end = 1500
    assert stream.latestOffset(place(a=1000), limit) == place(a=1500)
    reader.queues["a"].end = 1501
    clock.now += 60
    assert stream.latestOffset(place(a=1500), limit) == place(a=1501)


def test_available_now_goes_as_far_as_there_was_when_it_began(reader: FakeReader) -> None:
    stream = stream_of(
        reader, queuePattern="[a-z]", maxOffsetsPerTrigger="10000", minOffsetsPerTrigger="9000"
    )
    limit = stream.getDefaultReadLimit()
    stream.prepareForTriggerAvailableNow()
    reader.queues["a"].end = 5000
    reader.add("c", 0, 10)
    assert stream.latestOffset(place(a=0, b=100), limit) == place(a=1000, b=200)
    assert stream.latestOffset(place(a=1000, b=200), limit) == place(a=1000, b=200)
    assert stream.latestOffset(place(a=4000, b=200), limit) == place(a=4000, b=200)
    assert stream.reportLatestOffset() == place(a=5000, b=200, c=10)


def test_a_queue_that_fits_the_pattern_later_is_read_from_its_first_record(reader: FakeReader) -> None:
    stream = stream_of(reader, queuePattern="[a-z]")
    reader.add("c", 5, 9)
    reader.add("other", 0, 9)
    start = place(a=1000, b=200)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == place(a=1000, b=200, c=9)
    assert rows_of(stream, start, place(a=1000, b=200, c=9)) == [("c", n) for n in range(5, 9)]


def test_no_queue_for_a_pattern_is_said_with_what_to_type(reader: FakeReader) -> None:
    with pytest.raises(MillstreamSparkError, match=r'fits the queuePattern "x\.\*"'):
        stream_of(reader, queuePattern="x.*").initialOffset()


def test_records_that_retention_took_are_an_error_that_names_them(reader: FakeReader) -> None:
    with pytest.raises(DataLost) as caught:
        stream_of(reader).latestOffset(place(a=0, b=40), ReadAllAvailable())
    assert '60 records of the queue "b", offsets 40 to 99' in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)


def test_records_that_retention_took_are_counted_once_when_asked_to_go_on(reader: FakeReader) -> None:
    stream = stream_of(reader, failOnDataLoss="false")
    for _ in range(3):
        assert stream.latestOffset(place(a=1000, b=40), ReadAllAvailable()) == place(a=1000, b=200)
    assert stream.reportLatestOffset() == {"a": {"0": 1000}, "b": {"0": 200, "lost": 60}}
    found = rows_of(stream, place(a=1000, b=40), place(a=1000, b=200))
    assert found == [("b", n) for n in range(100, 200)]


def test_records_that_go_while_a_task_runs_are_an_error_too(reader: FakeReader) -> None:
    stream = stream_of(reader)
    with pytest.raises(DataLost, match="offsets 40 to 99"):
        rows_of(stream, place(b=40), place(b=200))


def test_a_queue_made_anew_is_an_error_or_read_from_its_first_record(reader: FakeReader) -> None:
    start = place(a=1000, b=5000)
    with pytest.raises(DataLost, match="made anew or restored from a backup"):
        stream_of(reader).latestOffset(start, ReadAllAvailable())
    stream = stream_of(reader, failOnDataLoss="false")
    assert stream.latestOffset(start, ReadAllAvailable()) == place(a=1000, b=200)
    assert rows_of(stream, start, place(a=1000, b=200)) == [("b", n) for n in range(100, 200)]


def test_a_queue_that_is_gone_from_a_pattern_is_an_error_or_keeps_its_place(reader: FakeReader) -> None:
    start = place(a=1000, b=150, gone=7)
    with pytest.raises(DataLost, match='the queue "gone" is gone'):
        stream_of(reader, queuePattern="[a-z]+").latestOffset(start, ReadAllAvailable())
    stream = stream_of(reader, queuePattern="[a-z]+", failOnDataLoss="false")
    assert stream.latestOffset(start, ReadAllAvailable()) == place(a=1000, b=200, gone=7)


def test_the_group_follows_what_is_done(reader: FakeReader) -> None:
    stream = stream_of(reader, queues="a", consumerGroup="spark")
    stream.latestOffset(place(a=10), ReadAllAvailable())
    stream.commit(place(a=10))
    stream.commit(place(a=20))
    assert reader.commits == [("a", "spark", 10), ("a", "spark", 20)]


def test_a_commit_that_fails_does_not_stop_the_query(
    reader: FakeReader, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = stream_of(reader, queues="a", consumerGroup="spark")
    reader.busy_left = 2
    stream.commit(place(a=10))
    stream.commit(place(a=11))
    assert capsys.readouterr().err.count("the query goes on") == 1
    stream.commit(place(a=12))
    assert reader.commits == [("a", "spark", 12)]


def test_a_damaged_checkpoint_is_said_in_one_sentence(reader: FakeReader) -> None:
    with pytest.raises(CheckpointError, match="did not write"):
        stream_of(reader).latestOffset({"a": 5}, ReadAllAvailable())
    with pytest.raises(CheckpointError, match="the checkpoint of this query is damaged") as caught:
        parse_kept('{"a": {"0"')
    assert "\n" not in str(caught.value)
    assert parse_kept('{"a": {"0": 1}}') == {"a": {"0": 1}}
