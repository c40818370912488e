"""Publishers and consumers of every protocol with one face: what each can say, in words all of them share.

Names are MQTT's: a topic `a/b`, a queue by its name. What a protocol has no word for it neither sends nor reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType

import pika
from conftest import BrokerProcess
from pika.adapters.blocking_connection import BlockingChannel
from raw_client import TIMEOUT_S, RawClient, unique

from millstream.protocols.mqtt.wire.packets import PubAck, Publish, SubAck, Subscribe, SubscribeEntry
from millstream.protocols.mqtt.wire.properties import Properties

MQTT_3, MQTT_5, AMQP = "MQTT 3.1.1", "MQTT 5", "AMQP 0.9.1"
PROTOCOLS = (MQTT_3, MQTT_5, AMQP)

# basic's properties that MQTT 5 says in user properties, by the names both use
NAMED = ("message-id", "timestamp", "type", "app-id", "content-encoding", "priority", "user-id", "cluster-id")


@dataclass
class Letter:
    """A message as it is sent, or as it arrived."""

    body: bytes
    content_type: str | None = None
    correlation: bytes | None = None
    answer_to: str | None = None
    expiry_s: int | None = None
    named: dict[str, str] = field(default_factory=dict)
    headers: dict[str, object] = field(default_factory=dict)
    place: str = ""  # the topic or the routing key it arrived with


class MqttPeer:
    def __init__(self, broker: BrokerProcess, version: int) -> None:
        self.client = RawClient(broker.mqtt_port, version)
        self.client.connect(unique("peer"))
        self.version = version

    def close(self) -> None:
        self.client.close()

    def publish_topic(self, topic: str, letter: Letter) -> None:
        properties: Properties | None = None
        if self.version == 5:
            properties = Properties()
            properties.content_type = None if letter.content_type is None else letter.content_type.encode()
            properties.correlation_data = letter.correlation
            properties.response_topic = None if letter.answer_to is None else letter.answer_to.encode()
            properties.message_expiry_interval = letter.expiry_s
            pairs = [*letter.named.items(), *letter.headers.items()]
            properties.user_properties = [(name.encode(), str(value).encode()) for name, value in pairs]
        packet_id = self.client.new_packet_id()
        self.client.send(Publish(topic.encode(), letter.body, 1, packet_id=packet_id, properties=properties))
        self.client.expect_among(PubAck(packet_id))  # it may have subscribed to what it publishes

    def publish_queue(self, name: str, letter: Letter) -> None:
        self.publish_topic(f"$queue/{name}", letter)

    def read_topic(self, filter: str) -> None:
        self._subscribe(filter, None)

    def read_queue(self, name: str, group: str = "") -> None:
        properties = Properties()
        properties.user_properties = [(b"consumer-group", group.encode())] if group else []
        self._subscribe(f"$queue/{name}", properties if group else None)

    def _subscribe(self, filter: str, properties: Properties | None) -> None:
        packet_id = self.client.new_packet_id()
        entry = SubscribeEntry(filter.encode(), 1)
        self.client.send(Subscribe(packet_id, [entry], properties))
        # it waits for the disk, deliveries of a queue do not
        self.client.expect_among(SubAck(packet_id, [1]))

    def receive(self) -> Letter:
        packet = self.client.expect_publish()
        if packet.packet_id:
            self.client.send(PubAck(packet.packet_id))
        letter = Letter(packet.payload, place=packet.topic.decode())
        properties = packet.properties
        if properties is None:
            return letter
        if properties.content_type is not None:
            letter.content_type = properties.content_type.decode()
        if properties.response_topic is not None:
            letter.answer_to = properties.response_topic.decode()
        letter.correlation = properties.correlation_data
        letter.expiry_s = properties.message_expiry_interval
        for name, value in properties.user_properties:
            into = letter.named if name.decode() in NAMED else letter.headers
            into[name.decode()] = value.decode()
        return letter


class AmqpPeer:
    def __init__(self, broker: BrokerProcess) -> None:
        address = pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"], socket_timeout=TIMEOUT_S)
        self.connection = pika.BlockingConnection(address)
        self.channel: BlockingChannel = self.connection.channel()
        self.channel.confirm_delivery()
        self._queue = ""

    def close(self) -> None:
        if self.connection.is_open:
            self.connection.close()

    def publish_topic(self, topic: str, letter: Letter) -> None:
        self.publish("amq.topic", topic.replace("/", "."), letter)

    def publish_queue(self, name: str, letter: Letter) -> None:
        self.publish("", name, letter)

    def publish(self, exchange: str, key: str, letter: Letter) -> None:
        named = letter.named
        properties = pika.BasicProperties(
            content_type=letter.content_type,
            content_encoding=named.get("content-encoding"),
            headers=dict(letter.headers) or None,
            delivery_mode=2,
            priority=int(named["priority"]) if "priority" in named else None,
            correlation_id=None if letter.correlation is None else letter.correlation.decode(),
            reply_to=letter.answer_to,
            expiration=None if letter.expiry_s is None else str(1000 * letter.expiry_s),
            message_id=named.get("message-id"),
            timestamp=int(named["timestamp"]) if "timestamp" in named else None,
            type=named.get("type"),
            user_id=named.get("user-id"),
            app_id=named.get("app-id"),
            cluster_id=named.get("cluster-id"),
        )
        self.channel.basic_publish(exchange, key, letter.body, properties)

    def read_topic(self, filter: str) -> None:
        self._queue = self.channel.queue_declare("", exclusive=True).method.queue
        key = filter.replace("/", ".").replace("+", "*")
        self.channel.queue_bind(self._queue, "amq.topic", key)

    def read_queue(self, name: str) -> None:
        self.channel.queue_declare(name, passive=True)
        self._queue = name

    def receive(self) -> Letter:
        for method, properties, body in self.channel.consume(self._queue, inactivity_timeout=TIMEOUT_S):
            assert method is not None, "nothing came"
            self.channel.basic_ack(method.delivery_tag)
            self.channel.cancel()
            return _from_amqp(method.routing_key, properties, body)
        raise AssertionError("the consumer ended")

    def __enter__(self) -> AmqpPeer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _from_amqp(key: str, properties: pika.BasicProperties, body: bytes) -> Letter:
    letter = Letter(body, place=key)
    letter.content_type = properties.content_type
    letter.answer_to = properties.reply_to
    if properties.correlation_id is not None:
        letter.correlation = properties.correlation_id.encode()
    if properties.expiration is not None:
        letter.expiry_s = -(-int(properties.expiration) // 1000)  # rounded up, as MQTT says it
    for name in NAMED:
        value = getattr(properties, name.replace("-", "_"))
        if value is not None:
            letter.named[name] = str(value)
    letter.headers = dict(properties.headers or {})
    return letter


Peer = MqttPeer | AmqpPeer


def open_peer(broker: BrokerProcess, protocol: str) -> Peer:
    if protocol == AMQP:
        return AmqpPeer(broker)
    return MqttPeer(broker, 5 if protocol == MQTT_5 else 4)
