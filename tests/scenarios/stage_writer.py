"""A writer of staged batches over HTTP, as the Spark sink is one; and a look at what reached a queue."""

from __future__ import annotations

import http.client
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from millstream.runtime.control.client import SOCKET_NAME, ControlClient

TIMEOUT_S = 60.0
UNDER_WAY = 202


class Refusal(Exception):
    """The reader said no."""

    def __init__(self, status: int, fields: dict[str, Any]) -> None:
        super().__init__(f"{status}: {fields.get('error')}")
        self.status = status
        self.text = str(fields.get("error"))
        self.hint = str(fields.get("hint"))


def make_table(first: int, count: int, **columns: list[Any]) -> pa.Table:
    return pa.table({"payload": [b"%d" % at for at in range(first, first + count)], **columns})


def to_arrow(table: pa.Table, rows: int = 700) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table, max_chunksize=rows)
    return out.getvalue()


class StageWriter:
    def __init__(self, port: int, query: str = "query", authorization: str = "") -> None:
        self._port = port
        self.query = query
        self._authorization = authorization

    def ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        try:
            headers = {"Authorization": self._authorization} if self._authorization else {}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            fields: dict[str, Any] = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise Refusal(answer.status, fields)
        return fields

    def stage(self, batch: int, table: pa.Table | bytes, partition: int = 0, **target: str) -> str:
        query = {"query": self.query, "batch": str(batch), "partition": str(partition), **target}
        body = table if isinstance(table, bytes) else to_arrow(table)
        stage: str = self.ask("POST", f"/v1/stages?{urlencode(query)}", body)["stage"]
        return stage

    def commit(self, batch: int, stages: list[str], **target: object) -> dict[str, Any]:
        fields = {"query": self.query, "batch": batch, "stages": stages, **target}
        while True:
            try:
                return self.ask("POST", "/v1/commits", json.dumps(fields).encode())
            except Refusal as refusal:
                if refusal.status != UNDER_WAY:
                    raise

    def drop(self, batch: int, stage: str = "") -> int:
        query = {"query": self.query, "batch": str(batch), **({"stage": stage} if stage else {})}
        dropped: int = self.ask("DELETE", f"/v1/stages?{urlencode(query)}")["dropped"]
        return dropped


def read_queue(data_dir: Path, name: str) -> list[dict[str, Any]]:
    """Everything in a queue, as an operator would look at it."""
    client = ControlClient(data_dir / SOCKET_NAME)
    found: list[dict[str, Any]] = []
    fields: dict[str, object] = {"name": name, "count": 1000}
    try:
        while True:
            page: Any = client.call("queue.peek", fields)
            found += page["records"]
            if not page["more"]:
                return found
            fields["offset"] = page["next_offset"]
    finally:
        client.close()


def payloads(data_dir: Path, name: str) -> list[int]:
    return [int(record["payload"]) for record in read_queue(data_dir, name)]


def stage_files(data_dir: Path) -> list[str]:
    folder = data_dir / "stages"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
