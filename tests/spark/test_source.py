"""`spark.read.format("millstream")` on real Spark, from a real broker through its reader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_world import StreamBroker, first_line, sorted_rows, unique

from millstream.security.users import User, UserTable, format_users, hash_password

pytest_plugins = ["spark_fixtures"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class Table:
    """Loads queues of one broker."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._spark = spark
        self._uri = uri

    def load(self, queues: str = "", schema: str = "", **options: str) -> DataFrame:
        reader = self._spark.read.format("millstream").option("uri", self._uri).options(**options)
        if queues:
            reader = reader.option("queues", queues)
        return reader.schema(schema).load() if schema else reader.load()


@pytest.fixture
def table(spark: SparkSession, streams: StreamBroker) -> Table:
    return Table(spark, streams.uri)


def refusal(call: Any) -> str:
    """The first line of what a user is told; no traceback may stand in it or before it."""
    with pytest.raises(PySparkException) as caught:
        call()
    line = first_line(caught.value)
    assert "Traceback" not in line
    return line


# ---------------------------------------------------------------------- rows


def test_every_record_is_one_row_with_what_was_published(table: Table, streams: StreamBroker) -> None:
    name = streams.create_stream(unique("readings"))
    before = datetime.now(UTC).replace(tzinfo=None)
    streams.publish(name, ["21.5", "22"], ["hall/1", "hall/2"], content_type="text/plain")
    streams.publish(name, ["x" * 5000], properties=[("event-time", "1760000000123")])
    rows = sorted(table.load(name).collect(), key=lambda row: row.offset)
    assert [(row.queue, row.partition, row.offset) for row in rows] == [(name, 0, n) for n in range(3)]
    assert [bytes(row.payload) for row in rows] == [b"21.5", b"22", b"x" * 5000]
    assert [row.topic for row in rows] == [
        f"$queue/{name}/hall/1",
        f"$queue/{name}/hall/2",
        f"$queue/{name}",
    ]
    assert [row.content_type for row in rows] == ["text/plain", "text/plain", None]
    assert [row.qos for row in rows] == [1, 1, 1]
    assert [row.event_time for row in rows][:2] == [None, None]
    after = datetime.now(UTC).replace(tzinfo=None)
    assert all(before <= row.timestamp <= after for row in rows)


def test_a_time_of_the_event_is_a_column(table: Table, streams: StreamBroker) -> None:
    name = streams.create_stream(unique("readings"))
    streams.publish(name, ["x"], properties=[("event-time", "1760000000123")])
    [row] = table.load(name).select(F.unix_micros("event_time")).collect()
    assert row[0] == 1_760_000_000_123_000


def test_thousands_of_records_come_once_each_through_many_tasks(table: Table, streams: StreamBroker) -> None:
    name = streams.filled_stream("readings", 3000)
    frame = table.load(name, minPartitions="5", rowsPerBatch="250")
    assert frame.rdd.getNumPartitions() == 5
    expected = [(number, str(number)) for number in range(3000)]
    assert sorted_rows(frame.select("offset", F.col("payload").cast("string"))) == expected


def test_a_queue_without_records_is_an_empty_table(table: Table, streams: StreamBroker) -> None:
    assert table.load(streams.create_stream(unique("empty"))).count() == 0


def test_the_newest_record_is_there_as_soon_as_it_is_confirmed(table: Table, streams: StreamBroker) -> None:
    name = streams.create_stream(unique("readings"))
    for count in range(1, 4):
        streams.publish(name, ["x"])
        assert table.load(name).count() == count


# -------------------------------------------------------------------- ranges


def test_offsets_bound_what_is_read(table: Table, streams: StreamBroker) -> None:
    name = streams.filled_stream("readings", 100)
    frame = table.load(name, startingOffsets=f'{{"{name}": {{"0": 10}}}}', endingOffsets=f'{{"{name}": 13}}')
    assert sorted_rows(frame, "offset") == [(10,), (11,), (12,)]


def test_times_bound_what_is_read(table: Table, streams: StreamBroker) -> None:
    name = streams.filled_stream("readings", 10)
    edge_ms = _next_millisecond()
    streams.fill(name, 5, first=10)
    end_ms = _next_millisecond()
    streams.fill(name, 5, first=15)
    frame = table.load(name, startingTimestamp=str(edge_ms), endingTimestamp=str(end_ms))
    assert sorted_rows(frame, "offset") == [(number,) for number in range(10, 15)]
    by_queue = table.load(name, startingOffsetsByTimestamp=f'{{"{name}": {end_ms}}}')
    assert by_queue.count() == 5


def _next_millisecond() -> int:
    """A time later than all that was published, and not later than what will be."""
    now_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= now_ms:
        pass
    return now_ms + 1


def test_several_queues_are_one_table(table: Table, streams: StreamBroker) -> None:
    one, other = streams.filled_stream("one", 7), streams.filled_stream("other", 4)
    counts = sorted_rows(table.load(f"{one}, {other}").groupBy("queue").count())
    assert counts == sorted([(one, 7), (other, 4)])


def test_a_pattern_finds_the_queues_whose_whole_name_fits(table: Table, streams: StreamBroker) -> None:
    mark = unique("plant")
    for title, count in ((f"{mark}-1", 2), (f"{mark}-2", 3), (f"{mark}-2-old", 5)):
        streams.fill(streams.create_stream(title), count)
    assert table.load(queuePattern=f"{mark}-[0-9]+").count() == 5


# ------------------------------------------------------------------- columns


