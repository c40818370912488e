"""Several hundred publishes in one write, and a fault among them: what was confirmed is stored, in order, for good."""

from __future__ import annotations

from pathlib import Path

from conftest import BrokerProcess, StartBroker
from raw_client import BOTH_VERSIONS, Clients, ConnectionEnded, RawClient, frame, text

from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Disconnect, PubAck, Publish, Subscribe, SubscribeEntry

COUNT = 600
HALF = 300
BEHIND = 5  # publishes that follow the fault
SIZE_MAX = 20_000
RECEIVE_MAXIMUM = 20
LAST = b"last"

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
RECEIVE_MAXIMUM_EXCEEDED = 0x93
PACKET_TOO_LARGE = 0x95


class MessageBatch:
    """One client, one queue, one write. `confirmed` counts the answers that came."""

    def __init__(self, clients: Clients, version: int, queue: str) -> None:
        self.topic = f"$queue/{queue}".encode()
        self.sent = [b"%d of %s" % (number, self.topic) for number in range(COUNT)]
        self.ended_with: list[int] = []
        self._client = clients.open(version)
        # the queue is made by it, and the broker knows where this client publishes
        assert self._client.publish(self.topic, self.sent[0], 1) == 0
        self.confirmed = 1

    def send(self, fault: bytes) -> None:
        """A write of the first half; when some of it is confirmed, the other half, the fault and some more as one."""
        packets = [self._encode(number + 1, payload) for number, payload in enumerate(self.sent)]
        behind = [self._encode(COUNT + 1 + number, b"behind") for number in range(BEHIND)]
        self._client.send_bytes(b"".join(packets[1:HALF]))
        self._client.expect(PubAck(2))
        self.confirmed = 2
        self._client.send_bytes(b"".join([*packets[HALF:], fault, *behind]))

    def send_too_many(self) -> None:
        """As many as may be open, and when they are confirmed, all others as one write."""
        packets = [self._encode(number + 1, payload) for number, payload in enumerate(self.sent)]
        self._client.send_bytes(b"".join(packets[1 : RECEIVE_MAXIMUM + 1]))
        while self.confirmed <= RECEIVE_MAXIMUM:
            self.confirmed += 1
            self._client.expect(PubAck(self.confirmed))
        self._client.send_bytes(b"".join(packets[RECEIVE_MAXIMUM + 1 :]))

    def read_to_the_end(self) -> None:
        """Answers come in the order of the publishes, until the broker ends the connection."""
        while True:
            try:
                packet = self._client.receive()
            except ConnectionEnded:
                return
            if isinstance(packet, Disconnect):
                self.ended_with.append(packet.reason)
                continue
            assert packet == PubAck(self.confirmed + 1), f"the broker sent {packet!r}"
            self.confirmed += 1

    def _encode(self, packet_id: int, payload: bytes) -> bytes:
        return encode_packet(Publish(self.topic, payload, 1, packet_id=packet_id), self._client.version)


def read_queue(client: RawClient, topic: bytes) -> list[bytes]:
    """Everything in the queue, in order."""
    assert client.publish(topic, LAST, 1) == 0
    client.send(Subscribe(client.new_packet_id(), [SubscribeEntry(topic, 0)]))
    found: list[bytes] = []
    while LAST not in found[-1:]:
        packet = client.receive()
        if isinstance(packet, Publish):
            found.append(packet.payload)
    return found[:-1]


def data_of(broker: BrokerProcess) -> Path:
    return broker.log_file.parent / "data"


def make_faults(version: int) -> dict[str, tuple[bytes, int]]:
    """What stands in the middle, and what MQTT 5 says to it."""
    block = b"\x00" if version == 5 else b""
    topic = text(b"$queue/large")
    return {
        "malformed": (frame(0x32, b"\x00"), MALFORMED),
        "zero": (frame(0x32, text(b"$queue/zero"), b"\x00\x00", block, b"x"), PROTOCOL_ERROR),
        "large": (frame(0x32, topic, b"\x12\x34", block, bytes(SIZE_MAX + 1)), PACKET_TOO_LARGE),
    }


@BOTH_VERSIONS
def test_what_was_confirmed_before_a_fault_in_the_same_write_survives_a_kill(
    version: int, start_broker: StartBroker
) -> None:
    broker = start_broker(f"broker.max_message_size={SIZE_MAX}")
    faults = make_faults(version)
    bursts: list[MessageBatch] = []
    with Clients(broker.mqtt_port) as clients:
        for name, (fault, reason) in faults.items():
            batch = MessageBatch(clients, version, name)
            bursts.append(batch)
            batch.send(fault)
            batch.read_to_the_end()
            assert batch.ended_with == ([reason] if version == 5 else [])
        broker.kill()
    again = start_broker(f"data_dir={data_of(broker)}")
    with Clients(again.mqtt_port) as clients:
        for batch in bursts:
            stored = read_queue(clients.open(version), batch.topic)
            assert stored == batch.sent[: len(stored)]
            assert len(stored) >= batch.confirmed
            if batch is not bursts[-1]:  # something that came later was confirmed: all before it is safe
                assert len(stored) == COUNT


def test_what_was_confirmed_survives_when_the_receive_maximum_is_passed_in_one_write(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(f"mqtt.receive_maximum={RECEIVE_MAXIMUM}")
    with Clients(broker.mqtt_port) as clients:
        batch = MessageBatch(clients, 5, "many")
        batch.send_too_many()
        batch.read_to_the_end()
        assert batch.ended_with == [RECEIVE_MAXIMUM_EXCEEDED]
        broker.kill()
    again = start_broker(f"data_dir={data_of(broker)}")
    with Clients(again.mqtt_port) as clients:
        stored = read_queue(clients.open(5), batch.topic)
    assert stored == batch.sent[: len(stored)]
    assert RECEIVE_MAXIMUM < batch.confirmed <= len(stored) < COUNT
