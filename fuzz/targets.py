"""What is fuzzed: one line per target in TARGETS. See `target` for what one is."""

from __future__ import annotations

from amqp091_machine import AMQP091_MACHINE_TARGETS
from amqp091_targets import AMQP091_TARGETS
from target import Target, expect
from vectors.mqtt_packets import VECTORS
from vectors.mqtt_vector import block, frame, text

from millstream.model.limits import Limits
from millstream.model.outbox import Flushable, Outbox, OutboxPool, Wakeup
from millstream.protocols.mqtt.machine.client import Client
from millstream.protocols.mqtt.machine.client_session import ClientSession
from millstream.protocols.mqtt.machine.connection import Connection
from millstream.protocols.mqtt.machine.events import Closed, PublishBatchReceived, RunReceived
from millstream.protocols.mqtt.machine.terms import Terms
from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.decode import decode_frame, decode_packet
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect, Packet, Publish, SubscribeEntry
from millstream.protocols.mqtt.wire.properties import Properties, decode_properties, encode_properties
from millstream.protocols.mqtt.wire.publish_scan import PublishScan
from millstream.protocols.mqtt.wire.violation import Violation

SIZE_MAX = 1 << 20
CONNACKS = {4: b"\x20\x02\x00\x00", 5: b"\x20\x03\x00\x00\x00"}


def read_frame(data: bytes, version: int) -> object:
    """Bytes as they come from a socket; if they are no whole frame, the same as a body whose length is right."""
    try:
        packet, position = decode_frame(data, 0, version, SIZE_MAX)
        expect((packet is None) == (position == 0) and position <= len(data), "a frame moves on by its size")
        if packet is not None:
            return packet
    except Violation:
        pass
    return decode_packet(data, data[0], 1, len(data), version) if data else None


def check_written(packet: object, version: int) -> None:
    if isinstance(packet, Packet):
        written = encode_packet(packet, version)
        again, position = decode_frame(written, 0, version, SIZE_MAX)
        expect(again == packet and position == len(written), "what was read can be written and read again")


def frame_target(version: int, seeds: list[bytes]) -> Target:
    return Target(
        lambda data: read_frame(data, version), seeds, lambda data, packet: check_written(packet, version)
    )


def read_properties(data: bytes) -> object:
    """The first byte chooses the packet, the rest is its properties."""
    if not data:
        return None
    whole = block(data[1:])
    properties, position = decode_properties(whole, 0, len(whole), data[0] % 16)
    expect(position == len(whole), "the block is read to its end")
    return properties


def check_properties(data: bytes, found: object) -> None:
    if isinstance(found, Properties):
        written = encode_properties(found)
        again, _ = decode_properties(written, 0, len(written), data[0] % 16)
        expect(again == found, "properties survive the wire")


def scan_properties(data: bytes) -> object:
    whole = block(data)
    scan = PublishScan()
    scan.scan(whole, 0, len(whole))
    return scan


def check_scan(data: bytes, scan: object) -> None:
    """Only reached when the scan found no fault: then the decoder finds none, and the same values."""
    assert isinstance(scan, PublishScan)
    whole = block(data)
    try:
        decoded = decode_properties(whole, 0, len(whole), kinds.PUBLISH)[0] or Properties()
    except Violation as violation:
        raise AssertionError("the scan takes what the decoder refuses") from violation
    expect(scan.position == len(whole), "the block is read to its end")
    expect(scan.topic_alias == (decoded.topic_alias or 0), "both find the same alias")
    expiry_s = decoded.message_expiry_interval
    expect(scan.expiry_s == (-1 if expiry_s is None else expiry_s), "both find the same expiry")


def drive_client(data: bytes) -> object:
    """A server gone mad: the first byte chooses the version and how the rest is cut."""
    if not data:
        return None
    version = 4 + data[0] % 2
    cut = 1 + data[0] % len(data)
    client = Client(Connect(version, "c", keep_alive_s=10), ClientSession(), 0, True, SIZE_MAX)
    events = client.receive_data(CONNACKS[version], 1)
    for qos in (0, 1, 2):
        client.publish(Publish(b"a", b"x", qos), 2)
    client.subscribe([SubscribeEntry(b"#", 2)], None, 3)
    events += client.receive_data(data[1:cut], 4)
    events += client.receive_data(data[cut:], 5)
    events += client.on_deadline(30 * 10**9)
    expect(sum(isinstance(event, Closed) for event in events) <= 1, "a connection closes once")
    return client


def check_client(data: bytes, client: object) -> None:
    if isinstance(client, Client):
        sent = b"".join(client.data_to_send())
        position = 0
        while position < len(sent):
            version = client.version if position else 0  # CONNECT is the first
            packet, position = decode_frame(sent, position, version, SIZE_MAX)
            expect(packet is not None, "what is sent is whole")


