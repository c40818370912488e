"""The sink without Spark: which columns it sends where, what it refuses, and how it waits for a commit."""

from __future__ import annotations

import http.client
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_millstream import writer
from pyspark_millstream.client import ReaderClient
from pyspark_millstream.errors import MillstreamSparkError
from pyspark_millstream.options import Endpoint
from pyspark_millstream.stage_client import PROGRESS_S, BatchName, StageClient

NAME = BatchName("query", 7)
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "long": LongType(),
    "boolean": BooleanType(),
    "map<string,int>": MapType(StringType(), IntegerType()),
}


class StageDesk:
    """Answers `/v1/stages` and `/v1/commits` as it is told, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, object]]] = []  # the next ones; then all is well
        desk = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                parts = urlsplit(self.path)
                desk.asked.append((self.command, parts.path, dict(parse_qsl(parts.query)), body))
                well = {"stage": f"{len(desk.asked):032x}", "rows": 1, "was_committed": False, "committed": 1}
                status, fields = desk.answers.pop(0) if desk.answers else (http.client.OK, well)
                text = json.dumps(fields).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_DELETE = do_POST

            def log_message(self, format: str, *arguments: object) -> None:
                """Tests read `asked` instead."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.endpoint = Endpoint("127.0.0.1", int(self._server.server_address[1]), retry_s=5)
        self.uri = self.endpoint.address

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def desk() -> Iterator[StageDesk]:
    desk = StageDesk()
    yield desk
    desk.end()


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def read(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


def client_of(desk: StageDesk, clock: Clock, **target: str) -> StageClient:
    return StageClient(ReaderClient(desk.endpoint), target, clock.read, clock.pause)


def options_of(
    desk: StageDesk, schema: str, is_overwrite: bool = False, **options: str
) -> writer.SinkOptions:
    given = {"uri": desk.uri, **options}
    return writer.read_sink_options(given, schema_of(schema), is_overwrite)


def schema_of(text: str) -> StructType:
    """`name type, name type`: Spark's own parser of this needs Java."""
    fields = [field.split(" ") for field in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def read_stream(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(io.BytesIO(data)).read_all()


def test_the_target_is_checked_with_the_columns_before_any_job(desk: StageDesk) -> None:
    options_of(desk, "payload string, topic string, offset long, qos int", queue="out", contentType="text/x")
    ((method, path, query, body),) = desk.asked
    assert (method, path, query["check"]) == ("POST", "/v1/stages", "true")
    assert (query["queue"], query["content_type"]) == ("out", "text/x")
    assert read_stream(body).schema.names == ["payload", "topic", "qos"]
    assert read_stream(body).num_rows == 0


@pytest.mark.parametrize(
    ("schema", "options", "columns", "target"),
    [
        ("payload binary", {"queue": "q"}, [("payload", "payload")], {"queue": "q"}),
        ("payload binary, topic string", {}, [("payload", "payload"), ("topic", "topic")], {"topics": "true"}),
        ("payload binary, topic string", {"topic": "t"}, [("payload", "payload")], {"topics": "true", "topic": "t"}),
        ("a string, b string, payload int, topic int", {"payloadColumn": "a", "topicColumn": "b"},
         [("a", "payload"), ("b", "topic")], {"topics": "true"}),
        ("payload string, retain boolean", {"queue": "q", "qos": "2", "retain": "True"},
         [("payload", "payload"), ("retain", "retain")], {"queue": "q", "qos": "2", "retain": "true"}),
    ],
)  # fmt: skip
def test_columns_and_target_follow_the_options(
    desk: StageDesk, schema: str, options: dict[str, str], columns: list[Any], target: dict[str, str]
) -> None:
    found = options_of(desk, schema, **options)
    assert list(found.columns) == columns
    assert dict(found.target) == target


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        ("payload int", {"queue": "q"}, 'the column "payload" is int; it must be binary or string'),
        ("value string", {"queue": "q"}, 'the sink does not know what to do with the column "value"'),
        ("key string", {"queue": "q"}, 'there is no column "payload" to write'),
        ("payload string", {}, "the sink is not told where rows go"),
        ("payload string", {"queue": "q", "topic": "t"}, "queue and topic are given together"),
        ("payload string, key string", {"topic": "t"}, 'the column "key" is for writes to a queue'),
        ("payload string, key string, topic string", {"queue": "q"}, 'there are a column "key" and'),
        (
            "payload string, headers map<string,int>",
            {"queue": "q"},
            'the column "headers" is map<string,int>',
        ),
        ("payload string", {"queue": "q", "retain": "yes"}, 'the option retain cannot be "yes"'),
        ("payload string", {"queue": "q", "queryId": "x"}, "queryId and batchId belong together"),
        (
            "payload string",
            {"queue": "q", "queryId": "ä", "batchId": "1"},
            'the option queryId cannot be "ä"',
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_asked(
    desk: StageDesk, schema: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(MillstreamSparkError) as refused:
        options_of(desk, schema, **options)
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)
    assert desk.asked == []


def test_rows_are_never_put_in_the_place_of_others(desk: StageDesk) -> None:
    with pytest.raises(
        MillstreamSparkError, match=r'never put in the place of others. Write with .mode\("append"'
    ):
        options_of(desk, "payload string", is_overwrite=True, queue="q")


def test_rows_are_sent_in_pieces_that_can_be_sent_again(
    desk: StageDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = options_of(desk, "payload string", queue="q")
    desk.asked.clear()
    monkeypatch.setattr(writer, "PIECE_BYTES", 300)
    batches = [pa.record_batch({"payload": [f"{at}" * 100]}) for at in range(10)] + [
        pa.record_batch({"payload": ["x"]})[:0]
    ]
    desk.answers = [(503, {"error": "busy"})]
    staged = writer.stage_rows(sink, NAME, iter(batches))
    sent = [read_stream(body)["payload"].to_pylist() for _, _, _, body in desk.asked]
    assert sent[0] == sent[1]  # once more after it was busy
    assert [row for piece in sent[1:] for row in piece] == [f"{at}" * 100 for at in range(10)]
    assert len(staged.stages) == len(sent) - 1 > 1


def test_a_commit_is_asked_for_as_long_as_it_goes_on(desk: StageDesk) -> None:
    clock = Clock()
    under_way = [(202, {"error": "being published", "hint": "", "rows": rows}) for rows in range(5)]
    desk.answers = [*under_way, (200, {"was_committed": True, "committed": 9})]
    assert client_of(desk, clock, queue="q").commit(NAME, ["a" * 32]) is False
    fields = json.loads(desk.asked[-1][3])
    assert fields == {"query": "query", "batch": 7, "stages": ["a" * 32], "single": False, "queue": "q"}
    assert len(desk.asked) == 6


def test_a_commit_that_stands_still_is_given_up_in_words(desk: StageDesk) -> None:
    clock = Clock()
    desk.answers = [(202, {"error": "being published, 3 of 9", "rows": 3}) for _ in range(5000)]
    with pytest.raises(MillstreamSparkError, match="the broker publishes the batch 7 and gets no further"):
        client_of(desk, clock, topics="true").commit(NAME, ["a" * 32])
    assert PROGRESS_S <= clock.now_s < PROGRESS_S + 1
    assert json.loads(desk.asked[0][3])["topics"] is True


def test_dropping_never_hides_what_went_wrong_before(desk: StageDesk) -> None:
    clock = Clock()
    desk.answers = [(403, {"error": "no"}), (404, {"error": "no"})]
    client_of(desk, clock, queue="q").drop(NAME)
    assert desk.asked[-1][:3] == ("DELETE", "/v1/stages", {"query": "query", "batch": "7"})
    client_of(desk, clock, queue="q").drop(NAME, ["a" * 32])
    assert desk.asked[-1][2]["stage"] == "a" * 32


def test_the_query_of_a_stream_is_the_one_its_tasks_name() -> None:
    staged = writer.StagedRows(NAME, ())
    assert writer.name_of([None, staged]) == NAME
    assert writer.name_of([None, None]) is None
