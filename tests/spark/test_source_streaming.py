"""`spark.readStream.format("millstream")` on real Spark: every record once, over restarts, limits and lost data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark_world import StreamBroker, first_line, unique

pytest_plugins = ["spark_fixtures"]

WAIT_S = 300  # a bound; a run ends when its records are read


class Copy:
    """A query that copies queues into a folder of Parquet, as often as it is run, from one checkpoint."""

    def __init__(self, spark: SparkSession, uri: str, folder: Path) -> None:
        self._spark = spark
        self._uri = uri
        self.checkpoint = folder / "checkpoint"
        self.target = folder / "rows"

    def run(self, **options: str) -> StreamingQuery:
        """Everything that is there now."""
        query = self.start(**options)
        assert query.awaitTermination(WAIT_S)
        return query

    def start(self, **options: str) -> StreamingQuery:
        source = (
            self._spark.readStream.format("millstream").option("uri", self._uri).options(**options).load()
        )
        writer = source.select("queue", "offset").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.checkpoint)).option("path", str(self.target))
        return writer.trigger(availableNow=True).start()

    def rows(self) -> list[tuple[str, int]]:
        """Sorted, so a row that came twice is seen."""
        return sorted(tuple(row) for row in self._spark.read.parquet(str(self.target)).collect())

    def refusal(self, **options: str) -> str:
        with pytest.raises(PySparkException) as caught:
            self.run(**options)
        line = first_line(caught.value)
        assert "Traceback" not in line
        return line


@pytest.fixture
def copy(spark: SparkSession, streams: StreamBroker, tmp_path: Path) -> Copy:
    return Copy(spark, streams.uri, tmp_path)


def batches_of(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def places_of(query: StreamingQuery, name: str) -> list[dict[str, Any]]:
    """startOffset, endOffset or latestOffset of each micro-batch with rows."""
    found = [progress["sources"][0][name] for progress in query.recentProgress if progress["numInputRows"]]
    return [json.loads(text) for text in found if text is not None]


def test_every_record_comes_once_over_restarts_with_other_limits(copy: Copy, streams: StreamBroker) -> None:
    name = streams.filled_stream("readings", 500)
    first = copy.run(
        queues=name, startingOffsets="earliest", maxOffsetsPerTrigger="200", consumerGroup="lake"
    )
    assert batches_of(first) == [200, 200, 100]
    assert places_of(first, "endOffset") == [{name: {"0": place}} for place in (200, 400, 500)]
    lags = [
        latest[name]["0"] - end[name]["0"]
        for latest, end in zip(places_of(first, "latestOffset"), places_of(first, "endOffset"), strict=True)
    ]
    assert lags == [300, 100, 0]
    assert streams.groups(name) == {"lake": 500}

    streams.fill(name, 90, first=500)
    second = copy.run(queues=name, maxOffsetsPerTrigger="50", minPartitions="2", consumerGroup="lake")
    assert batches_of(second) == [50, 40]
    assert copy.rows() == [(name, number) for number in range(590)]
    assert streams.groups(name) == {"lake": 590}


def test_a_batch_that_was_planned_and_not_done_is_read_again_the_same(
    copy: Copy, streams: StreamBroker
) -> None:
    name = streams.filled_stream("readings", 100)
    copy.run(queues=name, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    for log in (copy.checkpoint / "commits", copy.target / "_spark_metadata"):
        (log / "1").unlink()  # as after a kill between the plan of a batch and its end
        (log / ".1.crc").unlink(missing_ok=True)
    streams.fill(name, 10, first=100)
    again = copy.run(queues=name, maxOffsetsPerTrigger="1000")
    assert batches_of(again) == [40, 10]
    assert copy.rows() == [(name, number) for number in range(110)]


def test_a_queue_made_later_is_read_whole_when_it_fits_the_pattern(copy: Copy, streams: StreamBroker) -> None:
    mark = unique("plant")
    streams.fill(streams.create_stream(f"{mark}-1"), 5)
    copy.run(queuePattern=f"{mark}-[0-9]", startingOffsets="earliest")
    streams.fill(f"{mark}-1", 2, first=5)
    streams.fill(streams.create_stream(f"{mark}-2"), 3)
    copy.run(queuePattern=f"{mark}-[0-9]")
    expected = [(f"{mark}-1", number) for number in range(7)] + [(f"{mark}-2", number) for number in range(3)]
    assert copy.rows() == expected


def test_a_stream_begins_with_what_comes_after_it_unless_told_otherwise(
    copy: Copy, streams: StreamBroker
) -> None:
    name = streams.filled_stream("readings", 5)
    copy.run(queues=name)
    streams.fill(name, 2, first=5)
    copy.run(queues=name)
    assert copy.rows() == [(name, 5), (name, 6)]


def test_lost_records_stop_the_query_with_their_range_or_are_counted(
    copy: Copy, streams: StreamBroker
) -> None:
    name = streams.filled_stream("readings", 50)
    copy.run(queues=name, startingOffsets="earliest")
    streams.fill(name, 30, first=50)
    streams.call("queue.purge", name=name)
    streams.fill(name, 4, first=80)
    assert f'30 records of the queue "{name}", offsets 50 to 79' in copy.refusal(queues=name)
    on = copy.run(queues=name, failOnDataLoss="false")
    assert places_of(on, "latestOffset") == [{name: {"0": 84, "lost": 30}}]
    assert copy.rows() == [(name, number) for number in (*range(50), *range(80, 84))]


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ('{"readings": 5}', "holds an offset that millstream did not write"),
        ('{"readings": {"0"', "the checkpoint of this query is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_said_in_one_sentence_and_nothing_is_written(
    copy: Copy, streams: StreamBroker, kept: str, said: str
) -> None:
    name = streams.filled_stream("readings", 5)
    copy.run(queues=name, startingOffsets="earliest")
    file = copy.checkpoint / "offsets" / "0"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:-1], kept]))
    (file.parent / ".0.crc").unlink(missing_ok=True)
    streams.fill(name, 5, first=5)
    assert said in copy.refusal(queues=name)
    assert copy.rows() == [(name, number) for number in range(5)]


def test_what_a_stream_cannot_do_is_said_when_it_starts(copy: Copy, streams: StreamBroker) -> None:
    name = streams.filled_stream("readings", 1)
    assert "the option endingOffsets is for batch reads" in copy.refusal(queues=name, endingOffsets="latest")


def test_a_query_goes_on_when_the_broker_comes_back(
    spark: SparkSession, own_streams: StreamBroker, tmp_path: Path
) -> None:
    name = own_streams.filled_stream("readings", 300)
    copy = Copy(spark, own_streams.uri, tmp_path)
    query = copy.start(queues=name, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    while not batches_of(query):
        assert query.isActive, query.exception()
    own_streams.process.kill()
    own_streams.start_again()
    assert query.awaitTermination(WAIT_S)
    assert query.exception() is None
    assert copy.rows() == [(name, number) for number in range(300)]
