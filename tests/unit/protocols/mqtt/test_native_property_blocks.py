"""What another protocol carries in a block never reaches an MQTT client, and no MQTT client can send it."""

from __future__ import annotations

import pytest
from fakes import SIZE_MAX, START_NS, FakeLine, ManualWakeup
from queue_world import QueueBroker, words_of

from millstream.model.message import NANOSECONDS, Message
from millstream.model.native_properties import encode_native_properties, has_carried, wrap_carried
from millstream.model.outbox import LARGE, Outbox, OutboxPool
from millstream.protocols.mqtt.machine.outbound import DUP, Outbound
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.packets import Publish
from millstream.protocols.mqtt.wire.violation import Violation
from millstream.queues.publish_options import encode_user_property

SECRET = b"only for AMQP clients"
PAIR = (b"name", b"value")
BLOCK = encode_native_properties(b"exchange", b"key", b"\x00\x00" + SECRET, encode_user_property(*PAIR))
LONG_BLOCK = wrap_carried(b"\x01\x00\x00" + SECRET * 10_000) + encode_user_property(*PAIR)


@pytest.mark.parametrize("block", [BLOCK, LONG_BLOCK], ids=["one piece", "several pieces"])
@pytest.mark.parametrize("size", [1, LARGE])
@pytest.mark.parametrize("aliases", [0, 5])
@pytest.mark.parametrize("version", [4, 5])
def test_an_mqtt_client_gets_the_canonical_part_alone(
    version: int, aliases: int, size: int, block: bytes
) -> None:
    outbox = Outbox(OutboxPool(ManualWakeup()), FakeLine())
    outbound = Outbound(outbox)
    outbound.version = version
    outbound.allow_aliases(aliases if version == 5 else 0)
    message = Message(b"a/b", bytes(size), 1, False, block, START_NS + 9 * NANOSECONDS, "amqp-1")
    for qos, flags, identifiers in ((0, 0, ()), (1, 0, ()), (1, DUP, (7,)), (2, 0, ())):
        assert outbound.send_publish(message, qos, qos, flags, identifiers, START_NS)
        data = outbox.take_all()
        assert SECRET not in data
        packet, _ = decode_frame(data, 0, version, SIZE_MAX)
        assert isinstance(packet, Publish)
        assert packet.payload == message.payload
        if version == 5:
            assert packet.properties is not None
            assert packet.properties.user_properties == [PAIR]


def test_a_consumer_of_a_queue_reads_the_canonical_part_and_the_words_of_the_queue() -> None:
    world = QueueBroker()
    session, line = world.connect("c")
    world.consume(session, b"$queue/q")
    message = Message(b"$queue/q", b"x", 1, False, BLOCK, 0, "amqp-1")
    world.broker.publish_internal(world.account, message, None)
    world.loop()
    delivered = line.deliveries[0].message
    assert not has_carried(delivered.properties)
    assert words_of(delivered) == {
        "name": "value",
        "message-id": "q:0",
        "group-id": "g",
        "queue": "q",
        "offset": "0",
    }


def test_a_client_that_sends_a_carried_piece_breaks_the_protocol() -> None:
    properties = BLOCK[:100]
    body = b"\x00\x03a/b" + bytes([len(properties)]) + properties + b"payload"
    with pytest.raises(Violation):
        decode_frame(bytes([0x30, len(body)]) + body, 0, 5, SIZE_MAX)
