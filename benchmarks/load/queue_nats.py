"""A JetStream stream over NATS's own protocol: publish with a reply subject, a push consumer with explicit settlement.

The stream keeps its messages in files. A work queue is a stream with the retention `workqueue`; ten consumers are one
durable consumer whose deliveries go to a queue group, with the credit of all its members together.
"""

from __future__ import annotations

import json
import socket
from typing import Final

from benchmarks.load.frames import SEQUENCE_LENGTH, FrameFault
from benchmarks.load.link import HANDSHAKE_TIMEOUT_S, open_socket
from benchmarks.load.queue_parties import (
    Ledger,
    QueueConsumer,
    QueuePublisher,
    read_exactly,
    read_sequence,
)

STREAM: Final = "bench"
SUBJECT: Final = b"bench"
DELIVER_SUBJECT: Final = "deliver.bench"
GROUP: Final = "readers"
CRLF: Final = b"\r\n"
GREETING: Final = (
    b'CONNECT {"verbose":false,"pedantic":false,"lang":"bench","version":"1","protocol":1}\r\nPING\r\n'
)
PONG: Final = b"PONG\r\n"
SETTLE_WAIT_NS: Final = 30_000_000_000


def wait_line(connection: socket.socket, wanted: bytes) -> bytes:
    """Blocking, byte by byte: the next line that begins so; other lines are skipped, an error is a fault."""
    line = bytearray()
    while True:
        part = connection.recv(1)
        if not part:
            raise FrameFault("the broker closed the connection during the handshake")
        line += part
        if line.endswith(CRLF):
            if line.startswith(wanted):
                return bytes(line[:-2])
            if line.startswith(b"-ERR"):
                raise FrameFault(f"the broker said {bytes(line[:-2]).decode(errors='replace')}")
            line = bytearray()


def connect_nats(host: str, port: int) -> socket.socket:
    connection = open_socket(host, port)
    connection.settimeout(HANDSHAKE_TIMEOUT_S)
    wait_line(connection, b"INFO ")
    connection.sendall(GREETING)
    wait_line(connection, b"PONG")
    return connection


def ask(connection: socket.socket, subject: str, question: dict[str, object]) -> None:
    """One request of JetStream's interface; an answer with an error is a fault."""
    body = json.dumps(question).encode()
    inbox = b"_INBOX.setup"
    connection.sendall(b"SUB %s 9\r\n" % inbox)
    connection.sendall(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), inbox, len(body), body))
    size = int(wait_line(connection, b"MSG ").rsplit(b" ", 1)[1])
    fields = json.loads(read_exactly(connection, size + 2))
    connection.sendall(b"UNSUB 9\r\n")
    if "error" in fields:
        raise FrameFault(f"{subject}: {fields['error'].get('description', 'refused')}")


def create_stream(connection: socket.socket, is_stream: bool) -> None:
    config: dict[str, object] = {
        "name": STREAM,
        "subjects": [SUBJECT.decode()],
        "retention": "limits" if is_stream else "workqueue",
        "storage": "file",
        "num_replicas": 1,
    }
    ask(connection, f"$JS.API.STREAM.CREATE.{STREAM}", config)


def create_consumer(connection: socket.socket, credit: int) -> None:
    """Deliveries begin at once: its members must have subscribed before."""
    config: dict[str, object] = {
        "durable_name": GROUP,
        "deliver_subject": DELIVER_SUBJECT,
        "deliver_group": GROUP,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": SETTLE_WAIT_NS,
        "max_ack_pending": credit,
    }
    ask(
        connection,
        f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{GROUP}",
        {"stream_name": STREAM, "config": config},
    )


class Line:
    """The control line at a place of the buffer; `end` is where the next one begins, -1 while it is incomplete."""

    __slots__ = ("body", "end", "size", "text")

    def __init__(self, buffer: bytearray, position: int, limit: int) -> None:
        self.end = -1
        self.body = 0
        self.size = 0
        self.text = b""
        stop = buffer.find(CRLF, position, limit)
        if stop < 0:
            return
        self.text = bytes(buffer[position:stop])
        self.body = stop + 2
        if not self.text.startswith(b"MSG "):
            self.end = self.body
            return
        self.size = int(self.text[self.text.rfind(b" ") + 1 :])
        end = self.body + self.size + 2
        if end <= limit:
            self.end = end


class NatsPublisher(QueuePublisher):
    def __init__(self, connection: socket.socket, number: int, payload_bytes: int) -> None:
        super().__init__(connection)
        inbox = f"_INBOX.publisher.{number}".encode()
        self.unsent += b"SUB %s 1\r\n" % inbox
        self._head = b"PUB %s %s %d\r\n" % (SUBJECT, inbox, payload_bytes)
        self._tail = b"\x01" * (payload_bytes - SEQUENCE_LENGTH) + CRLF

    def encode(self, sequence: int) -> bytes:
        return self._head + sequence.to_bytes(SEQUENCE_LENGTH, "big") + self._tail

    def take(self, buffer: bytearray, end: int) -> int:
        position = 0
        while True:
            line = Line(buffer, position, end)
            if line.end < 0:
                return position
            if line.size:
                if buffer.find(b'"error"', line.body, line.end) >= 0:
                    raise FrameFault(f"refused: {bytes(buffer[line.body : line.end - 2])!r}")
                self.confirmed += 1
            elif line.text == b"PING":
                self.unsent += PONG
            elif line.text.startswith(b"-ERR"):
                raise FrameFault(f"the broker said {line.text.decode(errors='replace')}")
            position = line.end


class NatsConsumer(QueueConsumer):
    """Settles by an empty publish to the reply subject of a delivery."""

    def __init__(self, connection: socket.socket, ledger: Ledger) -> None:
        super().__init__(connection, ledger)
        connection.sendall(f"SUB {DELIVER_SUBJECT} {GROUP} 1\r\nPING\r\n".encode())
        wait_line(connection, b"PONG")

    def take(self, buffer: bytearray, end: int) -> int:
        position = 0
        while True:
            line = Line(buffer, position, end)
            if line.end < 0:
                return position
            if line.size:
                reply = line.text.split(b" ")[3]
                self._ledger.note(read_sequence(buffer, line.body))
                self.unsent += b"PUB " + reply + b" 0\r\n\r\n"
            elif line.text == b"PING":
                self.unsent += PONG
            elif line.text.startswith(b"-ERR"):
                raise FrameFault(f"the broker said {line.text.decode(errors='replace')}")
            position = line.end
