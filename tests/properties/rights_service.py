"""A broker on disk with its control socket and a reader before it, on which rights are tried out over HTTP and over the socket.

Everything is the product's own; the reader runs in threads of this process, so that the test can move its clock.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pyarrow as pa
from fakes import FakeOutlet, make_message
from rights_oracle import Oracle, Rule, make_rules, to_document

from millstream.app.server import Millstream
from millstream.config.load import config_of
from millstream.queues.definition import STREAM, Definition
from millstream.reader.access import REMEMBERED_S, Access
from millstream.reader.broker_link import BrokerLink
from millstream.reader.http import Credentials
from millstream.reader.records import ReadRequest, read_batches
from millstream.reader.routes import make_all_routes
from millstream.reader.server import HttpServer
from millstream.reader.services import Reading, Services, open_stream
from millstream.reader.settings import ReaderSettings
from millstream.routing.subscription import Subscription
from millstream.runtime.control.client import SOCKET_NAME, ControlClient
from millstream.runtime.disk.files import RealDisk
from millstream.security.acl import parse_acl
from millstream.storage.segments.format import OFFSET_MAX

STREAMS = {"q": "$queue/q", "d": "$queue/d", "a/b": "$queue/a%2Fb", "$dlq/q": "$dlq/q"}
STAGE_BYTES_MAX = 1 << 20
WAIT_S = 30


class Service:
    """The caller that is judged has shown no credentials."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.chance = chance
        off = {"enabled": False}
        listeners = {"mqtt": {"port": 0}, "websocket": off, "amqp": off, "reader": off}
        config = config_of({"data_dir": str(folder), "storage": {"check_segments": False}, **listeners})
        self.millstream = Millstream(config, with_control=True)
        self.account = self.millstream.broker.get_account("default")
        self.watcher = FakeOutlet()
        self.cases: list[tuple[str, object, object]] = []
        self.now_s = 0.0
        self._folder = folder
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._client = http.client.HTTPConnection(
            "127.0.0.1", self._listening.getsockname()[1], timeout=WAIT_S
        )
        self._batch = 0

    async def __aenter__(self) -> Service:
        await self.millstream.start()
        self.account.router.subscribe(Subscription(self.watcher, b"#", b"", 2, False, False, 0))
        for name in STREAMS:
            self.account.queues.catalog.declare(name, Definition(STREAM))
        self._control = ControlClient(self._folder / SOCKET_NAME, WAIT_S)
        link = BrokerLink(self._folder)
        settings = ReaderSettings(
            0, str(self._folder), True, 8, 1000, STAGE_BYTES_MAX, 0, "", "", "", 0, "warning", "json"
        )
        self._services = Services(settings, link, Access(link, self._clock), RealDisk(self._folder))
        server = HttpServer(self._listening, make_all_routes(self._services), 8)
        threading.Thread(target=server.run, daemon=True).start()
        self.change()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.close()
        self._control.close()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        await self.millstream.stop()

    def _clock(self) -> float:
        return self.now_s

    # --- rules

    def change(self, rules: list[Rule] | None = None, is_forgotten: bool = True) -> None:
        """Other rules from now on; the reader has forgotten the old ones or not."""
        self.rules = make_rules(self.chance) if rules is None else rules
        self.oracle = Oracle(self.rules)
        self.millstream.broker.authorizer.replace(parse_acl(to_document(self.rules)))
        self.account.on_rights_changed()
        while self.millstream.broker.work_off() or self.millstream.broker.tasks.count():
            pass  # what stands by a right is looked at in slices
        if is_forgotten:
            self.forget()

    def forget(self) -> None:
        self.now_s += REMEMBERED_S

    def case(self, what: str, wanted: object, found: object) -> None:
        self.cases.append((what, wanted, found))

    # --- callers

    async def ask(
        self, method: str, path: str, body: bytes | None = None, **query: object
    ) -> tuple[int, object]:
        return await asyncio.to_thread(self._ask, method, path, body, query)

    def _ask(
        self, method: str, path: str, body: bytes | None, query: dict[str, object]
    ) -> tuple[int, object]:
        target = f"{path}?{urlencode(query)}" if query else path
        self._client.request(method, target, body)
        answer = self._client.getresponse()
        data = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(data) if is_json else data

    async def control(self, operation: str, **fields: object) -> object:
        return await asyncio.to_thread(self._control.call, operation, fields)

    async def is_read(self, name: str, rest: str = "", **query: object) -> bool:
        path = f"/v1/queues/{quote(name, safe='')}{rest}"
        status, _ = await self.ask("GET", path, **query)
        assert status in (200, 403), (status, path)
        return status == 200

    async def begin_read(self, name: str) -> Iterator[pa.RecordBatch]:
        """All that is in a stream, row by row."""
        return await asyncio.to_thread(self._begin_read, name)

    def _begin_read(self, name: str) -> Iterator[pa.RecordBatch]:
        nobody = Credentials("", None, "", "192.0.2.1")
        caller, stream = open_stream(self._services, nobody, name, True)
        consume_request = ReadRequest(
            stream.first, stream.end, ("offset",), 1, "plain", "none", 0, OFFSET_MAX, b"", False, False
        )
        return read_batches(Reading(self._services, nobody, caller, stream), consume_request)

    async def list_streams(self) -> list[str]:
        status, answer = await self.ask("GET", "/v1/queues")
        assert status == 200
        assert isinstance(answer, dict)
        return sorted(queue["name"] for queue in answer["queues"])

    async def stage(self, column: str, names: list[str], **target: object) -> str:
        """The id of a stage with a row for each name; empty: it is refused."""
        self._batch += 1
        rows = pa.table({"payload": [b"x"] * len(names), column: names})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        where = {"query": "spark", "batch": self._batch, **target}
        status, answer = await self.ask("POST", "/v1/stages", sink.getvalue(), **where)
        assert status in (200, 400, 403), answer
        assert isinstance(answer, dict)
        return answer["stage"] if status == 200 else ""

    async def commit(self, stage: str, **target: object) -> bool:
        """That of the last batch."""
        consume_request = {"query": "spark", "batch": self._batch, "stages": [stage], **target}
        status, answer = await self.ask("POST", "/v1/commits", json.dumps(consume_request).encode())
        assert status in (200, 403), answer
        return status == 200

    # --- what came of it

    def next_of(self, name: str) -> int:
        return int(self.account.queues.catalog.get(name).next)

    def publish(self, topic: str) -> None:
        """By the operator, so that only what was set up decides."""
        self.millstream.broker.publish_internal(self.account, make_message(topic.encode(), b"x", 1), None)

    def reached(self, exchange: str, key: bytes) -> int:
        """How many places a message goes to that the operator publishes there."""
        access = self.account.exchanges
        return len(access.find_route(exchange, key, access.topic_of(exchange, key), None, "").targets)

    def watched(self) -> list[str]:
        found = [message.topic.decode() for message in self.watcher.messages]
        self.watcher.messages.clear()
        return found
