"""A reader that does what a test says: the HTTP interface over records in memory, and it can be busy, break off or lie.

The real reader is used wherever nothing must go wrong on purpose (tests/spark, tests/scenarios).
"""

from __future__ import annotations

import base64
import io
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

VIEW_TYPES = {
    "queue": pa.string_view(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "event_time": pa.timestamp("us", tz="UTC"),
    "topic": pa.string_view(),
    "payload": pa.binary_view(),
    "content_type": pa.string_view(),
    "client_id": pa.string_view(),
    "qos": pa.int32(),
    "producer_sequence": pa.int64(),
    "headers": pa.map_(pa.string(), pa.string()),
}


class FakeQueue:
    """Records `first` up to `end`, one a millisecond from `began_us` on."""

    def __init__(self, name: str, first: int, end: int, began_us: int = 1_760_000_000_000_000) -> None:
        self.name = name
        self.first = first
        self.end = end
        self.began_us = began_us

    def shown(self) -> dict[str, object]:
        records = self.end - self.first
        return {
            "name": self.name,
            "first": self.first,
            "end": self.end,
            "records": records,
            "bytes": records * 100,
        }

    def values(self, name: str, offsets: range) -> list[Any]:
        if name == "offset":
            return list(offsets)
        if name == "queue":
            return [self.name] * len(offsets)
        if name == "timestamp":
            return [self.began_us + 1000 * offset for offset in offsets]
        if name == "topic":
            return [f"plant/{offset % 7}/temperature" for offset in offsets]
        if name == "payload":
            return [b"payload number %d of this queue" % offset for offset in offsets]
        if name == "headers":
            return [[("number", str(offset))] for offset in offsets]
        return [0 if name in ("partition", "qos") else None] * len(offsets)


class FakeReader:
    """`with FakeReader() as reader: reader.add("readings", 0, 100)`; `reader.uri` is where it listens."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._is_tls = tls is not None
        self.queues: dict[str, FakeQueue] = {}
        self.requests: list[str] = []
        self.commits: list[tuple[str, str, int]] = []
        self.password = ""  # empty: everybody may come in
        self.busy_left = 0  # answers of 503 before the next good one
        self.breaks_left = 0  # streams of records that end too early
        self.batches_before_break = 1
        self.is_cut_cleanly = False  # at the edge of a batch, and with no end of the body
        self.hang_ups_left = 0  # connections closed without an answer
        self.connections = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def uri(self) -> str:
        return f"{'https' if self._is_tls else 'http'}://127.0.0.1:{self.port}"

    def add(self, name: str, first: int, end: int) -> FakeQueue:
        self.queues[name] = FakeQueue(name, first, end)
        return self.queues[name]

    def __enter__(self) -> FakeReader:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        reader = self

        class Handler(FakeHandler):
            def setup(self) -> None:
                self.reader = reader
                reader.connections += 1
                super().setup()

        return Handler


class FakeHandler(BaseHTTPRequestHandler):
    """One connection to the fake."""

    protocol_version = "HTTP/1.1"
    reader: FakeReader

    def log_message(self, format: str, *arguments: object) -> None:
        """Tests read `requests` instead."""

    def do_GET(self) -> None:
        reader = self.reader
        reader.requests.append(self.path)
        if not self._is_let_in():
            return
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        names = [unquote(part) for part in parts.path.split("/")[2:]]
        if names == ["queues"]:
            self._say({"queues": [queue.shown() for queue in reader.queues.values()]})
            return
        queue = reader.queues.get(names[1])
        if queue is None:
            hint = f"millstream queue create {names[1]} --kind stream"
            self._say({"error": f'there is no queue "{names[1]}"', "hint": hint}, 404)
        elif len(names) == 2:
            self._say(queue.shown())
        elif names[2] == "offset":
            number = -(-(int(query["timestamp"]) // 1000 - queue.began_us) // 1000)
            self._say({"offset": min(max(number, queue.first), queue.end)})
        else:
            self._send_records(queue, query)

    def do_POST(self) -> None:
        reader = self.reader
        body = self.rfile.read(int(self.headers["Content-Length"]))
        reader.requests.append(self.path)
        if not self._is_let_in():
            return
        names = [unquote(part) for part in self.path.split("/")[2:]]
        offset = json.loads(body)["offset"]
        reader.commits.append((names[1], names[3], offset))
        self._say({"committed": offset})

    def _is_let_in(self) -> bool:
        reader = self.reader
        if reader.hang_ups_left:
            reader.hang_ups_left -= 1
            self.close_connection = True
            return False
        if reader.busy_left:
            reader.busy_left -= 1
            self._say({"error": "the broker is away", "hint": ""}, 503)
            return False
        expected = "Basic " + base64.b64encode(reader.password.encode()).decode()
        if reader.password and self.headers["Authorization"] != expected:
            self._say({"error": "user or password is wrong", "hint": ""}, 401)
            return False
        return True

    def _say(self, answer: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_records(self, queue: FakeQueue, query: dict[str, str]) -> None:
        first, end = int(query["first"]), int(query["end"])
        if end > queue.end:
            self._say({"error": f"the queue ends at {queue.end}", "hint": "", "end": queue.end}, 416)
            return
        if first < queue.first:
            if query.get("gap") != "skip":
                self._say({"error": "trimmed", "hint": "", "first": queue.first}, 410)
                return
            first = queue.first
        names = query["columns"].split(",")
        assert "headers" not in names
        if query["headers"] != "none":
            names.append("headers")
        schema = pa.schema([(name, VIEW_TYPES[name]) for name in names])
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.apache.arrow.stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        output = io.BytesIO()
        batches = 0
        with pa.ipc.new_stream(output, schema) as stream:
            for start in range(first, end, int(query["rows"])):
                offsets = range(start, min(end, start + int(query["rows"])))
                columns = [pa.array(queue.values(name, offsets), VIEW_TYPES[name]) for name in names]
                if self.reader.breaks_left and batches == self.reader.batches_before_break:
                    self.reader.breaks_left -= 1
                    self.close_connection = True
                    if not self.reader.is_cut_cleanly:
                        self.wfile.write(b"100000\r\nhalf a chunk")
                    return
                stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                batches += 1
                self._send_new(output)
        self._send_new(output)
        self.wfile.write(b"0\r\n\r\n")

    def _send_new(self, output: io.BytesIO) -> None:
        """What was written since goes out as one chunk."""
        data = output.getvalue()
        output.seek(0)
        output.truncate()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
