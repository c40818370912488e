"""The queue load generator's clients against scripted brokers, with the bytes cut at every place."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from benchmarks.load.frames import FrameFault, PacketReader, decode_publication, encode_publish
from benchmarks.load.queue_amqp import (
    BASIC_ACK,
    BASIC_CONSUME_OK,
    BASIC_DELIVER,
    BASIC_NACK,
    BASIC_QOS_OK,
    BODY,
    CHANNEL,
    CHANNEL_CLOSE,
    CONFIRM_SELECT_OK,
    HEADER,
    HEARTBEAT,
    AmqpConsumer,
    AmqpPublisher,
    encode_frame,
    encode_method,
    encode_table,
    short_string,
)
from benchmarks.load.queue_mqtt import QUEUE_TOPIC, MqttConsumer, MqttPublisher
from benchmarks.load.queue_nats import NatsConsumer, NatsPublisher
from benchmarks.load.queue_parties import Ledger, Party

SIZE = 32
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    theirs.settimeout(5)
    with ours, theirs:
        yield ours, theirs


def payload(sequence: int) -> bytes:
    return sequence.to_bytes(8, "big") + b"\x01" * (SIZE - 8)


def feed(party: Party, stream: bytes, cut: int) -> None:
    """Hand the bytes over in two parts, as two reads would bring them."""
    buffer = bytearray(stream[:cut])
    position = party.take(buffer, len(buffer))
    rest = bytearray(stream[position:cut]) + bytearray(stream[cut:])
    left = party.take(rest, len(rest))
    assert left == len(rest)


def for_every_cut(make: Callable[[], Party], stream: bytes, check: Callable[[Party], None]) -> None:
    for cut in range(len(stream) + 1):
        party = make()
        feed(party, stream, cut)
        check(party)


def deliver_mqtt(sequence: int, packet_id: int) -> bytes:
    return encode_publish(QUEUE_TOPIC, payload(sequence), 1, packet_id, b"")


def test_the_ledger_tells_a_repeated_delivery_from_a_new_one() -> None:
    ledger = Ledger()
    for sequence in (0, 70_000, 3, 70_000):
        ledger.note(sequence)
    assert (ledger.delivered, ledger.repeated) == (3, 1)


def test_a_delivery_with_an_impossible_number_is_a_fault() -> None:
    with pytest.raises(FrameFault, match="impossible"):
        Ledger().note(1 << 60)


def test_an_mqtt_publish_carries_its_number_and_the_next_packet_id(ends: Ends) -> None:
    ours, theirs = ends
    publisher = MqttPublisher(ours, QUEUE_TOPIC, SIZE)
    publisher.publish(40, 2)
    first, second = PacketReader().feed(theirs.recv(4096))
    found = [decode_publication(packet, 4) for packet in (first, second)]
    assert [(part.topic, part.qos, part.packet_id, part.payload) for part in found] == [
        (QUEUE_TOPIC, 1, 1, payload(40)),
        (QUEUE_TOPIC, 1, 2, payload(41)),
    ]


def test_mqtt_confirms_are_counted_however_they_are_cut(ends: Ends) -> None:
    stream = b"\x40\x02\x00\x01" + b"\x40\x02\x00\x02" + b"\x40\x02\x00\x03"

    def check(party: Party) -> None:
        assert isinstance(party, MqttPublisher)
        assert party.confirmed == 3

    for_every_cut(lambda: MqttPublisher(ends[0], QUEUE_TOPIC, SIZE), stream, check)


def test_an_mqtt_confirm_for_another_packet_is_a_fault(ends: Ends) -> None:
    publisher = MqttPublisher(ends[0], QUEUE_TOPIC, SIZE)
    with pytest.raises(FrameFault, match="out of order"):
        publisher.take(bytearray(b"\x40\x02\x00\x02"), 4)


def test_mqtt_deliveries_before_and_after_the_answer_to_subscribe_are_settled(ends: Ends) -> None:
    stream = deliver_mqtt(5, 300) + b"\x90\x03\x00\x01\x01" + deliver_mqtt(6, 301) + deliver_mqtt(7, 302)
    ledgers: list[Ledger] = []

    def make() -> Party:
        ledgers.append(Ledger())
        return MqttConsumer(ends[0], ledgers[-1], QUEUE_TOPIC, SIZE)

    def check(party: Party) -> None:
        assert ledgers[-1].delivered == 3
        assert bytes(party.unsent) == b"\x40\x02\x01\x2c\x40\x02\x01\x2d\x40\x02\x01\x2e"

    for_every_cut(make, stream, check)


def test_a_refused_mqtt_subscription_is_a_fault(ends: Ends) -> None:
    consumer = MqttConsumer(ends[0], Ledger(), QUEUE_TOPIC, SIZE)
    with pytest.raises(FrameFault, match="refused the subscription"):
        consumer.take(bytearray(b"\x90\x03\x00\x01\x80"), 5)


def test_an_mqtt_delivery_from_another_topic_is_a_fault(ends: Ends) -> None:
    consumer = MqttConsumer(ends[0], Ledger(), QUEUE_TOPIC, SIZE)
    frame = bytearray(encode_publish(b"$queue/hcneb", payload(1), 1, 1, b""))
    with pytest.raises(FrameFault, match="unexpected delivery"):
        consumer.take(frame, len(frame))


def nats_message(subject: bytes, reply: bytes, body: bytes) -> bytes:
    return b"MSG %s 1 %s%d\r\n%s\r\n" % (subject, reply, len(body), body)


def test_nats_confirms_are_counted_and_pings_answered_however_they_are_cut(ends: Ends) -> None:
    confirm = b'{"stream":"bench","seq":12}'
    stream = nats_message(b"_INBOX.publisher.0", b"", confirm) * 2 + b"PING\r\n"
    stream += nats_message(b"_INBOX.publisher.0", b"", confirm)

    def check(party: Party) -> None:
        assert isinstance(party, NatsPublisher)
        assert party.confirmed == 3
        assert party.unsent.endswith(b"PONG\r\n")

    for_every_cut(lambda: NatsPublisher(ends[0], 0, SIZE), stream, check)


def test_a_publish_that_jetstream_refused_is_a_fault(ends: Ends) -> None:
    refusal = bytearray(nats_message(b"_INBOX.publisher.0", b"", b'{"error":{"code":503}}'))
    with pytest.raises(FrameFault, match="refused"):
        NatsPublisher(ends[0], 0, SIZE).take(refusal, len(refusal))


def test_nats_deliveries_are_settled_at_their_reply_subject(ends: Ends) -> None:
    ours, theirs = ends
    body = payload(9)[:8] + b"\r\nPING\r\n" + b"\x01" * (SIZE - 16)  # a payload may look like the protocol
    stream = nats_message(b"deliver.bench", b"$JS.ACK.bench.readers.1.7.7.0.3 ", body)
    ledgers: list[Ledger] = []

    def make() -> Party:
        ledgers.append(Ledger())
        theirs.sendall(b"PONG\r\n")
        consumer = NatsConsumer(ours, ledgers[-1])
        theirs.recv(4096)
        return consumer

    def check(party: Party) -> None:
        assert ledgers[-1].delivered == 1
        assert bytes(party.unsent) == b"PUB $JS.ACK.bench.readers.1.7.7.0.3 0\r\n\r\n"

    for_every_cut(make, stream, check)


def make_amqp_publisher(ends: Ends, sent: int) -> AmqpPublisher:
    ends[1].sendall(encode_method(CHANNEL, CONFIRM_SELECT_OK, b""))
    publisher = AmqpPublisher(ends[0], SIZE)
    ends[1].recv(4096)
    for sequence in range(sent):
        publisher.encode(sequence)
        publisher.sent += 1
    return publisher


def confirm_amqp(tag: int, is_multiple: bool) -> bytes:
    return encode_method(CHANNEL, BASIC_ACK, struct.pack(">QB", tag, is_multiple))


def test_amqp_confirms_count_single_and_multiple_ones_once(ends: Ends) -> None:
    heartbeat = encode_frame(HEARTBEAT, 0, b"")
    stream = confirm_amqp(3, False) + heartbeat + confirm_amqp(4, True) + confirm_amqp(6, False)

    def check(party: Party) -> None:
        assert isinstance(party, AmqpPublisher)
        assert party.confirmed == 5  # 1 to 4, and 6

    for_every_cut(lambda: make_amqp_publisher(ends, 6), stream, check)


@pytest.mark.parametrize(
    ("method", "arguments", "word"),
    [
        (BASIC_NACK, struct.pack(">QB", 1, 0), "refused"),
        (CHANNEL_CLOSE, b"\x01\x94" + short_string(b"NOT_FOUND - no queue") + bytes(4), "no queue"),
    ],
)
def test_an_amqp_publish_that_was_refused_is_a_fault(
    ends: Ends, method: int, arguments: bytes, word: str
) -> None:
    frame = bytearray(encode_method(CHANNEL, method, arguments))
    publisher = make_amqp_publisher(ends, 1)
    with pytest.raises(FrameFault, match=word):
        publisher.take(frame, len(frame))


def deliver_amqp(tag: int, sequence: int, properties: bytes) -> bytes:
    method = short_string(b"c") + struct.pack(">QB", tag, 0) + short_string(b"") + short_string(b"bench")
    header = struct.pack(">HHQ", 60, 0, SIZE) + properties
    return (
        encode_method(CHANNEL, BASIC_DELIVER, method)
        + encode_frame(HEADER, CHANNEL, header)
        + encode_frame(BODY, CHANNEL, payload(sequence))
    )


def test_amqp_deliveries_of_any_length_are_settled_one_by_one(ends: Ends) -> None:
    longer = b"\x20\x00" + encode_table({b"x-stream-offset": b"7"})
    stream = deliver_amqp(1, 7, b"\x00\x00") + deliver_amqp(2, 8, longer)
    ledgers: list[Ledger] = []

    def make() -> Party:
        ledgers.append(Ledger())
        ends[1].sendall(encode_method(CHANNEL, BASIC_QOS_OK, b""))
        ends[1].sendall(encode_method(CHANNEL, BASIC_CONSUME_OK, short_string(b"c")))
        consumer = AmqpConsumer(ends[0], ledgers[-1], 100, False)
        ends[1].recv(4096)
        return consumer

    def check(party: Party) -> None:
        assert ledgers[-1].delivered == 2
        assert bytes(party.unsent) == confirm_amqp(1, False) + confirm_amqp(2, False)

    for_every_cut(make, stream, check)


def test_what_the_socket_does_not_take_waits_and_is_sent_once(ends: Ends) -> None:
    ours, theirs = ends
    ours.setblocking(False)
    publisher = MqttPublisher(ours, QUEUE_TOPIC, SIZE)
    publisher.publish(0, 50_000)
    expected = publisher.sent * len(publisher.encode(0))
    received = 0
    while received < expected:
        received += len(theirs.recv(1 << 20))
        publisher.flush()
    assert received == expected
    assert not publisher.unsent
