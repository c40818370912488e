"""MQTT 3.1.1, MQTT 5 and AMQP 0.9.1 meet in topics and in queues: each reads what the others publish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from conftest import BrokerProcess, StartBroker
from protocol_peers import AMQP, MQTT_3, MQTT_5, PROTOCOLS, AmqpPeer, Letter, MqttPeer, Peer, open_peer
from raw_client import NEVER, TIMEOUT_S, RawClient, unique
from reader_world import SETTINGS, ReaderClient

from millstream.protocols.mqtt.wire.packets import PubAck, SubAck, Subscribe, SubscribeEntry
from millstream.protocols.mqtt.wire.properties import Properties

EVERY_WAY = [
    pytest.param(source, target, id=f"{source} to {target}") for source in PROTOCOLS for target in PROTOCOLS
]
NAMED = {
    "message-id": "m-1",
    "timestamp": "1700000000",
    "type": "order",
    "app-id": "shop",
    "content-encoding": "gzip",
    "priority": "3",
    "cluster-id": "c",
}
HEADERS: dict[str, object] = {"trace": "4711", "größe": "ä"}
OF_THE_QUEUE = {"group-id", "queue", "offset"}


class Meeting:
    """One broker, and peers that are closed with the test."""

    def __init__(self, broker: BrokerProcess, stack: ExitStack) -> None:
        self.broker = broker
        self._stack = stack

    def join(self, protocol: str) -> Peer:
        peer = open_peer(self.broker, protocol)
        self._stack.callback(peer.close)
        return peer

    def amqp(self) -> AmqpPeer:
        peer = self.join(AMQP)
        assert isinstance(peer, AmqpPeer)
        return peer

    def mqtt(self) -> MqttPeer:
        peer = self.join(MQTT_5)
        assert isinstance(peer, MqttPeer)
        return peer


@pytest.fixture
def meeting(shared_broker: BrokerProcess) -> Iterator[Meeting]:
    with ExitStack() as stack:
        yield Meeting(shared_broker, stack)


def full_letter() -> Letter:
    return Letter(b"body", "text/plain", b"id-1", None, 90, dict(NAMED), dict(HEADERS))


def check(found: Letter, source: str, target: str) -> None:
    assert found.body == b"body"
    if MQTT_3 in (source, target):
        assert (found.content_type, found.named.get("type"), found.headers.get("trace")) == (None, None, None)
        return
    assert found.content_type == "text/plain"
    assert found.correlation == b"id-1"
    assert found.expiry_s is not None
    assert 60 < found.expiry_s <= 90
    found.named["message-id"] = found.named["message-id"].replace("queue:0", "m-1")
    assert found.named == NAMED
    assert {name: value for name, value in found.headers.items() if name not in OF_THE_QUEUE} == HEADERS


# ------------------------------------------------------------------ the matrix


@pytest.mark.parametrize(("source", "target"), EVERY_WAY)
def test_a_message_to_a_topic_arrives_with_all_its_properties(
    meeting: Meeting, source: str, target: str
) -> None:
    root = unique("plant")
    reader = meeting.join(target)
    reader.read_topic(f"{root}/+/temperature")
    meeting.join(source).publish_topic(f"{root}/north/temperature", full_letter())
    found = reader.receive()
    check(found, source, target)
    separator = "." if target == AMQP else "/"
    assert found.place == separator.join([root, "north", "temperature"])


@pytest.mark.parametrize(("source", "target"), EVERY_WAY)
def test_a_message_to_a_queue_arrives_with_all_its_properties(
    meeting: Meeting, source: str, target: str
) -> None:
    name = unique("jobs")
    owner = meeting.amqp()
    owner.channel.queue_declare(name, durable=True, arguments={"x-max-priority": 9})
    meeting.join(source).publish_queue(name, full_letter())
    reader = meeting.join(target)
    reader.read_queue(name)
    found = reader.receive()
    if target == MQTT_5:  # its own word for where it stands, behind the publisher's
        assert found.named["message-id"] == f"{name}:0"
        found.named["message-id"] = "queue:0"
        found.named.setdefault("priority", "3")
    check(found, source, target)
    assert found.place == (name if target == AMQP else f"$queue/{name}")


@pytest.mark.parametrize("source", [MQTT_5, AMQP])
def test_what_a_queue_says_of_a_message_cannot_be_said_by_its_publisher(
    meeting: Meeting, source: str
) -> None:
    name = unique("jobs")
    meeting.amqp().channel.queue_declare(name, durable=True)
    words = ["group-id", "queue", "offset", "redelivered", "delivery-count", "_dlq_reason"]
    forged: dict[str, object] = dict.fromkeys(words, "forged")
    letter = Letter(b"body", named={"message-id": "forged"}, headers={"trace": "4711", **forged})
    meeting.join(source).publish_queue(name, letter)
    reader = meeting.mqtt().client
    reader.send(Subscribe(1, [SubscribeEntry(f"$queue/{name}".encode(), 1)]))
    reader.expect_among(SubAck(1, [1]))
    properties = reader.expect_publish().properties
    assert properties is not None
    assert (b"trace", b"4711") in properties.user_properties
    assert [pair for pair in properties.user_properties if pair[1] == b"forged"] == []


# ----------------------------------------------------------------- topic space


def test_bindings_that_no_filter_could_say_reach_mqtt_topics(meeting: Meeting) -> None:
    root = unique("plant")
    reader = meeting.amqp()
    reader.read_topic(f"{root}/#/alarm/*")
    device = meeting.join(MQTT_3)
    device.publish_topic(f"{root}/alarm/low", Letter(b"none between"))
    device.publish_topic(f"{root}/a/b/alarm/low", Letter(b"two between"))
    device.publish_topic(f"{root}/a/b/low", Letter(b"not this"))
    device.publish_topic(f"{root}/alarm/end", Letter(b"end"))
    assert [reader.receive().body for _ in range(3)] == [b"none between", b"two between", b"end"]


def test_dots_in_topics_and_slashes_in_keys_change_places(meeting: Meeting) -> None:
    root = unique("firmware")
    device, service = meeting.mqtt(), meeting.amqp()
    device.read_topic(f"{root}/+/status")
    service.read_topic(f"{root}/+/status")
    device.publish_topic(f"{root}/v1.2/status", Letter(b"from the device"))
    found = service.receive()
    assert (found.place, device.receive().place) == (f"{root}.v1/2.status", f"{root}/v1.2/status")
    service.publish("amq.topic", found.place, Letter(b"from the service"))
    assert service.receive().place == f"{root}.v1/2.status"
    assert device.receive().place == f"{root}/v1.2/status"


def test_the_default_exchange_leads_to_topics_when_no_queue_has_the_name(meeting: Meeting) -> None:
    root = unique("seed")
    reader = meeting.mqtt()
    reader.read_topic(f"{root}/#")
    service = meeting.amqp()
    service.publish("", f"{root}.with.dots", Letter(b"1"))
    service.publish("", f"{root}/with/slashes.too", Letter(b"2"))
    assert reader.receive().place == f"{root}/with/dots"
    assert reader.receive().place == f"{root}/with/slashes.too"


def test_a_session_that_is_away_gets_what_amqp_published_meanwhile(meeting: Meeting) -> None:
    topic, name = unique("away"), unique("sleeper")
    port = meeting.broker.mqtt_port
    with RawClient(port) as client:
        client.connect(name, clean=False, expiry_s=NEVER)
        client.subscribe(topic.encode(), 1)
        client.disconnect()
    meeting.amqp().publish_topic(topic, full_letter())
    with RawClient(port) as client:
        client.connect(name, clean=False, expiry_s=NEVER)
        packet = client.expect_publish()
        assert packet.payload == b"body"
        assert packet.properties is not None
        assert packet.properties.content_type == b"text/plain"
        assert (b"trace", b"4711") in packet.properties.user_properties
        client.send(PubAck(packet.packet_id))
        client.disconnect()


# ------------------------------------------------------------------ properties


def test_headers_of_every_type_are_texts_for_mqtt(meeting: Meeting) -> None:
    topic = unique("types")
    reader = meeting.mqtt()
    reader.read_topic(topic)
    headers: dict[str, object] = {
        "whole": 5,
        "large": 2**40,
        "yes": True,
        "nothing": None,
        "decimal": Decimal("1.5"),
        "time": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "bytes": b"\x00\xff",
        "list": [1, "two"],
        "table": {"a": {"b": 1}},
    }
    meeting.amqp().publish_topic(topic, Letter(b"", headers=headers))
    assert reader.receive().headers == {
        "whole": "5",
        "large": str(2**40),
        "yes": "true",
        "nothing": "null",
        "decimal": "1.5",
        "time": "1700000000",
        "bytes": "AP8=",
        "list": '[1,"two"]',
        "table": '{"a":{"b":1}}',
    }


def test_headers_of_every_type_come_back_through_a_queue_on_disk(
    meeting: Meeting, start_broker: StartBroker
) -> None:
    broker = start_broker()
    headers = {
        "whole": 5,
        "yes": True,
        "bytes": b"\x00\xff",
        "list": [1, ["x"]],
        "table": {"a": {}},
        "none": None,
    }
    with AmqpPeer(broker) as peer:
        peer.channel.queue_declare("kept", durable=True)
        peer.publish_queue("kept", Letter(b"body", headers=dict(headers)))
    broker.process.kill()
    broker.process.wait()
    folder = broker.log_file.parent / "data"
    again = start_broker(f"data_dir={folder}")
    with AmqpPeer(again) as peer:
        peer.read_queue("kept")
        assert peer.receive().headers == headers


def test_what_amqp_has_no_property_for_is_a_header(meeting: Meeting) -> None:
    topic = unique("rest")
    reader = meeting.amqp()
    reader.read_topic(topic)
    sender = meeting.mqtt()
    properties = Properties()
    properties.correlation_data = b"\x00\xff"
    properties.payload_format_indicator = 1
    properties.user_properties = [(b"a", b"1"), (b"a", b"2"), (b"user-id", b"admin"), (b"timestamp", b"soon")]
    sender.client.publish(topic.encode(), b"", 1, properties=properties)
    found = reader.receive()
    assert found.correlation is None
    assert found.named == {}
    assert found.headers == {
        "x-correlation-id": b"\x00\xff",
        "payload-format": 1,
        "a": ["1", "2"],
        "user-id": "admin",
        "timestamp": "soon",
    }


# ------------------------------------------------------------- ask and answer


def test_an_mqtt_client_answers_a_question_of_an_amqp_client(meeting: Meeting) -> None:
    topic = unique("ask")
    responder, asker = meeting.mqtt(), meeting.amqp()
    responder.read_topic(topic)
    answers = asker.channel.queue_declare("", exclusive=True).method.queue
    asker.publish_topic(topic, Letter(b"question", correlation=b"q-1", answer_to=answers))
    asked = responder.receive()
    assert asked.answer_to == f"$queue/{answers}"
    responder.publish_topic(asked.answer_to, Letter(b"answer", correlation=asked.correlation))
    asker.read_queue(answers)
    answer = asker.receive()
    assert (answer.body, answer.correlation) == (b"answer", b"q-1")


@pytest.mark.parametrize("answers", ["answers/v1.0/{}", "$queue/{}"])
def test_an_amqp_client_answers_a_question_of_an_mqtt_client(meeting: Meeting, answers: str) -> None:
    topic, answer_to = unique("ask"), answers.format(unique("answers"))
    responder, asker = meeting.amqp(), meeting.mqtt()
    responder.read_topic(topic)
    asker.read_topic(answer_to)
    asker.publish_topic(topic, Letter(b"question", correlation=b"q-1", answer_to=answer_to))
    asked = responder.receive()
    assert asked.answer_to is not None
    responder.publish("", asked.answer_to, Letter(b"answer", correlation=asked.correlation))
    answer = asker.receive()
    assert (answer.body, answer.correlation) == (b"answer", b"q-1")


# --------------------------------------------------------------------- queues


def test_consumers_of_one_group_share_a_queue_across_protocols(meeting: Meeting) -> None:
    name = unique("shared")
    owner = meeting.amqp()
    owner.channel.queue_declare(name, durable=True)
    for number in range(4):
        owner.publish_queue(name, Letter(str(number).encode()))
    owner.read_queue(name)
    assert owner.receive().body == b"0"
    other = meeting.mqtt()
    other.read_queue(name, "amqp")
    assert [other.receive().body for _ in range(3)] == [b"1", b"2", b"3"]
    other.client.expect_nothing()
    assert owner.channel.queue_declare(name, passive=True).method.message_count == 0


def test_an_mqtt_message_that_an_amqp_consumer_rejects_is_a_dead_letter(meeting: Meeting) -> None:
    name, exchange = unique("work"), unique("dead")
    peer = meeting.amqp()
    peer.channel.exchange_declare(exchange, "fanout")
    peer.channel.queue_declare(name + "-dead")
    peer.channel.queue_bind(name + "-dead", exchange)
    arguments = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "why"}
    peer.channel.queue_declare(name, durable=True, arguments=arguments)
    meeting.mqtt().publish_queue(name, full_letter())
    method, _, _ = next(peer.channel.consume(name, inactivity_timeout=TIMEOUT_S))
    assert method is not None
    peer.channel.basic_reject(method.delivery_tag, requeue=False)
    peer.channel.cancel()
    method, properties, body = next(peer.channel.consume(name + "-dead", inactivity_timeout=TIMEOUT_S))
    assert (method.exchange, method.routing_key, body) == (exchange, "why", b"body")
    death = properties.headers["x-death"][0]
    assert (death["queue"], death["reason"], death["count"]) == (name, "rejected", 1)
    assert properties.headers["trace"] == "4711"
    assert properties.expiration is None


def test_a_stream_that_amqp_writes_is_a_table(start_broker: StartBroker) -> None:
    broker = start_broker(*SETTINGS)
    with AmqpPeer(broker) as peer:
        peer.channel.queue_declare("events", durable=True, arguments={"x-queue-type": "stream"})
        letter = full_letter()
        letter.headers["event-time"] = 1_700_000_000_123
        letter.headers["producer-id"] = "p"
        letter.headers["sequence"] = 7
        peer.publish_queue("events", letter)
    client = ReaderClient(broker.ports["reader"])
    row = client.records("events", fresh="true", headers="map").table().to_pylist()[0]
    client.close()
    assert (row["topic"], row["payload"], row["content_type"]) == ("$queue/events", b"body", "text/plain")
    assert (row["qos"], row["producer_sequence"]) == (1, 7)
    assert row["event_time"].timestamp() == 1_700_000_000.123
    assert dict(row["headers"]) == {
        **NAMED,
        **HEADERS,
        "event-time": "1700000000123",
        "producer-id": "p",
        "sequence": "7",
    }


def test_an_mqtt_client_settles_what_amqp_published_in_words(meeting: Meeting) -> None:
    name = unique("words")
    owner = meeting.amqp()
    owner.channel.queue_declare(name, durable=True)
    owner.publish_queue(name, Letter(b"x"))
    reader = meeting.mqtt()
    reader.read_queue(name, "amqp")
    packet = reader.client.expect_publish()
    assert packet.properties is not None
    words = [pair for pair in packet.properties.user_properties if pair[0] in (b"message-id", b"group-id")]
    properties = Properties()
    properties.user_properties = words
    assert reader.client.publish(f"$queue/{name}/$ack".encode(), b"", 1, properties=properties) == 0
    assert owner.channel.queue_declare(name, passive=True).method.message_count == 0