def test_columns_are_chosen_and_ordered(table: Table, streams: StreamBroker) -> None:
    name = streams.filled_stream("readings", 3)
    frame = table.load(name, columns="payload,offset")
    assert frame.columns == ["payload", "offset"]
    assert sorted_rows(frame, "offset") == [(0,), (1,), (2,)]
    only = table.load(name, columns="payload")
    assert sorted(bytes(row.payload) for row in only.collect()) == [b"0", b"1", b"2"]


def test_a_schema_of_the_user_chooses_columns_too(table: Table, streams: StreamBroker) -> None:
    name = streams.filled_stream("readings", 3)
    frame = table.load(name, schema="topic STRING, offset BIGINT")
    assert sorted_rows(frame) == [(f"$queue/{name}", number) for number in range(3)]


def test_headers_come_as_a_map_or_as_all_of_them_in_order(table: Table, streams: StreamBroker) -> None:
    name = streams.create_stream(unique("readings"))
    streams.publish(name, ["x"], properties=[("unit", "C"), ("site", "a"), ("unit", "K")])
    assert "headers" not in table.load(name).columns
    [row] = table.load(name, includeHeaders="true").collect()
    assert row.headers == {"unit": "K", "site": "a"}
    [row] = table.load(name, includeHeaders="true", headersFormat="array").collect()
    assert [tuple(pair) for pair in row.headers] == [("unit", "C"), ("site", "a"), ("unit", "K")]


def test_a_topic_filter_leaves_the_others_out(table: Table, streams: StreamBroker) -> None:
    name = streams.create_stream(unique("readings"))
    streams.publish(name, map(str, range(9)), ["a/t", "b/t", "a/h"])
    frame = table.load(name, topicFilter=f"$queue/{name}/+/t", columns="offset")
    assert sorted_rows(frame) == [(0,), (1,), (3,), (4,), (6,), (7,)]


def test_filters_of_spark_reach_the_reader_and_change_no_result(
    spark: SparkSession, table: Table, streams: StreamBroker
) -> None:
    name = streams.create_stream(unique("readings"))
    streams.publish(name, map(str, range(60)), ["a/t", "b/t", "a/h"])
    condition = (
        f"offset >= 10 and offset < 40 and topic like '$queue/{name}/a/%' and timestamp > '2020-01-01'"
    )
    expected = sorted_rows(table.load(name).where(condition), "offset")
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = table.load(name, pushdown="true", rowsPerPartition="1").where(condition)
        assert sorted_rows(frame, "offset") == expected
        assert len(expected) == 20
        assert frame.rdd.getNumPartitions() == 30  # a task for each offset in the range, and for no other
    finally:
        spark.conf.unset(PUSHDOWN)


def test_filters_that_spark_keeps_to_itself_are_said_with_the_setting(
    table: Table, streams: StreamBroker
) -> None:
    name = streams.filled_stream("readings", 1)
    assert PUSHDOWN in refusal(lambda: table.load(name, pushdown="true").count())


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffset": "x"}, 'there is no option "startingoffset". Did you mean "startingOffsets"?'),
        ({"startingOffsets": "first"}, 'the option startingOffsets cannot be "first"'),
        ({"queuePattern": "x"}, "queues and queuePattern are given together"),
        ({"uri": "127.0.0.1:1"}, "the option uri has no valid address in it"),
        ({"uri": "http://127.0.0.1:1", "retrySeconds": "0"}, "no reader answers at http://127.0.0.1:1"),
    ],
)
def test_what_is_wrong_with_options_is_said_first(table: Table, options: dict[str, str], said: str) -> None:
    assert said in refusal(lambda: table.load("readings", **options))


def test_a_missing_queue_is_said_with_its_name(table: Table, streams: StreamBroker) -> None:
    assert "nowhere" in refusal(lambda: table.load("nowhere"))


def test_a_queue_that_is_no_stream_is_said_so(table: Table, streams: StreamBroker) -> None:
    name = unique("jobs")
    streams.call("queue.create", name=name, definition={"kind": "work"})
    line = refusal(lambda: table.load(name))
    assert name in line
    assert "stream" in line


def test_a_port_of_something_else_is_said_so(spark: SparkSession, streams: StreamBroker) -> None:
    wrong = Table(spark, f"http://127.0.0.1:{streams.mqtt_port}")
    line = refusal(lambda: wrong.load("readings", retrySeconds="0"))
    assert f"http://127.0.0.1:{streams.mqtt_port}" in line


def test_records_that_are_gone_are_an_error_that_names_them_or_are_left_out(
    table: Table, streams: StreamBroker
) -> None:
    name = streams.filled_stream("readings", 20)
    streams.call("queue.purge", name=name)
    streams.fill(name, 5, first=20)
    start = f'{{"{name}": 4}}'
    line = refusal(lambda: table.load(name, startingOffsets=start).count())
    assert f'16 records of the queue "{name}", offsets 4 to 19' in line
    assert table.load(name, startingOffsets=start, failOnDataLoss="false").count() == 5
    assert table.load(name).count() == 5


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[StreamBroker]:
    users = tmp_path / "users.txt"
    users.touch(mode=0o600)
    users.write_text(format_users(UserTable({"ann": User("ann", hash_password("right"), "default", None)})))
    broker = StreamBroker(tmp_path, f"auth.password_file={users}")
    yield broker
    broker.end()


def test_only_who_may_come_in_can_read(spark: SparkSession, guarded: StreamBroker) -> None:
    name = guarded.filled_stream("readings", 3)
    guarded_table = Table(spark, guarded.uri)
    assert guarded_table.load(name, user="ann", password="right").count() == 3
    line = refusal(lambda: guarded_table.load(name, user="ann", password="wrong-one"))
    assert 'does not let the user "ann" in' in line
    assert "wrong-one" not in line
    assert "does not let" in refusal(lambda: guarded_table.load(name))
