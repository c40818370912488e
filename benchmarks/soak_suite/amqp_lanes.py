"""Traffic over AMQP 0.9.1: durable, transient and stream queues, confirms, transactions, dead letters, and from MQTT."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pika.spec import Basic

from benchmarks.attack_suite.amqp import AmqpChannel
from benchmarks.attack_suite.target import TIMEOUT_S
from benchmarks.soak_suite.account import GHOST, make_payload
from benchmarks.soak_suite.lane import Lane, Publish, Receive, open_amqp, open_mqtt
from benchmarks.soak_suite.mqtt_lanes import publish_and_wait

PREFETCH: Final = 50
SETTLE_EVERY: Final = 4


class ConfirmingPublisher:
    def __init__(self, channel: AmqpChannel, queue: str, delivery_mode: int) -> None:
        self._channel = channel
        self._queue = queue
        self._mode = delivery_mode
        self._last = 0
        channel.confirm_select()

    def __call__(self, payloads: list[bytes]) -> None:
        unanswered = set(range(self._last + 1, self._last + len(payloads) + 1))
        self._last += len(payloads)
        for payload in payloads:
            self._channel.publish("", self._queue, payload, delivery_mode=self._mode)
        while unanswered:
            answer = self._channel.confirm()
            if isinstance(answer, Basic.Nack):
                raise ConnectionError("a publish was refused (basic.nack)")
            tag = answer.delivery_tag
            unanswered -= {number for number in unanswered if number <= tag} if answer.multiple else {tag}


class AmqpLane(Lane):
    is_durable = True
    arguments: Mapping[str, Any] = MappingProxyType({})

    @property
    def queue(self) -> str:
        return f"soak-{self.name}"

    @property
    def consumed(self) -> str:
        """The queue that is read."""
        return self.queue

    def prepare(self) -> None:
        client = open_amqp(self.target)
        client.channel().declare(self.queue, durable=self.is_durable, arguments=dict(self.arguments))
        client.close()

    def open_publisher(self) -> Publish:
        return ConfirmingPublisher(open_amqp(self.target).channel(), self.queue, 2 if self.is_durable else 1)

    def open_consumer(self, number: int) -> Receive:
        channel = open_amqp(self.target).channel()
        channel.qos(PREFETCH)
        channel.consume(self.consumed)

        def receive() -> list[bytes]:
            delivery = channel.delivery()
            channel.ack(delivery.tag)
            return [delivery.body]

        return receive


class Confirms(AmqpLane):
    name = "amqp-confirms"


class Transient(AmqpLane):
    """No acks either."""

    name = "amqp-transient"
    is_durable = False

    def open_consumer(self, number: int) -> Receive:
        channel = open_amqp(self.target).channel()
        channel.consume(self.queue, no_ack=True)
        return lambda: [channel.delivery().body]


class Stream(AmqpLane):
    """Its retention removes segments all the time."""

    name = "amqp-stream"
    size = 1000
    arguments = MappingProxyType(
        {
            "x-queue-type": "stream",
            "x-max-length-bytes": 4_000_000,
            "x-stream-max-segment-size-bytes": 1_000_000,
        }
    )

    def open_consumer(self, number: int) -> Receive:
        channel = open_amqp(self.target).channel()
        channel.qos(PREFETCH)
        channel.consume(self.queue, arguments={"x-stream-offset": "next"})

        def receive() -> list[bytes]:
            delivery = channel.delivery()
            channel.ack(delivery.tag)
            return [delivery.body]

        return receive


class Transactions(AmqpLane):
    """Publishes and acks in transactions; what was rolled back must never be seen."""

    name = "amqp-transactions"

    def open_publisher(self) -> Publish:
        channel = open_amqp(self.target).channel()
        channel.tx_select()

        def publish(payloads: list[bytes]) -> None:
            channel.publish("", self.queue, make_payload(GHOST, self.size), delivery_mode=2)
            channel.rollback()
            for payload in payloads:
                channel.publish("", self.queue, payload, delivery_mode=2)
            channel.commit()

        return publish

    def open_consumer(self, number: int) -> Receive:
        channel = open_amqp(self.target).channel()
        channel.tx_select()
        channel.qos(PREFETCH)
        channel.consume(self.queue)
        waiting = 0

        def receive() -> list[bytes]:
            nonlocal waiting
            delivery = channel.delivery()
            channel.ack(delivery.tag)
            waiting += 1
            if waiting == SETTLE_EVERY:
                channel.commit()
                waiting = 0
            return [delivery.body]

        return receive


class DeadLettered(AmqpLane):
    """One consumer rejects all; the other reads the dead letters."""

    name = "amqp-rejected"
    consumers = 2

    @property
    def consumed(self) -> str:
        return self.queue + "-dead"

    def prepare(self) -> None:
        client = open_amqp(self.target)
        channel = client.channel()
        channel.declare(self.consumed, durable=True)
        letter = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.consumed}
        channel.declare(self.queue, durable=True, arguments={**letter, **self.arguments})
        client.close()

    def open_consumer(self, number: int) -> Receive:
        if number == 0:
            return super().open_consumer(number)
        channel = open_amqp(self.target).channel()
        channel.qos(PREFETCH)
        channel.consume(self.queue)

        def reject() -> list[bytes]:
            channel.reject(channel.delivery().tag, requeue=False)
            return []

        return reject


class Expired(DeadLettered):
    """Nobody reads the queue; its messages expire into another one."""

    name = "amqp-expired"
    consumers = 1
    is_delayed = True
    arguments = MappingProxyType({"x-message-ttl": 200})


class FromMqtt(AmqpLane):
    """An MQTT publisher, a durable queue bound to its topic."""

    name = "mqtt-to-amqp"

    def prepare(self) -> None:
        super().prepare()
        client = open_amqp(self.target)
        client.channel().bind(self.queue, "amq.topic", f"soak.{self.name}")
        client.close()

    def open_publisher(self) -> Publish:
        client = open_mqtt(self.target, f"soak-{self.name}")
        client.socket.settimeout(TIMEOUT_S)
        topic = f"soak/{self.name}".encode()
        return lambda payloads: publish_and_wait(client, topic, payloads, 1)


LANES = (Confirms, Transient, Stream, Transactions, DeadLettered, Expired, FromMqtt)