class Silence(Wakeup, Flushable):
    """A loop and a transport that do nothing."""

    def request(self) -> None:
        pass

    def flush(self) -> None:
        pass

    def on_flush_failed(self, error: Exception) -> None:
        raise error


SILENCE = Silence()
POOL = OutboxPool(SILENCE)
TERMS = Terms(Limits(), POOL)


def drive_server(data: bytes) -> object:
    """A client gone mad: the first byte chooses the version, and where the rest is cut."""
    if not data:
        return None
    version = (3, 4, 5)[data[0] % 3]
    cut = 1 + data[0] % len(data)
    whole = serve([data[1:]], version)
    parts = serve([data[1:cut], data[cut:]], version)
    expect(whole == parts, "where the bytes are cut makes no difference")
    expect(whole == serve([data[1:]], version, True), "publishes that are alike are the same as one")
    return None


def serve(reads: list[bytes], version: int, gathers: bool = False) -> tuple[int, int, int]:
    """(publishes, other events, reason of the end or -1) of what an accepted client sends."""
    outbox = Outbox(POOL, SILENCE)
    connection = Connection(TERMS, outbox, 0)
    connection.receive_data(encode_packet(Connect(version, "c"), version), 1)
    connection.accept(ConnAck(False, 0, Properties() if version == 5 else None), 10, False, 2)
    connection.batches_publishes = gathers
    publishes = others = 0
    closed: list[int] = []
    for read in reads:
        for event in connection.receive_data(read, 3):
            if isinstance(event, RunReceived):
                publishes += int(event.count)
            elif isinstance(event, PublishBatchReceived):
                others += len(event.take_apart())
            elif isinstance(event, Closed):
                closed.append(event.reason)
            else:
                others += 1
    for event in connection.on_deadline(30 * 10**9):
        expect(isinstance(event, Closed) and not closed, "a connection closes once")
    outbox.take_all()
    expect(len(closed) <= 1, "a connection closes once")
    return publishes, others, closed[0] if closed else -1


def frames(*versions: int) -> list[bytes]:
    return [vector.data for vector in VECTORS if vector.version in versions] + LARGE


def choose(firsts: bytes, rests: list[bytes]) -> list[bytes]:
    return [bytes([first]) + rest for first in firsts for rest in rests]


# as much work as a few kilobytes can ask for
LARGE = [
    frame(0x82, b"\x00\x01", (text(b"a") + b"\x00") * 1000),
    frame(0x82, b"\x00\x01\x00", (text(b"") + b"\x00") * 1500),
    frame(0xA2, b"\x00\x01", text(b"") * 1000),
    frame(0x90, b"\x00\x01", b"\x00" * 5000),
    frame(0x30, text(b"a"), block(b"\x0b\x01" * 1000)),
    frame(0x30, text(b"a"), block((b"\x26" + text(b"k" * 40) + text("ä".encode() * 20)) * 64)),
]


def bodies() -> list[bytes]:
    """The properties in the table, without what stands around them."""
    return [vector.data[6:] for vector in VECTORS if vector.version == 5 and len(vector.data) > 6]


def sequences() -> list[bytes]:
    """Several packets in one read: publishes that join to runs, and what may stand between them."""
    publishes = [vector.data for vector in VECTORS if vector.version == 5 and vector.data[:1] == b"\x30"][:12]
    numbered = [vector.data for vector in VECTORS if vector.version == 5 and vector.data[:1] == b"\x32"][:12]
    return [
        bytes([2 + 3 * at]) + one * 3 + b"\xc0\x00" + one for at, one in enumerate([*publishes, *numbered])
    ]


TARGETS: dict[str, Target] = {
    "mqtt-connect": frame_target(0, frames(0)),
    "mqtt-3.1": frame_target(3, frames(3, 4)),
    "mqtt-3.1.1": frame_target(4, frames(4)),
    "mqtt-5": frame_target(5, frames(5)),
    "mqtt-properties": Target(read_properties, choose(b"\x01\x03", bodies()), check_properties),
    "mqtt-publish-scan": Target(scan_properties, bodies(), check_scan),
    "mqtt-client": Target(
        drive_client, choose(b"\x00", frames(4)) + choose(b"\x01", frames(5)), check_client
    ),
    "mqtt-server": Target(
        drive_server,
        choose(b"\x00", frames(3)) + choose(b"\x01", frames(4)) + choose(b"\x02", frames(5)) + sequences(),
    ),
    **AMQP091_TARGETS,
    **AMQP091_MACHINE_TARGETS,
}
