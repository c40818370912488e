"""Payloads decoded inside the source, on real Spark; and the way of bad rows to a dead-letter queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from spark_world import StreamBroker, first_line, unique

from pyspark_millstream.decode import bad_rows, dead_letters, write_dead_letters
from pyspark_millstream.decode.ddl import parse_ddl

pytest_plugins = ["spark_fixtures"]

DDL = (
    "device string, n bigint, t double, at timestamp, day date, place struct<x: double, tags: array<string>>"
)
ROWS = [
    {
        "device": f"d{number % 3}",
        "n": number,
        "t": number / 8,
        "at": "2026-11-15T10:00:00.123456Z",
        "day": "2026-11-15",
        "place": {"x": number, "tags": ["a", None]},
        "more": [number],
    }
    for number in range(300)
]
BAD = {7: "no json", 8: "", 100: '{"n": 1.5}', 299: '{"n": 1}{"n": 2}'}


@pytest.fixture
def mixed(streams: StreamBroker) -> str:
    """A stream with rows of which some are bad."""
    name = streams.create_stream(unique("mixed"))
    streams.publish(
        name, [BAD.get(number, json.dumps(row)) for number, row in enumerate(ROWS)], ["hall/1", "hall/2"]
    )
    return name


def options_for(streams: StreamBroker, queue: str, **more: str) -> dict[str, str]:
    return {"uri": streams.uri, "queues": queue, "payloadFormat": "json", "payloadSchema": DDL, **more}


def load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("millstream").options(**options).load()


def test_values_are_those_of_sparks_own_from_json(
    spark: SparkSession, streams: StreamBroker, mixed: str
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    frame = load(spark, options_for(streams, mixed))
    theirs = F.from_json(F.col("payload").cast("string"), DDL)
    compared = frame.where("_error is null").select("value", theirs.alias("theirs"), "offset").collect()
    assert len(compared) == len(ROWS) - len(BAD)
    assert [row.offset for row in compared if row.value != row.theirs] == []
    good, bad = dead_letters(frame)
    assert {row.offset: row._error for row in bad.collect()}.keys() == BAD.keys()
    assert "_error" not in good.columns
    assert good.count() == len(ROWS) - len(BAD)


def test_an_inferred_schema_reads_the_rows_it_came_from(
    spark: SparkSession, streams: StreamBroker, mixed: str
) -> None:
    frame = load(spark, options_for(streams, mixed, payloadSchema="infer", columns="offset"))
    assert frame.columns == ["offset", "value", "_error"]
    assert frame.select("value.*").columns == ["at", "day", "device", "more", "n", "place", "t"]
    assert frame.where("value.place.x = 5").select("offset").collect()[0].offset == 5


def test_bad_rows_of_a_stream_go_to_the_dead_letter_queue_once_with_the_reason(
    spark: SparkSession, streams: StreamBroker, mixed: str, tmp_path: Path
) -> None:
    letters = streams.create_stream(unique("letters"))
    options = options_for(streams, mixed, deadLetterQueue=letters, startingOffsets="earliest")
    for _ in range(2):  # started again on the same checkpoint: nothing twice
        frame = spark.readStream.format("millstream").options(**options).load()
        query = write_dead_letters(frame, options, str(tmp_path / "letters"), available_now=True)
        assert query is not None
        query.awaitTermination()
    kept = load(spark, {"uri": streams.uri, "queues": letters, "includeHeaders": "true"}).collect()
    assert {int(row.headers["_decode_offset"]): bytes(row.payload).decode() for row in kept} == BAD
    assert len(kept) == len(BAD)
    one = next(row for row in kept if row.headers["_decode_offset"] == "100")
    assert one.headers["_decode_error"] == "n: 1.5 is no bigint"
    assert one.headers["_decode_queue"] == mixed
    assert one.headers["_decode_id"] == f"{mixed}:100"


def test_bad_rows_of_a_batch_keep_the_headers_they_came_with(
    spark: SparkSession, streams: StreamBroker
) -> None:
    name, letters = streams.create_stream(unique("headed")), streams.create_stream(unique("letters"))
    streams.publish(name, ["x", '{"n": 1}'], properties=[("site", "north"), ("_decode_error", "older")])
    options = options_for(streams, name, deadLetterQueue=letters, includeHeaders="true")
    assert write_dead_letters(load(spark, options), options) is None
    kept = load(spark, {"uri": streams.uri, "queues": letters, "includeHeaders": "true"}).collect()
    assert [row.headers["site"] for row in kept] == ["north"]
    assert kept[0].headers["_decode_error"].startswith("not JSON")


def test_bad_rows_have_the_schema_of_the_sink(spark: SparkSession, streams: StreamBroker, mixed: str) -> None:
    rows = bad_rows(load(spark, options_for(streams, mixed)))
    assert rows.schema.simpleString() == "struct<payload:binary,key:string,headers:map<string,string>>"


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"payloadFormat": "xml"}, 'there is no payloadFormat "xml"'),
        ({"payloadSchema": "n nosuch"}, "there is no type 'nosuch' here"),
        ({"payloadFormat": "avro", "payloadSchema": "{"}, "is not the JSON text of an Avro schema"),
    ],
)
def test_wrong_options_are_one_sentence_before_any_job(
    spark: SparkSession, streams: StreamBroker, mixed: str, options: dict[str, str], part: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, options_for(streams, mixed, **options))
    assert part in first_line(caught.value)
    assert "Traceback" not in first_line(caught.value)


def test_schemas_are_read_as_spark_reads_them(spark: SparkSession) -> None:
    for text in (
        DDL,
        "a: int not null comment 'x, y', `b c``d` decimal(5,2), m map<string,array<struct<`e f`:tinyint>>>",
        "struct<a: timestamp_ntz, b float, c: binary>",
        "a byte, b short, c integer, d long, e real, f dec, g numeric(7), h timestamp_ltz, i date",
    ):
        theirs = StructType.fromDDL(text)
        assert parse_ddl(text).simpleString() == theirs.simpleString()
