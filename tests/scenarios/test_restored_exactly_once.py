"""A backup of the past is restored, and clients that went on meanwhile go on with it: what is published from there on comes
exactly once, whatever packet ids they hold; only what the backup says is not done yet is done again."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import BrokerProcess, StartBroker
from raw_client import NEVER, RawClient
from test_backup import millstream

from millstream.protocols.mqtt.wire.packets import PubComp, Publish, PubRec, PubRel

TOPIC = b"plant"


class Receiver:
    """Takes QoS 2 messages and remembers over connections which packet ids it holds."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.held: dict[int, None] = {}
        self.client: RawClient

    def connect(self, broker: BrokerProcess) -> bool:
        self.client = RawClient(broker.mqtt_port)
        return self.client.connect("receiver", clean=False, expiry_s=NEVER).session_present

    def take(self) -> int:
        """The next message, held and not answered; gives its packet id."""
        packet = self.client.expect_publish()
        self._take(packet)
        return packet.packet_id

    def finish(self, packet_id: int) -> None:
        self.client.send(PubRec(packet_id))
        self.client.expect(PubRel(packet_id))
        del self.held[packet_id]
        self.client.send(PubComp(packet_id))

    def take_through(self, last: bytes) -> None:
        """As a receiver should, until it has this one and holds nothing of it any more."""
        packet_id = 0
        while not packet_id or packet_id in self.held:
            packet = self.client.receive()
            if isinstance(packet, PubRel):
                self.held.pop(packet.packet_id, None)
                self.client.send(PubComp(packet.packet_id))
                continue
            assert isinstance(packet, Publish), packet
            self._take(packet)
            self.client.send(PubRec(packet.packet_id))
            if packet.payload == last:
                packet_id = packet.packet_id

    def _take(self, packet: Publish) -> None:
        if packet.packet_id not in self.held:  # else it is a repeat [MQTT-4.3.3-10]
            self.held[packet.packet_id] = None
            self.messages.append(packet.payload)


class Publisher:
    """One step of an exchange at a time."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.client = RawClient(broker.mqtt_port)
        self.is_resumed = self.client.connect("publisher", clean=False, expiry_s=NEVER).session_present

    def publish(self, packet_id: int, payload: bytes, dup: bool = False) -> None:
        self.client.send(Publish(TOPIC, payload, 2, False, dup, packet_id))
        self.client.expect(PubRec(packet_id))

    def release(self, packet_id: int) -> None:
        self.client.send(PubRel(packet_id))
        self.client.expect(PubComp(packet_id))


def go_on_after_a_backup(broker: BrokerProcess, receiver: Receiver, file: Path) -> None:
    """When the backup is made, `first` is released by nobody. Later it is done, and the receiver holds two others."""
    receiver.connect(broker)
    assert receiver.client.subscribe(TOPIC, 2) == 2
    publisher = Publisher(broker)
    publisher.publish(1, b"first")
    packet_id = receiver.take()
    millstream("backup", str(file), "--set", f"data_dir={broker.log_file.parent / 'data'}")
    receiver.finish(packet_id)
    publisher.release(1)
    for payload in (b"second", b"third"):
        publisher.publish(2, payload)
        publisher.release(2)
        receiver.take()
    assert receiver.messages == [b"first", b"second", b"third"]
    assert len(receiver.held) == 2


def restore_the_past(start_broker: StartBroker, tmp_path: Path) -> Receiver:
    """A receiver that went on after the backup which is in `restored` now."""
    broker = start_broker()
    receiver = Receiver()
    go_on_after_a_backup(broker, receiver, tmp_path / "backup.tar")
    broker.kill()
    millstream("restore", str(tmp_path / "backup.tar"), "--to", str(tmp_path / "restored"))
    return receiver


@pytest.mark.parametrize("crashes", [0, 1])
def test_clients_that_know_more_than_a_restored_backup_miss_no_message_after_it(
    start_broker: StartBroker, tmp_path: Path, crashes: int
) -> None:
    receiver = restore_the_past(start_broker, tmp_path)
    for _ in range(crashes):  # before a client comes back
        start_broker(f"data_dir={tmp_path / 'restored'}").kill()
    again = start_broker(f"data_dir={tmp_path / 'restored'}")

    assert receiver.connect(again)
    publisher = Publisher(again)
    assert publisher.is_resumed
    publisher.publish(1, b"sent when the broker was gone", dup=True)  # to this broker id 1 is `first`
    publisher.release(1)
    for number in range(20):
        publisher.publish(2, b"new %d" % number)
        publisher.release(2)
    receiver.take_through(b"new 19")
    assert receiver.messages == [
        b"first",
        b"second",
        b"third",
        b"first",  # the backup knows of no answer to it
        b"sent when the broker was gone",
        *[b"new %d" % number for number in range(20)],
    ]
    assert receiver.held == {}


def test_what_a_publisher_repeats_after_a_restore_is_still_taken_once(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    receiver = restore_the_past(start_broker, tmp_path)
    again = start_broker(f"data_dir={tmp_path / 'restored'}")
    assert receiver.connect(again)
    publisher = Publisher(again)
    publisher.publish(1, b"first", dup=True)
    publisher.release(1)
    publisher.publish(1, b"last")
    receiver.take_through(b"last")
    assert receiver.messages == [b"first", b"second", b"third", b"first", b"last"]
