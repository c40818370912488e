"""AMQP 0.9.1: what a publisher learns (returns, confirms, transactions), and that messages arrive whole."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from amqp_names import unique
from pika.spec import Basic, BasicProperties, Confirm, Tx
from raw_amqp import AmqpClients
from raw_amqp_channel import AmqpChannel

pytest_plugins = ["amqp_broker"]


@pytest.fixture
def channel(clients: AmqpClients) -> AmqpChannel:
    """Not in confirm mode."""
    return clients.channel()


# ---- returns


def test_a_mandatory_message_without_a_queue_comes_back_whole(channel: AmqpChannel) -> None:
    key = unique("nobody")
    properties: dict[str, Any] = {"message_id": "m1", "headers": {"n": 7}, "content_type": "text/plain"}
    channel.publish("amq.direct", key, b"come back", mandatory=True, **properties)
    returned = channel.returned()
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.direct", key)
    assert returned.body == b"come back"
    assert returned.properties.message_id == "m1"
    assert returned.headers == {"n": 7}


def test_a_message_without_a_queue_is_dropped_when_it_is_not_mandatory(channel: AmqpChannel) -> None:
    channel.publish("amq.direct", unique("nobody"), b"x")
    channel.expect_nothing()


def test_a_mandatory_message_with_a_queue_does_not_come_back(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    channel.publish("", queue, b"x", mandatory=True)
    channel.expect_nothing()
    assert channel.get_one(queue).body == b"x"


def test_a_return_comes_before_its_confirm(channel: AmqpChannel) -> None:
    channel.confirm_select()
    channel.publish("amq.direct", unique("nobody"), b"x", mandatory=True)
    channel.confirm()
    assert [type(item.method) for item in channel.inbox] == [Basic.Return]


def test_immediate_is_refused(clients: AmqpClients) -> None:
    channel = clients.channel()
    channel.publish("amq.direct", "k", b"x", immediate=True)
    channel.client.expect_closed(540)


# ---- confirms


def test_every_message_is_confirmed_once(channel: AmqpChannel) -> None:
    queue = channel.declare(unique(), durable=True).queue
    channel.confirm_select()
    for number in range(500):
        channel.publish("", queue, b"%d" % number, delivery_mode=2)
    confirmed, refused = channel.wait_confirms(500)
    assert confirmed == set(range(1, 501))
    assert refused == set()
    channel.expect_nothing()
    assert channel.counts(queue) == (500, 0)


def test_confirms_are_counted_per_channel_from_the_select(clients: AmqpClients) -> None:
    client = clients.open()
    one, two = client.channel(), client.channel()
    queue = one.temporary()
    one.publish("", queue, b"before")
    one.confirm_select()
    two.confirm_select()
    one.publish("", queue, b"x")
    assert one.confirm().delivery_tag == 1
    two.publish("", queue, b"y")
    assert two.confirm().delivery_tag == 1
    one.confirm_select()  # again: no new count
    one.publish("", queue, b"z")
    assert one.confirm().delivery_tag == 2


def test_a_message_without_a_queue_is_confirmed(channel: AmqpChannel) -> None:
    channel.confirm_select()
    channel.publish_confirmed("amq.direct", unique("nobody"), b"x")


def test_confirms_and_transactions_exclude_each_other(clients: AmqpClients) -> None:
    client = clients.open()
    one = client.channel()
    one.confirm_select()
    one.send(Tx.Select())
    one.expect_closed(406)
    two = client.channel()
    two.tx_select()
    two.send(Confirm.Select())
    two.expect_closed(406)


# ---- transactions


def test_a_commit_publishes_all_and_a_rollback_nothing(clients: AmqpClients) -> None:
    writer, reader = clients.channel(), clients.channel()
    queue = reader.declare(unique(), durable=True).queue
    writer.tx_select()
    for number in range(3):
        writer.publish("", queue, b"%d" % number, delivery_mode=2)
    writer.sync()
    assert reader.counts(queue) == (0, 0)
    writer.commit()
    assert reader.counts(queue) == (3, 0)
    writer.publish("", queue, b"never")
    writer.rollback()
    writer.commit()
    assert reader.counts(queue) == (3, 0)
    assert [reader.get_one(queue).body for _ in range(3)] == [b"0", b"1", b"2"]


def test_settling_in_a_transaction_counts_from_the_commit(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    for number in range(2):
        channel.publish("", queue, b"%d" % number)
    channel.tx_select()
    first, second = channel.get_one(queue), channel.get_one(queue)
    channel.ack(first.tag)
    channel.rollback()
    channel.ack(first.tag)
    channel.nack(second.tag)
    channel.sync()
    assert channel.get(queue) is None
    channel.commit()
    assert channel.get_one(queue).body == b"1"


def test_what_a_transaction_has_answered_is_not_recovered(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    for number in range(2):
        channel.publish("", queue, b"%d" % number)
    channel.tx_select()
    channel.commit()
    channel.ack(channel.get_one(queue).tag)
    assert channel.get_one(queue).body == b"1"
    channel.call(Basic.Recover(requeue=True), Basic.RecoverOk)
    again = channel.get_one(queue)
    assert (again.body, again.method.redelivered) == (b"1", True)
    channel.commit()
    assert channel.get(queue) is None


def test_a_rollback_does_not_give_deliveries_back(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    channel.publish("", queue, b"x")
    channel.tx_select()
    delivery = channel.get_one(queue)
    channel.ack(delivery.tag)
    channel.rollback()
    assert channel.get(queue) is None, "it is still held by this channel"
    channel.ack(delivery.tag)
    channel.commit()
    assert channel.counts(queue) == (0, 0)


def test_an_open_transaction_is_gone_with_its_connection(clients: AmqpClients) -> None:
    writer, reader = clients.channel(), clients.channel()
    queue = reader.temporary()
    writer.tx_select()
    writer.publish("", queue, b"never")
    writer.sync()
    writer.client.close()
    assert reader.counts(queue) == (0, 0)


def test_returns_of_a_transaction_come_before_its_commit_is_answered(channel: AmqpChannel) -> None:
    channel.tx_select()
    channel.publish("amq.direct", unique("nobody"), b"x", mandatory=True)
    channel.expect_nothing()
    channel.commit()
    assert [type(item.method) for item in channel.inbox] == [Basic.Return]


@pytest.mark.parametrize("method", [Tx.Commit(), Tx.Rollback()], ids=["commit", "rollback"])
def test_a_transaction_must_be_selected_first(clients: AmqpClients, method: Any) -> None:
    channel = clients.channel()
    channel.send(method)
    channel.expect_closed(406, "channel is not transactional")


# ---- whole messages

ALL_PROPERTIES: dict[str, Any] = {
    "content_type": "application/json",
    "content_encoding": "gzip",
    "headers": {"a": "b"},
    "delivery_mode": 2,
    "priority": 5,
    "correlation_id": "c-1",
    "reply_to": "answers",
    "expiration": "60000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "greeting",
    "user_id": "guest",
    "app_id": "test",
    "cluster_id": "reserved",
}


def test_all_properties_arrive(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    channel.publish("", queue, b"x", **ALL_PROPERTIES)
    delivery = channel.get_one(queue)
    assert {name: getattr(delivery.properties, name) for name in ALL_PROPERTIES} == ALL_PROPERTIES


@pytest.mark.parametrize("name", sorted(ALL_PROPERTIES))
def test_a_property_that_was_not_sent_does_not_arrive(channel: AmqpChannel, name: str) -> None:
    queue = channel.temporary()
    channel.publish("", queue, b"x", **{name: ALL_PROPERTIES[name]})
    found = channel.get_one(queue).properties
    assert {key for key in ALL_PROPERTIES if getattr(found, key) is not None} == {name}


def field(name: bytes, kind: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + kind + value


def long(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


FIELDS = b"".join(
    (
        field(b"bool", b"t", b"\x01"),
        field(b"int8", b"b", b"\xff"),
        field(b"uint8", b"B", b"\xff"),
        field(b"int16", b"s", struct.pack(">h", -2)),
        field(b"uint16", b"u", struct.pack(">H", 65_535)),
        field(b"int32", b"I", struct.pack(">i", -70_000)),
        field(b"uint32", b"i", struct.pack(">I", 4_000_000_000)),
        field(b"int64", b"l", struct.pack(">q", -(1 << 60))),
        field(b"float", b"f", struct.pack(">f", 1.5)),
        field(b"double", b"d", struct.pack(">d", 0.1)),
        field(b"decimal", b"D", struct.pack(">Bi", 2, 314)),
        field(b"text", b"S", long("grüße".encode())),
        field(b"binary", b"S", long(b"\x00\xff\xfe")),
        field(b"bytes", b"x", long(b"\x00\x01")),
        field(b"list", b"A", long(b"I" + struct.pack(">i", 1) + b"S" + long(b"two") + b"V")),
        field(b"time", b"T", struct.pack(">Q", 1_700_000_000)),
        field(b"table", b"F", long(field(b"inner", b"F", long(field(b"x", b"t", b"\x00"))))),
        field(b"void", b"V", b""),
        field(b"", b"I", struct.pack(">i", 3)),
    )
)


def test_headers_of_every_type_arrive_as_they_were_sent(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    raw = struct.pack(">H", 1 << 13) + long(FIELDS)
    method = Basic.Publish(exchange="", routing_key=queue)
    channel.client.send_content(channel.number, method, raw, b"x")
    delivery = channel.get_one(queue)
    assert delivery.raw_properties == raw
    assert delivery.headers["time"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_a_malformed_header_table_is_a_syntax_error(clients: AmqpClients) -> None:
    channel = clients.channel()
    raw = struct.pack(">HI", 1 << 13, 1000) + field(b"x", b"S", b"\x00\x00\xff\xff")
    channel.client.send_content(
        channel.number, Basic.Publish(exchange="amq.direct", routing_key="k"), raw, b"x"
    )
    with pytest.raises(Exception, match=r"50[12]|541|ended"):
        channel.client.pump_for_ever()


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 8176, 100_000, 3_000_000])
@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_a_body_of_any_size_arrives_whole(clients: AmqpClients, size: int, frame_max: int) -> None:
    channel = clients.channel(frame_max=frame_max)
    queue = channel.temporary()
    channel.consume(queue, no_ack=True)
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    channel.publish("", queue, body)
    delivery = channel.delivery()
    assert delivery.body == body
    assert delivery.body_frames == -(-size // (frame_max - 8))


def test_small_body_frames_are_put_together(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    client = channel.client
    frame_max, client.frame_max = client.frame_max, 8 + 10
    client.send_content(
        channel.number, Basic.Publish(exchange="", routing_key=queue), bytes(2), b"0123456789" * 50
    )
    client.frame_max = frame_max
    assert channel.get_one(queue).body == b"0123456789" * 50


def test_contents_of_two_channels_may_be_interleaved(clients: AmqpClients) -> None:
    client = clients.open()
    one, two = client.channel(), client.channel()
    queue = one.temporary()
    one.send(Basic.Publish(exchange="", routing_key=queue))
    two.send(Basic.Publish(exchange="", routing_key=queue))
    header = struct.pack(">HHQH", 60, 0, 4, 0)
    for kind, number, payload in (
        (2, one.number, header),
        (2, two.number, header),
        (3, one.number, b"on"),
        (3, two.number, b"tw"),
        (3, two.number, b"o!"),
        (3, one.number, b"e!"),
    ):
        client.send_bytes(struct.pack(">BHI", kind, number, len(payload)) + payload + b"\xce")
    two.consume(queue, no_ack=True)
    assert sorted(two.bodies(2)) == [b"one!", b"two!"]


@pytest.mark.parametrize("name", ["somebody-else", ""])
def test_a_user_id_must_be_ones_own(clients: AmqpClients, name: str) -> None:
    channel = clients.channel()
    channel.publish("amq.direct", "k", b"x", user_id=name)
    channel.expect_closed(406, f"user_id property set to '{name}' but authenticated user was 'guest'")


@pytest.mark.parametrize("expiration", ["soon", "-1", "1.5", ""])
def test_an_expiration_must_be_a_number(clients: AmqpClients, expiration: str) -> None:
    channel = clients.channel()
    channel.publish("amq.direct", "k", b"x", expiration=expiration)
    channel.expect_closed(406, "invalid expiration")


def test_messages_of_one_channel_keep_their_order(clients: AmqpClients) -> None:
    writer, reader = clients.channel(), clients.channel()
    queue = reader.temporary()
    reader.consume(queue, no_ack=True)
    raw = b"".join(BasicProperties().encode())
    for number in range(2000):
        method = Basic.Publish(exchange="", routing_key=queue)
        writer.client.send_content(writer.number, method, raw, b"%d" % number)
    assert reader.bodies(2000) == [b"%d" % number for number in range(2000)]
