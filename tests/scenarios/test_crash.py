"""What was confirmed survives `kill -9` at any moment: nothing lost, nothing reordered, exactly once stays once."""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path

import pytest
from conftest import BrokerProcess

from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeEntry,
)
from millstream.protocols.mqtt.wire.properties import Properties

KILLS = 15  # for each of the two guarantees
WINDOW = 20
SIZE_MAX = 1 << 20
NEVER = 0xFFFF_FFFF


class Wire:
    """Packets over one socket; None once the broker is gone."""

    def __init__(self, port: int, client_id: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.settimeout(10)
        self._unread = b""
        properties = Properties()
        properties.session_expiry_interval = NEVER
        self.send(Connect(5, client_id, False, properties=properties))
        connack = self.receive()
        assert isinstance(connack, ConnAck)
        assert connack.reason == 0
        self.session_present = connack.session_present

    def send(self, *packets: Packet) -> bool:
        try:
            self.socket.sendall(b"".join([encode_packet(packet, 5) for packet in packets]))
        except OSError:
            return False
        return True

    def receive(self) -> Packet | None:
        while True:
            packet, position = decode_frame(self._unread, 0, 5, SIZE_MAX)
            if packet is not None:
                self._unread = self._unread[position:]
                return packet
            try:
                data = self.socket.recv(1 << 16)
            except OSError:
                return None
            if not data:
                return None
            self._unread += data


class Publisher:
    """Numbered messages with a window; keeps across connections what MQTT asks a client to keep."""

    def __init__(self, topic: bytes, qos: int) -> None:
        self._topic = topic
        self._qos = qos
        self._next = 0
        self._open: dict[int, tuple[int, bool]] = {}  # packet id: number, whether it was received
        self.confirmed: list[int] = []

    def run(self, wire: Wire) -> None:
        """Publish until the broker is gone."""
        for packet_id, (number, is_received) in self._open.items():
            wire.send(PubRel(packet_id) if is_received else self._packet(packet_id, number, True))
        while True:
            while len(self._open) < WINDOW:
                self._next += 1
                packet_id = self._next % 60_000 + 1
                self._open[packet_id] = (self._next, False)
                if not wire.send(self._packet(packet_id, self._next, False)):
                    return
            packet = wire.receive()
            if packet is None:
                return
            self._on_answer(packet, wire)

    def finish(self, wire: Wire) -> None:
        """Bring what is open to its end."""
        for packet_id, (number, is_received) in list(self._open.items()):
            wire.send(PubRel(packet_id) if is_received else self._packet(packet_id, number, True))
        while self._open:
            packet = wire.receive()
            assert packet is not None
            self._on_answer(packet, wire)

    def _packet(self, packet_id: int, number: int, is_repeat: bool) -> Publish:
        return Publish(self._topic, b"%d" % number, self._qos, False, is_repeat, packet_id)

    def _on_answer(self, packet: Packet, wire: Wire) -> None:
        if isinstance(packet, PubRec):
            if packet.packet_id in self._open:
                self._open[packet.packet_id] = (self._open[packet.packet_id][0], True)
            wire.send(PubRel(packet.packet_id))
        elif isinstance(packet, PubAck | PubComp) and packet.packet_id in self._open:
            self.confirmed.append(self._open.pop(packet.packet_id)[0])


class Subscriber:
    """Takes what comes; exactly once keeps the ids it has taken until they are released."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self._taken_ids: set[int] = set()

    def run(self, wire: Wire, last: int = 0) -> None:
        """Until the broker is gone, or the message numbered `last` was taken."""
        while not last or last not in self.taken[-WINDOW * 60 :]:
            packet = wire.receive()
            if packet is None:
                return
            if isinstance(packet, PubRel):
                self._taken_ids.discard(packet.packet_id)
                wire.send(PubComp(packet.packet_id))
            elif isinstance(packet, Publish):
                if packet.qos == 2:
                    if packet.packet_id not in self._taken_ids:
                        self._taken_ids.add(packet.packet_id)
                        self.taken.append(int(packet.payload))
                    wire.send(PubRec(packet.packet_id))
                else:
                    self.taken.append(int(packet.payload))
                    wire.send(PubAck(packet.packet_id))


def start(folder: Path, data: Path) -> BrokerProcess:
    folder.mkdir(parents=True)
    broker = BrokerProcess(folder, (f"data_dir={data}", "storage.log_file_size=256KiB"), ())
    broker.wait_ready()
    return broker


def first_seen(numbers: list[int]) -> list[int]:
    return list(dict.fromkeys(numbers))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_confirmed_is_lost_when_the_broker_is_killed(tmp_path: Path, qos: int) -> None:
    chance = random.Random(qos)
    topic = b"crash"
    publisher = Publisher(topic, qos)
    subscriber = Subscriber()
    data = tmp_path / "data"
    for round in range(KILLS):
        broker = start(tmp_path / f"run-{round}", data)
        receiving = Wire(broker.mqtt_port, "subscriber")
        assert receiving.session_present == (round > 0)
        if round == 0:
            receiving.send(Subscribe(1, [SubscribeEntry(topic, qos)]))
            assert isinstance(receiving.receive(), SubAck)
        sending = Wire(broker.mqtt_port, "publisher")
        threads = [
            threading.Thread(target=publisher.run, args=(sending,)),
            threading.Thread(target=subscriber.run, args=(receiving,)),
        ]
        for thread in threads:
            thread.start()
        threads[0].join(chance.uniform(0.05, 0.5))  # the moment of the kill is left to chance
        broker.kill()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
    broker = start(tmp_path / "last", data)
    receiving = Wire(broker.mqtt_port, "subscriber")
    sending = Wire(broker.mqtt_port, "publisher")
    publisher.finish(sending)
    subscriber.run(receiving, max(publisher.confirmed))
    broker.kill()

    assert len(publisher.confirmed) > KILLS
    assert set(publisher.confirmed) <= set(subscriber.taken)
    seen = first_seen(subscriber.taken)
    assert seen == sorted(seen)
    if qos == 2:
        assert seen == subscriber.taken


def test_a_broker_that_keeps_nothing_on_disk_is_caught(tmp_path: Path) -> None:
    """The same check on a broker without a log: what it confirmed for an absent session is gone after a kill."""
    broker = start(tmp_path / "one", tmp_path / "data")
    broker.kill()
    folder = tmp_path / "two"
    folder.mkdir()
    broker = BrokerProcess(folder, ("storage.durability=memory",), ())
    broker.wait_ready()
    receiving = Wire(broker.mqtt_port, "subscriber")
    receiving.send(Subscribe(1, [SubscribeEntry(b"crash", 1)]))
    assert isinstance(receiving.receive(), SubAck)
    receiving.socket.close()
    sending = Wire(broker.mqtt_port, "publisher")
    sending.send(Publish(b"crash", b"1", 1, packet_id=1))
    assert isinstance(sending.receive(), PubAck)
    broker.kill()
    folder = tmp_path / "three"
    folder.mkdir()
    broker = BrokerProcess(folder, ("storage.durability=memory",), ())
    broker.wait_ready()
    assert not Wire(broker.mqtt_port, "subscriber").session_present
    broker.kill()
