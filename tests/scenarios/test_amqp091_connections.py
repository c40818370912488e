"""AMQP 0.9.1: the way into a connection, its channels, and how both end."""

from __future__ import annotations

import struct

import pytest
from amqp_names import unique
from pika import frame as frames
from pika.spec import Basic, Channel, Confirm, Connection, Queue
from raw_amqp import HEADER, AmqpClients, ConnectionClosed, ConnectionLost, encode_frame

pytest_plugins = ["amqp_broker"]


@pytest.mark.parametrize(
    "header", [b"AMQP\x00\x00\x09\x00", b"AMQP\x02\x01\x00\x00", b"GET / HT", b"AMQP\x00\x01\x00\x01"]
)
def test_another_protocol_is_told_which_one_is_spoken(clients: AmqpClients, header: bytes) -> None:
    client = clients.connect()
    client.socket.sendall(header)
    answer = b""
    while len(answer) < 8:
        data = client.socket.recv(8 - len(answer))
        assert data
        answer += data
    assert answer == HEADER
    client.expect_end()


def test_the_start_names_mechanisms_and_capabilities(clients: AmqpClients) -> None:
    start = clients.open().start
    assert {b"PLAIN", b"AMQPLAIN"} <= set(start.mechanisms.split())
    assert b"en_US" in start.locales.split()
    capabilities = start.server_properties["capabilities"]
    for name in (
        "publisher_confirms",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "exchange_exchange_bindings",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ):
        assert capabilities[name] is True, name
    assert (start.version_major, start.version_minor) == (0, 9)


def test_an_unknown_virtual_host_is_not_allowed(clients: AmqpClients) -> None:
    client = clients.connect()
    with pytest.raises(Exception, match="530"):
        client.open(virtual_host="nowhere")
    client.expect_end()


@pytest.mark.parametrize(("frame_max", "heartbeat_s"), [(4096, 0), (8192, 60), (131_072, 1)])
def test_a_client_may_ask_for_less_than_offered(
    clients: AmqpClients, frame_max: int, heartbeat_s: int
) -> None:
    client = clients.open(frame_max=frame_max, heartbeat_s=heartbeat_s)
    channel = client.channel()
    queue = channel.temporary()
    body = bytes(range(256)) * 100
    channel.publish("", queue, body)
    assert channel.get_one(queue, no_ack=True).body == body


@pytest.mark.parametrize("frame_max", [1 << 30, 1000])
def test_a_frame_size_outside_the_offer_is_not_allowed(clients: AmqpClients, frame_max: int) -> None:
    client = clients.connect()
    with pytest.raises((ConnectionClosed, ConnectionLost)) as caught:
        client.open(frame_max=frame_max)
    if isinstance(caught.value, ConnectionClosed):  # RabbitMQ ends it without a word, three seconds later
        assert caught.value.code == 530


def test_the_broker_sends_heartbeats_when_it_has_nothing_else_to_say(clients: AmqpClients) -> None:
    client = clients.open(heartbeat_s=1)
    while client.heartbeats < 1:
        client.pump()


def test_a_silent_client_is_let_go_after_two_heartbeats(clients: AmqpClients) -> None:
    client = clients.open(heartbeat_s=1)
    with pytest.raises(ConnectionLost):
        client.pump_for_ever()
    assert client.heartbeats >= 1


def test_a_client_that_wants_no_heartbeats_gets_none(clients: AmqpClients) -> None:
    other = clients.open(heartbeat_s=1)
    client = clients.open(heartbeat_s=0)
    while other.heartbeats < 1:
        other.pump()
    client.channel().sync()
    assert client.heartbeats == 0


def test_both_sides_close_a_connection_in_peace(clients: AmqpClients) -> None:
    client = clients.open()
    client.send(0, Connection.Close(200, "done", 0, 0))
    client.expect(Connection.CloseOk)


def test_what_a_client_sends_behind_its_close_does_no_harm(clients: AmqpClients) -> None:
    """Some clients have their publishes in another buffer, which is sent after the close."""
    client = clients.open()
    channel = client.channel()
    channel.confirm_select()
    queue = channel.declare(unique()).queue
    client.send(0, Connection.Close(200, "done", 0, 0))
    for _ in range(200):
        channel.publish("", queue, bytes(10_000))
    client.expect(Connection.CloseOk)
    channel.publish("", queue, b"late")
    assert clients.channel().counts(queue) == (0, 0)


def test_answers_come_in_the_order_of_the_questions(clients: AmqpClients) -> None:
    channel = clients.channel()
    queue = channel.temporary()
    channel.client.queues.append(lasting := unique())
    channel.send(Queue.Declare(queue=lasting, durable=True))
    channel.send(Basic.Qos(prefetch_count=1))
    channel.send(Queue.Bind(queue=lasting, exchange="amq.direct", routing_key=lasting))
    channel.send(Basic.Get(queue=queue))
    channel.send(Queue.Declare(queue=queue, passive=True))
    channel.send(Confirm.Select())
    answers = [channel.take(lambda _: True) for _ in range(6)]
    assert [type(answer) for answer in answers] == [
        Queue.DeclareOk,
        Basic.QosOk,
        Queue.BindOk,
        Basic.GetEmpty,
        Queue.DeclareOk,
        Confirm.SelectOk,
    ]


