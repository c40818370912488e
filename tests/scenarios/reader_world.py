"""A broker with its reader, and the plainest client of it: http.client and pyarrow."""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
from conftest import BrokerProcess, write_private
from raw_client import RawClient, unique

from millstream.protocols.mqtt.wire.packets import PubAck, Publish
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.security.users import User, UserTable, format_users, hash_password

SETTINGS = ("reader.enabled=true", "reader.port=0", "reader.seal_interval_ms=0", "websocket.enabled=false")
RULES = """
rules:
  - {allow: all, topics: ["$queue/open/#", "$queue/open"]}
  - {allow: subscribe, topics: ["$queue/closed"], users: [alice]}
"""
WINDOW = 200
WAIT_S = 30.0


@dataclass
class Reply:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        return json.loads(self.body)

    def table(self) -> pa.Table:
        assert self.status == 200, self.body
        assert self.headers["content-type"] == "application/vnd.apache.arrow.stream"
        return pa.ipc.open_stream(io.BytesIO(self.body)).read_all()


class ReaderClient:
    """One connection, kept; `user` is NAME:PASSWORD, `token` a bearer token."""

    def __init__(self, port: int, user: str = "", token: str = "") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        self._headers: dict[str, str] = {}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(self, method: str, path: str, body: bytes | None = None, **query: object) -> Reply:
        target = f"{path}?{urlencode(query)}" if query else path
        self.connection.request(method, target, body, self._headers)
        reply = self.connection.getresponse()
        headers = {name.lower(): value for name, value in reply.getheaders()}
        return Reply(reply.status, reply.read(), headers)

    def get(self, path: str, **query: object) -> Reply:
        return self.ask("GET", path, **query)

    def post(self, path: str, fields: object) -> Reply:
        return self.ask("POST", path, json.dumps(fields).encode())

    def records(self, queue: str, **query: object) -> Reply:
        return self.get(f"/v1/queues/{quote(queue, safe='')}/records", **query)

    def show(self, queue: str, **query: object) -> Any:
        reply = self.get(f"/v1/queues/{quote(queue, safe='')}", **query)
        assert reply.status == 200, reply.body
        return reply.json()

    def close(self) -> None:
        self.connection.close()


def publish(
    client: RawClient, topic: bytes, payloads: list[bytes], properties: Properties | None = None
) -> None:
    """QoS 1, some unconfirmed at a time; all are confirmed when it returns."""
    sent = confirmed = 0
    while confirmed < len(payloads):
        while sent < len(payloads) and sent < confirmed + WINDOW:
            packet = Publish(topic, payloads[sent], 1, packet_id=sent % WINDOW + 1)
            packet.properties = properties
            client.send(packet)
            sent += 1
        answer = client.receive()
        assert isinstance(answer, PubAck)
        assert answer.reason < 0x80
        confirmed += 1


@contextlib.contextmanager
def publisher(broker: BrokerProcess) -> Iterator[RawClient]:
    client = RawClient(broker.mqtt_port)
    client.connect()
    try:
        yield client
    finally:
        client.close()


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def fill(broker: BrokerProcess, count: int) -> str:
    """A stream of its own with that many records."""
    name = unique("stream")
    with publisher(broker) as raw:
        publish(raw, f"$queue/{name}/k".encode(), numbers(count))
    return name


def write_rights(folder: Path, password: str) -> tuple[str, str]:
    """Settings by which alice and bob have this password, and bob may not read the stream `closed`."""
    table = UserTable({name: User(name, hash_password(password), "default") for name in ("alice", "bob")})
    users = write_private(folder / "users.txt", format_users(table))
    rules = write_private(folder / "acl.yaml", RULES)
    return f"auth.password_file={users}", f"auth.acl_file={rules}"


def reader_pids(broker: BrokerProcess) -> list[int]:
    """Processes of the reader that this broker has started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == broker.pid and b"millstream.reader.run" in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


def is_alive(pid: int) -> bool:
    """Its first thread may be dead while another still holds the sockets, and accepts a connection before it dies too."""
    try:
        has_ended = "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return not has_ended or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_ended(pid: int) -> None:
    """Another process: there is no event to wait for."""
    deadline = time.monotonic() + WAIT_S
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.01)


def wait_refused(port: int) -> None:
    """Until nobody listens: threads of a process that has ended may hold its sockets for a moment."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=WAIT_S).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.01)
    raise AssertionError(f"somebody still listens on port {port}")
