"""A data directory with something of everything in it, and what its clients can read back from it."""

from __future__ import annotations

import base64
import hashlib
import select
import time
from pathlib import Path
from typing import Final

from crash.broker import Broker
from crash.client import NEVER_S
from crash.wire import Wire
from millstream.protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
)
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.runtime.control.client import SOCKET_NAME, ControlClient

SETTINGS: Final = (
    "storage.log_file_size=65536",
    "storage.segment_size=65536",
    "queues.history.kind=stream",
    "reader.enabled=false",
    "log.repeat_burst=1000",
)
STREAM: Final = "history"
WORK: Final = "jobs"
REJECTING: Final = "orders"
SMALL: Final = "tasks"
SIZE: Final = 600
COUNTS: Final = {STREAM: 150, WORK: 90, REJECTING: 12, SMALL: 5}  # in each of the two phases
SESSIONS: Final = 3
WAITING: Final = 6
RETAINED: Final = 12
PEEK_MAX: Final = 1000
IDLE_S: Final = 2.0  # without a packet, on a machine that is busy with other cases
ANSWER_S: Final = 20.0

Key = tuple[str, ...]
Content = dict[Key, bytes]


def make_payload(word: str, name: str, number: int) -> bytes:
    head = f"{word} {name} {number} "
    return (head + hashlib.sha256(head.encode()).hexdigest() * 10)[:SIZE].encode()


class WorldClient:
    """A client of MQTT that waits for what it asks for."""

    def __init__(self, port: int, name: str, is_lasting: bool) -> None:
        self._wire = Wire(port, 5)
        self._packet_id = 0
        self._unread: list[Packet] = []
        properties = Properties()
        if is_lasting:
            properties.session_expiry_interval = NEVER_S
        self._wire.send(Connect(5, name, not is_lasting, 0, properties=properties))
        answer = self._wait(ConnAck)
        assert isinstance(answer, ConnAck)
        assert answer.reason == 0, f"{name} was refused: 0x{answer.reason:02x}"
        self.is_present = answer.session_present

    def subscribe(self, filter: str) -> None:
        self._packet_id += 1
        self._wire.send(Subscribe(self._packet_id, [SubscribeEntry(filter.encode(), 1)], None))
        self._wait(SubAck)

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        self._packet_id += 1
        self._wire.send(Publish(topic.encode(), payload, 1, retain=retain, packet_id=self._packet_id))
        self._wait(PubAck)

    def receive(self, wanted: int) -> list[Publish]:
        """So many, or those that come until nothing does any more. They are not answered."""
        found: list[Publish] = []
        while True:
            found += [packet for packet in self._unread if isinstance(packet, Publish)]
            self._unread = []
            if len(found) >= wanted or not self._read(IDLE_S):
                return found

    def close(self) -> None:
        self._wire.send(Disconnect(0))
        self._wire.flush()
        self._wire.close()

    def _wait(self, kind: type[Packet]) -> Packet:
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            for packet in self._unread:
                if isinstance(packet, kind):
                    self._unread.remove(packet)
                    return packet
            self._read(ANSWER_S)
            assert not self._wire.is_gone, f"the broker hung up instead of sending {kind.__name__}"
        raise AssertionError(f"no {kind.__name__} came")

    def _read(self, timeout_s: float) -> bool:
        """False if nothing came."""
        self._wire.flush()
        if self._wire.is_gone or not select.select([self._wire.socket], [], [], timeout_s)[0]:
            return False
        self._unread += self._wire.receive()
        return not self._wire.is_gone


def control_of(data_dir: Path) -> ControlClient:
    return ControlClient(data_dir / SOCKET_NAME)


# ----------------------------------------------------------------------- what there is