def test_a_closed_channel_number_can_be_opened_again(clients: AmqpClients) -> None:
    client = clients.open()
    for _ in range(20):
        channel = client.channel()
        assert channel.number == 1
        channel.close()


def test_channels_have_their_own_delivery_tags_and_consumers(clients: AmqpClients) -> None:
    client = clients.open()
    one, two = client.channel(), client.channel()
    queue = one.temporary()
    one.consume(queue, "same")
    two.consume(queue, "same")
    for number in range(4):
        one.publish("", queue, b"%d" % number)
    assert {one.delivery().tag, one.delivery().tag} == {1, 2}
    assert {two.delivery().tag, two.delivery().tag} == {1, 2}


def test_opening_an_open_channel_is_a_channel_error(clients: AmqpClients) -> None:
    client = clients.open()
    channel = client.channel()
    channel.send(Channel.Open())
    client.expect_closed(504)


def test_a_method_on_a_channel_that_is_not_open_is_a_channel_error(clients: AmqpClients) -> None:
    client = clients.open()
    client.send(7, Queue.Declare(queue="x"))
    client.expect_closed(504, "expected 'channel.open'")


def test_a_second_handshake_is_an_error(clients: AmqpClients) -> None:
    client = clients.open()
    client.send(0, Connection.TuneOk(channel_max=0, frame_max=131_072, heartbeat=0))
    with pytest.raises(Exception, match=r"50[34]|540|530"):
        client.pump_for_ever()


def test_a_method_of_a_channel_on_channel_zero_is_an_error(clients: AmqpClients) -> None:
    client = clients.open()
    client.send(0, Basic.Publish(exchange="", routing_key="x"))
    with pytest.raises(Exception, match=r"50[345]"):
        client.pump_for_ever()


def test_an_unknown_method_is_an_error(clients: AmqpClients) -> None:
    client = clients.open()
    channel = client.channel()
    client.send_bytes(encode_frame(1, channel.number, struct.pack(">HH", 60, 999)))
    with pytest.raises((ConnectionClosed, ConnectionLost)):  # RabbitMQ says nothing at all
        client.pump_for_ever()


def test_a_header_frame_out_of_order_is_an_unexpected_frame(clients: AmqpClients) -> None:
    client = clients.open()
    channel = client.channel()
    client.send_bytes(encode_frame(2, channel.number, struct.pack(">HHQH", 60, 0, 0, 0)))
    client.expect_closed(505)


def test_a_body_frame_out_of_order_is_an_unexpected_frame(clients: AmqpClients) -> None:
    client = clients.open()
    channel = client.channel()
    client.send_bytes(encode_frame(3, channel.number, b"body"))
    client.expect_closed(505)


def test_a_method_among_the_frames_of_a_content_is_an_unexpected_frame(clients: AmqpClients) -> None:
    client = clients.open()
    channel = client.channel()
    channel.send(Basic.Publish(exchange="", routing_key="x"))
    channel.send(Basic.Publish(exchange="", routing_key="x"))
    client.expect_closed(505)


def test_a_header_of_another_class_is_an_unexpected_frame(clients: AmqpClients) -> None:
    client = clients.open()
    channel = client.channel()
    channel.send(Basic.Publish(exchange="", routing_key="x"))
    client.send_bytes(encode_frame(2, channel.number, struct.pack(">HHQH", 50, 0, 0, 0)))
    client.expect_closed(505)


def test_a_wrong_frame_end_is_a_frame_error(clients: AmqpClients) -> None:
    client = clients.open()
    channel = client.channel()
    good = frames.Method(channel.number, Queue.Declare(queue="x", passive=True)).marshal()
    client.send_bytes(good[:-1] + b"\x00")
    client.expect_closed(501, ends=False)  # where the next frame begins is anybody's guess


def test_a_frame_above_the_agreed_size_is_a_frame_error(clients: AmqpClients) -> None:
    client = clients.open(frame_max=4096)
    channel = client.channel()
    channel.send(Basic.Publish(exchange="", routing_key="x"))
    client.send_bytes(encode_frame(2, channel.number, struct.pack(">HHQH", 60, 0, 5000, 0)))
    client.send_bytes(encode_frame(3, channel.number, bytes(5000)))
    client.expect_closed(501, ends=False)  # where the next frame begins is anybody's guess


def test_an_error_on_one_channel_leaves_the_others_alone(clients: AmqpClients) -> None:
    client = clients.open()
    first, second = client.channel(), client.channel()
    queue = second.temporary()
    second.consume(queue, no_ack=True)
    first.send(Queue.Declare(queue="there-is-none", passive=True))
    first.expect_closed(404)
    second.publish("", queue, b"alive")
    assert second.delivery().body == b"alive"


def test_what_follows_on_a_closed_channel_is_ignored_until_its_end(clients: AmqpClients) -> None:
    client = clients.open()
    channel = client.channel()
    wrong = frames.Method(1, Queue.Declare(queue="there-is-none", passive=True)).marshal()
    publish = frames.Method(1, Basic.Publish(exchange="", routing_key="x")).marshal()
    header = encode_frame(2, 1, struct.pack(">HHQH", 60, 0, 1, 0))
    client.send_bytes(wrong + (publish + header + encode_frame(3, 1, b"x")) * 5)
    channel.expect_closed(404)
    client.channel().sync()