def populate(broker: Broker, word: str, phase: int) -> None:
    """Two phases leave the same kinds of files, the second more of them."""
    with control_of(broker.data_dir) as control:
        if phase == 0:
            _declare(control)
        for name, count in COUNTS.items():
            _publish(control, word, name, range(phase * count, (phase + 1) * count))
    _settle(broker.data_dir, WORK, "first", 30, "accepted")
    _settle(broker.data_dir, WORK, "second", 12, "accepted")
    _settle(broker.data_dir, REJECTING, "default", 3, "rejected")
    for number in range(SESSIONS):
        session = WorldClient(broker.port, f"session-{number}", True)
        session.subscribe(f"plant/{number}/#")
        session.close()
    publisher = WorldClient(broker.port, "publisher", False)
    for number in range(SESSIONS):
        for part in range(WAITING):
            at = phase * WAITING + part
            publisher.publish(f"plant/{number}/{at}", make_payload(word, f"session-{number}", at))
    for number in range(RETAINED // 2 * (phase + 1)):
        publisher.publish(f"kept/{number}", make_payload(word, f"kept-{number}", phase), retain=True)
    publisher.close()
    with control_of(broker.data_dir) as control:
        control.call("exchange.declare", {"name": f"exchange.{phase}", "type": "topic"})
        control.call("exchange.bind", {"source": f"exchange.{phase}", "target": SMALL, "key": f"key.{phase}"})


def _declare(control: ControlClient) -> None:
    for name in (WORK, REJECTING, SMALL):
        control.call("queue.create", {"name": name, "definition": {"kind": "work"}})


def _publish(control: ControlClient, word: str, name: str, numbers: range) -> None:
    messages = [{"payload": make_payload(word, name, number).decode()} for number in numbers]
    for at in range(0, len(messages), 50):
        control.call("queue.publish", {"name": name, "messages": messages[at : at + 50]})


def _settle(data_dir: Path, name: str, group: str, count: int, outcome: str) -> None:
    with control_of(data_dir) as control:
        fields: dict[str, object] = {"name": name, "group": group, "from": "first"}
        taken = control.call("queue.take", {**fields, "count": count, "wait_ms": 5000})
        assert isinstance(taken, dict)
        offsets = [record["offset"] for record in taken["records"]]
        assert offsets, f"{name} has nothing to take"
        control.call("queue.settle", {"offsets": offsets, "outcome": outcome})


# --------------------------------------------------------------------- what can be read


def read_back(broker: Broker, wanted: Content | None) -> Content:
    """All that clients can see. `wanted` is what there should be: only then it is known when all has come."""
    found: Content = {}
    with control_of(broker.data_dir) as control:
        _read_queues(control, found)
        _read_exchanges(control, found)
    for number in range(SESSIONS):
        _read_session(broker.port, f"session-{number}", found, _count(wanted, "session", f"session-{number}"))
    reader = WorldClient(broker.port, "reader", False)
    reader.subscribe("kept/#")
    for packet in reader.receive(_count(wanted, "retained")):
        found["retained", packet.topic.decode()] = packet.payload
    reader.close()
    return found


def _count(wanted: Content | None, *prefix: str) -> int:
    if wanted is None:
        return 1 << 30
    return sum(key[: len(prefix)] == prefix for key in wanted)


def _read_queues(control: ControlClient, found: Content) -> None:
    answer = control.call("queue.list", {})
    assert isinstance(answer, dict)
    for queue in answer["queues"]:
        name = queue["name"]
        found["queue", name] = b""
        offset = 0
        while True:
            page = control.call("queue.peek", {"name": name, "count": PEEK_MAX, "offset": offset})
            assert isinstance(page, dict)
            for record in page["records"]:
                payload = base64.b64decode(record["payload_base64"])
                found["record", name, str(record["offset"])] = payload
            offset = page["next_offset"]
            if not page["more"]:
                break
        groups = control.call("queue.groups", {"name": name})
        assert isinstance(groups, dict)
        for group in groups["groups"]:
            found["group", name, group["group"]] = str(group["committed"]).encode()


def _read_exchanges(control: ControlClient, found: Content) -> None:
    for phase in range(2):
        name = f"exchange.{phase}"
        listed = control.call("exchange.list", {})
        assert isinstance(listed, dict)
        if not any(exchange["name"] == name for exchange in listed["exchanges"]):
            continue
        found["exchange", name] = b""
        bindings = control.call("exchange.bindings", {"name": name})
        assert isinstance(bindings, dict)
        for binding in bindings["bindings"]:
            found["binding", name, str(binding["key"])] = b""


def _read_session(port: int, name: str, found: Content, wanted: int) -> None:
    client = WorldClient(port, name, True)
    if client.is_present:
        found["session", name] = b""
        for packet in client.receive(wanted - 1):
            found["session", name, packet.topic.decode()] = packet.payload
    client.close()
